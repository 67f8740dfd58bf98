import importlib.metadata

import pytest
from report import PAGE, page


def test_the_table_in_the_docs_is_up_to_date():
    for package, version in (("example-robot-data", "5.0.0"), ("gymnasium", "1.4.0"), ("mujoco-core", "4.0.0")):
        if importlib.metadata.version(package) != version:
            pytest.skip(f"written for {package} {version}")
    assert PAGE.read_text() == page(), "run: python tests/io/report.py"
