"""The page about models names what there is."""

from pathlib import Path

import adjoin
from adjoin.model.flaws import ACCEPTABLE, REPAIRABLE
from adjoin.model.parameters import PARAMETERS

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_parameter_robot_and_flaw():
    page = (ROOT / "docs" / "models.md").read_text()
    for name in [parameter.name for parameter in PARAMETERS] + list(adjoin.robots.names()):
        assert f"`{name}`" in page, name
    for name in (*ACCEPTABLE, *REPAIRABLE):
        assert f'"{name}"' in page, name
    for name in adjoin.robots.names():
        if name != "pendulum":
            assert f"| `{name}` | {adjoin.robots.load(name).nv} |" in page
