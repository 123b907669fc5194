"""What tests took when they were last recorded, and what the quick lane leaves out because of it.

``python3 tests/run.py --record`` writes ``tests/durations.json``: seconds with set-up and teardown, of each test that
took over ``QUICK_SECONDS``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path(__file__).resolve().parents[1] / "durations.json"
QUICK_SECONDS = 0.5
"""A test that was recorded as longer is not in the quick lane."""
QUICK_LIMIT = 2.0
"""Seconds. A recorded run of the quick lane fails if one of its tests takes longer."""


def recorded() -> dict[str, dict[str, float]]:
    """Return seconds by file and test, both as pytest names them."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def leave_out_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what was recorded as longer than ``QUICK_SECONDS``."""
    seconds = recorded()
    slow = [
        item
        for item in items
        if seconds.get(_file(item.nodeid), {}).get(_test(item.nodeid), 0) > QUICK_SECONDS
    ]
    config.hook.pytest_deselected(items=slow)
    left_out = set(slow)
    items[:] = [item for item in items if item not in left_out]


class Recorder:
    """A plugin of pytest that writes the record, and holds the quick lane to its limit."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = recorded()
        for nodeid, seconds in self._seconds.items():
            tests = found.setdefault(_file(nodeid), {})
            tests.pop(_test(nodeid), None)
            if seconds > QUICK_SECONDS:
                tests[_test(nodeid)] = round(seconds, 1)
        kept = {file: tests for file, tests in found.items() if tests and (RECORD.parents[1] / file).exists()}
        RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        if self._quick and self._too_long():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self._too_long() if self._quick else []:
            terminalreporter.write_line(
                f"TOO SLOW for the quick lane: {nodeid} took {self._seconds[nodeid]:.1f} s, of {QUICK_LIMIT:g} s"
            )

    def _too_long(self) -> list[str]:
        return sorted(nodeid for nodeid, seconds in self._seconds.items() if seconds > QUICK_LIMIT)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _test(nodeid: str) -> str:
    return nodeid.partition("::")[2]
