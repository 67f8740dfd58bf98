"""Link masses of an arm from torques with 5 % noise: the bar, with fewer seeds."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import mass_identification


def test_masses_are_found_within_the_bar(monkeypatch):
    monkeypatch.setattr(mass_identification, "SEEDS", range(3))
    figures = [figure for figure in mass_identification.section(quick=True) if "table" not in figure]
    assert len(figures) == 3
    assert all(figure["value"] < figure["at_most"] for figure in figures)
    assert "6 of 7" in figures[0]["name"]
    assert "not identified: link1" in figures[0]["note"]
