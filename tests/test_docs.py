"""The docs build without a warning, work offline, lead nowhere wrong, and name what there is."""

import importlib
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
TABLES = (ROOT / "docs" / "coming_from.md").read_text()
OTHERS = [
    name
    for line in TABLES.splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([A-Za-z_]+\.\w[\w.]*)", line.split("|")[1])
]


class Links(HTMLParser):
    """What a page links to and loads, and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.loaded, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.targets.append(given["href"])
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loaded += [given[name] for name in ("href", "src") if given.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.relative_to(folder): Links(path.read_text()) for path in folder.rglob("*.html")}, folder


def test_every_link_and_anchor_leads_somewhere(site):
    pages, folder = site
    for page, links in pages.items():
        if page.name == "404.html":
            continue
        for target in links.targets + links.loaded:
            address, _, place = target.partition("#")
            if re.match(r"(https?|mailto|data):", address):
                continue
            path = (folder / page.parent / unquote(address)).resolve() if address else folder / page
            assert path.exists(), f"{page} links to {target}"
            if place and path.suffix == ".html":
                assert unquote(place) in pages[path.relative_to(folder)].places, f"{page} links to {target}"


def test_nothing_is_loaded_from_elsewhere(site):
    pages, folder = site
    for page, links in pages.items():
        assert not [address for address in links.loaded if "//" in address and not address.startswith("data:")], page
    for style in folder.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//", style.read_text()), style


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_the_search_works_on_pages_opened_from_a_disk(site, tmp_path):
    _, folder = site
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    address = f"{(folder / 'index.html').as_uri()}?q=restitution"
    found = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    results = re.findall(r'<a href="([^"]+)" class="md-search-result__link"', found.stdout)
    assert any("contact.html" in result for result in results)


def test_the_reference_has_every_public_name(site):
    pages, _ = site
    known = set().union(*[links.places for page, links in pages.items() if page.parent.name == "reference"])
    for module in ("adjoin", "adjoin.learn", "adjoin.control", "adjoin.trace"):
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if not isinstance(value, type(sys)):
                file = (ROOT / "src" / module.replace(".", "/") / f"{name}.py").exists()
                assert {f"{module}.{name}.{name}" if file else f"{module}.{name}", f"adjoin.{name}"} & known, name


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(adjoin\.[\w.]*\w)", TABLES))))
def test_names_of_adjoin_in_the_tables_exist(name):
    assert find(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_others_in_the_tables_exist(name):
    homes = {
        "DifferentiableRobotModel": "differentiable_robot_model.robot_model.DifferentiableRobotModel",
        "rigid_body_params": "differentiable_robot_model.rigid_body_params",
        "mjx": "mujoco.mjx",
    }
    first, _, rest = name.partition(".")
    if first == "model":
        pytest.skip("a method of what another function gives")
    whole = f"{homes.get(first, first)}.{rest}"
    pytest.importorskip(whole.split(".")[0] if first != "mjx" else "mujoco.mjx")
    assert find(whole)


def find(name):
    """What a dotted name stands for: a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)
