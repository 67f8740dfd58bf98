import os
import runpy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the helpers that several test files share
sys.path.append(str(Path(__file__).parents[1] / "examples"))  # as when an example is run by its name


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Tests compile into a folder of their run, or one that is given, never into the user's cache.

    Processes that share a run share it.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADJOIN_CACHE_DIR", os.environ.get("ADJOIN_TEST_CACHE_DIR", str(folder / "kernels")))
        yield


@pytest.fixture
def run_example(tmp_path, capsys):
    """Runs the short form of an example by its file name, looks that there is a picture, and gives what it printed."""

    def run(name, picture=True):
        pytest.importorskip("matplotlib")
        file, dtype = Path(__file__).parents[1] / "examples" / name, torch.get_default_dtype()
        try:
            made = runpy.run_path(str(file))["main"](quick=True, folder=tmp_path)
        finally:
            torch.set_default_dtype(dtype)  # a script may choose another
        assert (made.stat().st_size > 10_000) if picture else made is None
        return capsys.readouterr().out

    return run
