"""Read and write the recorded durations of tests, and deselect tests by their duration.

``python3 tests/run.py --record`` writes ``tests/durations.json``: the seconds of each test that took over
``SLOW_SECONDS``, with set-up and teardown.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

RECORD = Path(__file__).resolve().parents[1] / "durations.json"
SLOW_SECONDS = 0.4
"""A test with a longer record is slow. The quick lane leaves it out, except the ``main_cases``. A sample has a part of
the slow tests, each on one server."""
FAST_SECONDS = 0.1
"""What a test without a record takes, approximately."""
QUICK_LIMIT = 2.0
"""A recorded run of the quick lane fails if one of its tests takes more seconds."""
FEATURES = "tests/features/"
"""Each file of this folder has a test in the quick lane, if one of its tests is quick enough."""

_DEFINITION = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)


def recorded() -> dict[str, dict[str, float]]:
    """Return seconds by file and test. The keys are pytest's names."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def existing(record: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the part of the record whose files and tests still exist. The parameters of a test are not checked."""
    kept: dict[str, dict[str, float]] = {}
    for file, tests in record.items():
        path = RECORD.parents[1] / file
        names = set(_DEFINITION.findall(path.read_text())) if path.exists() else set()
        kept[file] = {
            test: seconds
            for test, seconds in tests.items()
            if names.issuperset(test.partition("[")[0].split("::"))
        }
    return {file: tests for file, tests in kept.items() if tests}


def leave_out_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests, except the main cases of features."""
    kept = main_cases(items)
    _deselect([item for item in slow(items) if item not in kept], config, items)


def main_cases(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the quickest test of each file below ``FEATURES``, unless its record is longer than ``QUICK_LIMIT``."""
    files: defaultdict[str, dict[pytest.Item, float]] = defaultdict(dict)
    for item, seconds in seconds_of(items).items():
        if item.nodeid.startswith(FEATURES):
            files[_file(item.nodeid)][item] = seconds
    quickest = [min(tests.items(), key=lambda each: each[1]) for tests in files.values()]
    return {item for item, seconds in quickest if seconds <= QUICK_LIMIT}


def leave_to_the_other_server(half: int, seed: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests that the other server runs.

    ``half``: 0 for the first server, 1 for the second. ``seed`` chooses the server of each slow test, and of each file
    marked ``one_server``. Tests marked ``once`` stay, because only one of the servers runs them.
    """
    shared = {item: item.nodeid for item in slow(items)}
    shared |= {item: _file(item.nodeid) for item in items if item.get_closest_marker("one_server")}
    elsewhere = [
        item
        for item, name in shared.items()
        if not item.get_closest_marker("once") and Random(f"{seed} server of {name}").randrange(2) != half
    ]
    _deselect(elsewhere, config, items)


def seconds_of(items: list[pytest.Item]) -> dict[pytest.Item, float]:
    """Return the recorded seconds of each test; ``FAST_SECONDS`` if it has no record."""
    record = recorded()
    return {item: record.get(_file(item.nodeid), {}).get(_test(item.nodeid), FAST_SECONDS) for item in items}


def slow(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests whose record is longer than ``SLOW_SECONDS``."""
    return [item for item, seconds in seconds_of(items).items() if seconds > SLOW_SECONDS]


def _deselect(found: list[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=found)
    left_out = set(found)
    items[:] = [item for item in items if item not in left_out]


class Recorder:
    """A pytest plugin that writes the record, and fails a quick run with slow tests."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = existing(recorded())
        for nodeid, seconds in self._seconds.items():
            tests = found.setdefault(_file(nodeid), {})
            tests.pop(_test(nodeid), None)
            if seconds > SLOW_SECONDS:
                tests[_test(nodeid)] = round(seconds, 1)
        kept = {file: tests for file, tests in found.items() if tests}
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
