"""What the docs say was measured is what the results say."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import plots  # noqa: E402


def test_the_page_is_what_the_generator_makes_of_the_results():
    assert plots.PAGE.read_text() == plots.page(plots.results())


def test_every_table_has_its_picture():
    pictures = [name for name, _, _ in plots.tables(plots.results())]
    assert pictures
    for name in pictures:
        size = (plots.IMAGES / f"{name}.svg").stat().st_size
        assert 0 < size < 60_000
