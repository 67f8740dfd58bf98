import ast
import functools
import re
import subprocess
import sys
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import adjoin

ROOT = Path(adjoin.__file__).parent
REPOSITORY = Path(__file__).parents[1]


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


NAMES = {"pinocchio": "pin"}  # of packages whose files do not tell where they come from


@functools.cache
def declared():
    """Distributions that each extra installs, without those of other extras; the core under ""."""
    found = {"": set()} | {extra: set() for extra in metadata.metadata("adjoin").get_all("Provides-Extra") or []}
    for requirement in metadata.requires("adjoin") or []:
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        found[extra[1] if extra else ""].add(re.match(r"[\w.-]+", requirement)[0].lower())
    return found


def imported(folder):
    """What is imported under a folder: file, module, and the extra that `needed` names."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((file.name, alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield file.name, node.module, None
            elif isinstance(node, ast.Call) and re.search(r"\b(import_module|needed)$", ast.unparse(node.func)):
                words = [word.value for word in node.args if isinstance(word, ast.Constant)]
                if words:
                    yield file.name, words[0], words[1] if len(words) > 1 else None


@functools.cache
def distributions():
    """Of each top-level module, those that install it."""
    return metadata.packages_distributions()


def undeclared(folder, extras, beside=()):
    """Imports whose distribution none of the extras installs, or not the one that is named for it."""
    known, homes = declared(), distributions()
    allowed = set().union(*(known[extra] for extra in extras), beside)
    for file, module, extra in imported(folder):
        top = module.split(".")[0]
        homes_of = {NAMES.get(top, name).lower() for name in homes.get(top, [NAMES.get(top, top)])}
        found = top in sys.stdlib_module_names or top == "adjoin" or homes_of & allowed
        if not found or (extra and not homes_of & known.get(extra, set())):
            yield file, module, extra


def test_everything_that_is_imported_is_declared(tmp_path):
    (tmp_path / "some.py").write_text("import os, llvmlite\nimport requests.auth\nneeded('viser', 'plot', 'x')\n")
    assert list(undeclared(tmp_path, ["", "viewer"])) == [
        ("some.py", "requests.auth", None),
        ("some.py", "viser", "plot"),
    ]
    extras = set(declared()) - {"dev", "docs"}
    assert list(undeclared(ROOT, extras)) == []
    assert list(undeclared(REPOSITORY / "examples", {*extras, "dev"}, {"get_up", "scenes"})) == []
    helpers = {path.stem for path in (REPOSITORY / "tests").rglob("*") if path.is_dir() or path.suffix == ".py"}
    scripts = {path.stem for room in ("benchmarks", "examples") for path in (REPOSITORY / room).iterdir()}
    assert list(undeclared(REPOSITORY / "tests", {*extras, "dev", "docs"}, helpers | scripts)) == []
    peers = {"crocoddyl", "jax", "brax", "taichi"}
    assert list(undeclared(REPOSITORY / "benchmarks", {*extras, "dev"}, scripts | peers)) == []


def test_the_core_imports_only_the_core_at_its_top():
    """Modules that need an extra import it in a function, so that the error names the extra."""
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            tops = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"adjoin", *declared()[""]}
            found += [(file.name, top) for top in tops]
    assert found == []


def test_importing_the_package_imports_nothing_heavy():
    program = "import adjoin, sys; print([name for name in ('torch', 'numpy', 'llvmlite') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_using_names_of_the_package_does_not_import_torchs_compiler():
    """It takes a second, which every process would pay that never compiles."""
    program = "import adjoin, sys; adjoin.rnea, adjoin.Simulator; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_first_gradient_does_not_import_sympy():
    """Some of torch's small functions do; it takes a second."""
    program = """
import sys, torch, adjoin
sim = adjoin.Simulator(adjoin.robots.load("ball"), 1e-3)
mass = torch.ones(1, requires_grad=True)
sim.step(sim.state(torch.tensor([0, 0, 0.05, 1, 0, 0, 0]), batch=3), params={"mass": mass}).v.sum().backward()
print("sympy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_everything_that_is_exported_is_there():
    assert [name for name in adjoin.__all__ if getattr(adjoin, name, None) is None] == []
