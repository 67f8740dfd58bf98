"""What the docs say was measured is what the results say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import plots  # noqa: E402


@pytest.mark.parametrize("name", plots.PAGES)
def test_the_page_is_what_the_generator_makes_of_the_results(name):
    found = plots.results(name)
    assert found
    assert plots.PAGES[name].read_text() == plots.page(name, found)


@pytest.mark.parametrize("name", plots.PAGES)
def test_every_table_has_its_picture(name):
    pictures = [picture for picture, _ in plots.pictures(plots.results(name))]
    assert pictures
    for picture in pictures:
        size = (plots.IMAGES / f"{picture}.svg").stat().st_size
        assert 0 < size < 60_000
