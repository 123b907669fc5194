"""The quick lane leaves out tests with a long recorded duration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.support import durations
from tests.support.durations import FEATURES, QUICK_LIMIT, SLOW_SECONDS, Recorder, existing, recorded


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, dict[str, float]]]:
    """Create a separate record next to a test file. Return a function that reads the record."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text("def slow(): ...\n\n\nclass TestIt:\n    async def other(self): ...\n")
    monkeypatch.setattr(durations, "RECORD", folder / "durations.json")
    return durations.recorded


def measured(recorder: Recorder, name: str, *seconds: float) -> None:
    for part in seconds:
        report = pytest.TestReport(
            f"tests/test_it.py::{name}", ("", 0, ""), {}, "passed", None, "call", duration=part
        )
        recorder.pytest_runtest_logreport(report)


class Session:
    exitstatus: int = 0


def finished(recorder: Recorder) -> int:
    session = Session()
    recorder.pytest_sessionfinish(session)  # type: ignore[arg-type]
    return session.exitstatus


def test_what_took_long_is_recorded_with_its_set_up(
    record: Callable[[], dict[str, dict[str, float]]],
) -> None:
    recorder = Recorder(quick=False)
    measured(recorder, "slow", 0.5, 3.0, 0.5)
    measured(recorder, "fast", 0.1)
    assert finished(recorder) == 0
    assert record() == {"tests/test_it.py": {"slow": 4.0}}


def test_what_has_become_fast_is_no_longer_recorded(
    record: Callable[[], dict[str, dict[str, float]]],
) -> None:
    durations.RECORD.write_text(json.dumps({"tests/test_it.py": {"slow": 4.0, "TestIt::other[a::b]": 9.0}}))
    recorder = Recorder(quick=False)
    measured(recorder, "slow", 0.1)
    finished(recorder)
    assert record() == {"tests/test_it.py": {"TestIt::other[a::b]": 9.0}}


def test_a_removed_test_is_no_longer_recorded(record: Callable[[], dict[str, dict[str, float]]]) -> None:
    kept = {"slow": 4.0, "TestIt::other": 9.0}
    gone = {"slowly": 1.0, "TestOther::other": 1.0, "TestIt::others[slow]": 1.0}
    durations.RECORD.write_text(json.dumps({"tests/test_it.py": kept | gone, "tests/gone.py": {"slow": 1.0}}))
    finished(Recorder(quick=False))
    assert record() == {"tests/test_it.py": kept}


@pytest.mark.always
def test_each_recorded_test_exists() -> None:
    """Without its record, a renamed test is in the quick lane, however slow it is."""
    assert existing(recorded()) == recorded()


def test_a_slow_test_fails_the_quick_lane_that_measures_it(
    record: Callable[[], dict[str, dict[str, float]]],
) -> None:
    recorder = Recorder(quick=True)
    measured(recorder, "usual", QUICK_LIMIT - 0.1)
    assert finished(recorder) == 0
    measured(recorder, "slow", QUICK_LIMIT + 0.1)
    assert finished(recorder) == pytest.ExitCode.TESTS_FAILED


def test_the_quick_lane_has_all_but_what_was_recorded_as_slow(
    record: Callable[[], dict[str, dict[str, float]]], request: pytest.FixtureRequest
) -> None:
    item = request.node
    file, name = durations._file(item.nodeid), durations._test(item.nodeid)
    for seconds, left in ((SLOW_SECONDS, [item]), (SLOW_SECONDS + 0.1, [])):
        durations.RECORD.write_text(json.dumps({file: {name: seconds}}))
        items = [item]
        durations.leave_out_slow(Config(), items)  # type: ignore[arg-type]
        assert items == left


