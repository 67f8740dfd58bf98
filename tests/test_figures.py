"""What the docs say was measured is what the results say."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import papers  # noqa: E402
import performance  # noqa: E402
import plots  # noqa: E402


def test_the_page_is_what_the_generator_makes_of_the_results():
    assert performance.PAGE.read_text() == performance.page(), "run python benchmarks/performance.py"
    assert performance.PAGE.stat().st_size < 10_000
    assert performance.GPU_PAGE.read_text() == performance.gpu_kernels(), "run python benchmarks/performance.py"


def test_the_page_of_the_papers_is_what_the_generator_makes_of_the_results():
    assert papers.PAGE.read_text() == papers.page(), "run python benchmarks/papers.py"


def test_every_result_has_its_full_page_and_every_table_its_picture(tmp_path):
    made = dict(plots.everything())
    results = plots.results("")
    assert {f"{result['benchmark']}.md" for result in results.values() if "benchmark" in result} == {
        name for name in made if name.endswith(".md")
    }
    pictures = {name: draw for name, draw in made.items() if not isinstance(draw, str)}
    assert len(pictures) == sum(
        any(key in result for key in ("table_cpu", "table_cuda", "paper"))
        or bool(plots.curves(result))
        or bool(plots.solved_starts(result.get("figures", {})))
        for result in results.values()
    )
    assert all(any(f"({name})" in text for text in made.values() if isinstance(text, str)) for name in pictures)
    for name in (next(iter(pictures)), "contact_search_cpu_rates.svg"):
        pictures[name](tmp_path / name)
        assert (tmp_path / name).read_text().startswith("<?xml")


def test_the_page_on_hardening_has_the_counts_of_the_campaigns_last_report():
    parts = json.loads((ROOT / "tests" / "campaign" / "report.json").read_text())["parts"]
    page = (ROOT / "docs" / "hardening.md").read_text()
    for name, part in parts.items():
        assert f"| {name} | {part['cases']:,} of {part['of']:,} |" in page, f"docs/hardening.md: {name}"


def test_the_table_of_gradients_is_that_of_the_campaigns_last_run():
    robots = json.loads((ROOT / "tests" / "campaign" / "gradients.json").read_text())["robots"]
    page = (ROOT / "docs" / "adjoints.md").read_text()
    for name, found in robots.items():
        errors = [found[start][level] for start in ("rest", "fall") for level in ("median", "90th percentile")]
        assert f"| {name} | {' | '.join(f'{error:.0e}' for error in errors)} |" in page
        assert max(errors) < 0.01


def test_the_table_of_sweeps_is_that_of_the_campaigns_last_run():
    robots = json.loads((ROOT / "tests" / "campaign" / "sweeps.json").read_text())
    page = (ROOT / "docs" / "adjoints.md").read_text()
    for name, found in robots.items():
        shares = [[100.0 * found[count][f"{width} together"] for width in (1, 16)] for count in ("5", "10", "15", "20")]
        assert f"| {name} | {' | '.join(f'{alone:.0f} % / {all_of:.0f} %' for alone, all_of in shares)} |" in page
