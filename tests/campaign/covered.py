"""A plugin of pytest: which lines of the library each test runs, and how long it takes.

    ADJOIN_COVERED=covered.jsonl python -m pytest -p covered tests/model

It writes a line of JSON for each test. What several tests need and a process computes once, such as a trace, belongs to
the first of them. From Python 3.12 it costs little; before, tests take several times as long.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from types import CodeType, FrameType
from typing import Any

import pytest

INSIDE = os.sep + os.path.join("src", "adjoin") + os.sep
TOOL = 4  # of those that sys.monitoring leaves to anybody

lines: dict[str, set[int]] = defaultdict(set)
passed: dict[str, bool] = {}


def _start() -> None:
    lines.clear()
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        threading.settrace(_trace)
        sys.settrace(_trace)
        return

    def ran(code: CodeType, line: int) -> Any:
        if INSIDE in code.co_filename:
            lines[code.co_filename].add(line)
        return monitoring.DISABLE  # the first time is enough

    if monitoring.get_tool(TOOL) is None:
        monitoring.use_tool_id(TOOL, "covered")
        monitoring.register_callback(TOOL, monitoring.events.LINE, ran)
        monitoring.set_events(TOOL, monitoring.events.LINE)
    monitoring.restart_events()


def _trace(frame: FrameType, event: str, argument: Any) -> Any:
    if INSIDE not in frame.f_code.co_filename:
        return None
    if event == "line":
        lines[frame.f_code.co_filename].add(frame.f_lineno)
    return _trace


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Record a test with its fixtures."""
    _start()
    began = time.perf_counter()
    result = yield
    seconds = time.perf_counter() - began
    sys.settrace(None)
    found = {file.split(INSIDE)[1]: sorted(numbers) for file, numbers in list(lines.items())}
    record = {"test": item.nodeid, "passed": passed.get(item.nodeid, False), "seconds": round(seconds, 2)}
    with open(os.environ["ADJOIN_COVERED"], "a") as place:
        place.write(json.dumps({**record, "lines": found}) + "\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note whether a test passed; one that is skipped did not."""
    if report.when == "call" or not report.passed:
        passed[report.nodeid] = report.passed
