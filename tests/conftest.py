import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers that several test files share


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Tests compile into a folder of their own, never into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADJOIN_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "kernels"))
        yield
