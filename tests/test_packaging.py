import subprocess
import sys
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest

import adjoin

ROOT = Path(adjoin.__file__).parent


def test_the_installed_package_has_the_version_of_the_source():
    assert metadata.version("adjoin") == adjoin.__version__


def test_every_file_of_the_package_that_is_no_code_is_shipped():
    shipped = (Path(__file__).parents[1] / "pyproject.toml").read_text().split("package-data]\nadjoin = [")[1]
    patterns = [pattern.strip('" ') for pattern in shipped.split("]")[0].split(",")]
    others = [file for file in ROOT.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")]
    names = [file.relative_to(ROOT).as_posix() for file in others]
    assert "py.typed" in names
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_command_is_installed_with_the_package():
    (command,) = metadata.entry_points(group="console_scripts", name="adjoin")
    assert callable(command.load())


@pytest.mark.parametrize("extra", ["completion", "control", "docs", "meshes", "mjcf", "plot", "save", "viewer"])
def test_a_missing_package_is_told_with_an_extra_that_exists(extra):
    assert extra in (metadata.metadata("adjoin").get_all("Provides-Extra") or [])


def test_importing_the_package_imports_nothing_heavy():
    program = "import adjoin, sys; print([name for name in ('torch', 'numpy', 'llvmlite') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_that_is_exported_is_there():
    assert [name for name in adjoin.__all__ if getattr(adjoin, name, None) is None] == []