def test_the_quick_lane_has_the_quickest_test_of_each_file_of_a_feature(
    record: Callable[[], dict[str, dict[str, float]]],
) -> None:
    """If it is slow, it may take up to ``QUICK_LIMIT``. In other folders, all slow tests are left out."""
    durations.RECORD.write_text(
        json.dumps(
            {
                f"{FEATURES}test_slow.py": {"slow": QUICK_LIMIT, "slower": QUICK_LIMIT + 0.1},
                f"{FEATURES}test_slower.py": {"slower": QUICK_LIMIT + 0.1},
                f"{FEATURES}test_fast.py": {"slow": SLOW_SECONDS + 0.1},
                "tests/admin/test_slow.py": {"slow": SLOW_SECONDS + 0.1},
            }
        )
    )
    names = [f"{file}::{test}" for file, tests in record().items() for test in tests]
    items = [Named(name) for name in (*names, f"{FEATURES}test_fast.py::fast")]
    durations.leave_out_slow(Config(), items)  # type: ignore[arg-type]
    assert {item.nodeid for item in items} == {
        f"{FEATURES}test_slow.py::slow",
        f"{FEATURES}test_fast.py::fast",
    }


def test_two_servers_share_the_slow_tests(
    record: Callable[[], dict[str, dict[str, float]]], request: pytest.FixtureRequest
) -> None:
    """A slow test runs on one server, which the seed chooses. A fast test, or a test marked ``once``, runs on both."""
    item = request.node
    file, name = durations._file(item.nodeid), durations._test(item.nodeid)
    durations.RECORD.write_text(json.dumps({file: {name: SLOW_SECONDS + 0.1}}))
    seeds = [str(number) for number in range(20)]
    first, second = ([runs_on(half, item, seed) for seed in seeds] for half in (0, 1))
    assert [not there for there in first] == second
    assert set(first) == {True, False}
    item.add_marker(pytest.mark.once)
    assert all(runs_on(0, item, seed) for seed in seeds)
    del item.own_markers[-1]
    durations.RECORD.write_text(json.dumps({file: {name: SLOW_SECONDS}}))
    assert all(runs_on(half, item, seed) for half in (0, 1) for seed in seeds)


def test_a_sample_has_an_eighth_of_the_slow_tests_and_those_that_changed(
    record: Callable[[], dict[str, dict[str, float]]],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = request.node
    file, name = durations._file(item.nodeid), durations._test(item.nodeid)
    monkeypatch.setattr(
        conftest,
        "changed_files",
        {"with changes": {file}, "with documents": {"docs/x.md"}, "without": set()}.get,
    )
    durations.RECORD.write_text(json.dumps({file: {name: SLOW_SECONDS + 0.1}}))
    seeds = [str(number) for number in range(100)]
    assert 2 < sum(is_taken(item, seed) for seed in seeds) < 30
    assert all(is_taken(item, seed, base="with changes") for seed in seeds)
    assert all(is_taken(item, seed, quick=True) for seed in seeds), "the quick lane has chosen it"
    item.add_marker(pytest.mark.always("docs/"))
    assert not all(is_taken(item, seed) for seed in seeds)
    assert all(is_taken(item, seed, base="with documents") for seed in seeds)
    del item.own_markers[-1]
    item.add_marker(pytest.mark.always)
    assert all(is_taken(item, seed) for seed in seeds)
    del item.own_markers[-1]
    durations.RECORD.write_text(json.dumps({file: {name: SLOW_SECONDS}}))
    assert all(is_taken(item, seed) for seed in seeds)
    item.add_marker(pytest.mark.exhaustive)
    assert 2 < sum(is_taken(item, seed, base="with changes") for seed in seeds) < 30


def is_taken(item: pytest.Item, seed: str, base: str = "without", quick: bool = False) -> bool:
    items, config = [item], Config()
    config.option = SimpleNamespace(base=base, sample=seed, quick=quick)
    conftest._take_a_part(config, items)  # type: ignore[arg-type]
    return bool(items)


def runs_on(half: int, item: pytest.Item, seed: str) -> bool:
    items = [item]
    durations.leave_to_the_other_server(half, seed, Config(), items)  # type: ignore[arg-type]
    return bool(items)


@dataclass(frozen=True)
class Named:
    """A test of which only the name is needed."""

    nodeid: str


class Hook:
    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Receives the deselected tests."""


class Config:
    hook = Hook()
    option = SimpleNamespace()
