"""The counts and messages of ``tests/run.py``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from example_project.environment import unpacked
from example_project.environment.errors import EnvironmentProblem
from example_project.environment.interpreters import running
from tests.support.runner import lanes, plan
from tests.support.runner.lanes import Lane
from tests.support.runner.options import Options, parse
from tests.support.runner.outcome import Outcome, missing, of_pytest, table, totals
from tests.support.runner.servers import Server
from tests.support.sampling import first_of, sample, timed_sample

TESTS = Path(lanes.__file__).parents[2]
REPORT = (
    """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/></testsuites>"""
)


def test_counts_come_from_the_report_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = of_pytest("Python", "mariadb", 1, report, 3.0)
    assert (outcome.ok, outcome.passed, outcome.failed, outcome.skipped) == (False, 4, 3, 3)


def test_a_pytest_that_breaks_off_counts_as_a_failure(tmp_path: Path) -> None:
    outcome = of_pytest("Python", "mariadb", 139, tmp_path / "none.xml", 3.0)
    assert (outcome.ok, outcome.failed, outcome.note) == (False, 1, "pytest ended with 139")


def test_totals_are_over_all_runs() -> None:
    outcomes = [Outcome("a", "x", True, 3, 0, 0), Outcome("b", "y", False, 4, 1, 0)]
    assert totals(outcomes) == "7 passed, 1 failed"
    assert totals([*outcomes, Outcome("c", "z", True, 1, 0, 2)]) == "8 passed, 1 failed, 2 skipped"


def test_a_missing_server_is_said_loudly_with_its_reason() -> None:
    outcomes = [Outcome("Python 3.11", "mysql", None, note="no network\nreally"), Outcome("a", "b", True, 1)]
    text = missing(outcomes)
    assert "NOT RUN: Python 3.11 on mysql" in text
    assert "no network" in text
    assert "really" in text
    assert "NOT RUN" in table(outcomes)
    assert missing(outcomes[1:]) == ""


@pytest.mark.parametrize(
    ("asked", "kind", "ok"), [("all", "mysql", None), ("all", "mariadb", False), ("mysql", "mysql", False)]
)
def test_only_a_missing_mysql_that_nobody_asked_for_is_no_failure(
    asked: str, kind: str, ok: bool | None
) -> None:
    problem = EnvironmentProblem("the archive is away")
    outcome = plan._unavailable("Python 3.11", kind, problem, parse(["--server", asked]))
    assert outcome.ok is ok
    assert outcome.note == "the archive is away"


def test_further_arguments_go_to_pytest() -> None:
    assert parse(["--server", "mysql", "tests/test_models", "-k", "keys", "-x"]) == Options(
        quick=False, ci=False, server="mysql", pytest=("tests/test_models", "-k", "keys", "-x")
    )
    assert parse(["--quick"]).everything
    assert not parse(["--spark"]).everything


@pytest.mark.parametrize(
    ("arguments", "server"),
    [([], "all"), (["--ci"], "all"), (["--quick"], "mariadb"), (["--quick", "--server", "all"], "all")],
)
def test_the_quick_lane_is_on_mariadb_unless_told_otherwise(arguments: list[str], server: str) -> None:
    assert parse(arguments).server == server


def test_without_apt_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="apt-get is missing"):
        unpacked.unpacked("mysql-server-core")


def test_the_default_is_a_sample_that_the_commit_or_a_seed_chooses() -> None:
    lane = Lane("main", running())
    assert sample_of(lane.arguments(parse([]))) == lanes.commit("HEAD")
    assert sample_of(lane.arguments(parse(["--quick"]))) == lanes.commit("HEAD")
    assert sample_of(lane.arguments(parse(["--seed", "7"]))) == "7"
    assert sample_of(lane.arguments(parse(["--full"]))) is None
    assert sample_of(lane.arguments(parse(["tests/protocol/boundaries"]))) is None


@pytest.mark.parametrize(
    "chosen", [["--full"], ["--spark"], ["tests/protocol/model"], ["--quick", "-k", "x"]]
)
def test_a_seed_also_counts_where_no_sample_is_taken(chosen: list[str]) -> None:
    """Each full run has new stories and faults. Chosen tests have new ones only with ``--seed``."""
    lane = Lane("main", running())
    words = lane.arguments(parse([*chosen, "--seed", "7"]))
    assert words[words.index("--seed") + 1] == "7"
    assert sample_of(words) is None
    words = lane.arguments(parse(chosen))
    assert words.count("--seed") == words.count(lanes.commit("HEAD")) == (chosen == ["--full"])


@pytest.mark.parametrize(
    ("arguments", "servers", "halves"),
    [
        ([], 2, {"main": 0, "newest": 1, "second": 1, "spark": None}),
        ([], 1, {"main": None, "newest": None, "spark": None}),
        (["--full"], 2, {}),
    ],
)
def test_two_servers_share_the_slow_tests_of_a_sample(
    arguments: list[str], servers: int, halves: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, int | None] = {}

    def run_lane(lane: Lane, server: Server, options: Options, output: Path | None = None) -> Outcome:
        words = lane.arguments(options)
        if not options.full or "--half" in words:
            found[lane.name] = int(words[words.index("--half") + 1]) if "--half" in words else None
        return Outcome(lane.title, server.name, True)

    monkeypatch.setattr(plan, "run_lane", run_lane)
    monkeypatch.setattr(plan, "newest_other", lambda interpreter: interpreter)
    both = [Server("mariadb", "mariadb 10.11"), Server("mysql", "mysql 9.7")]
    for track in plan._tracks(Lane("main", running()), both[:servers], parse(arguments)):
        for work in track:
            work(None)
    assert found == halves


def sample_of(arguments: list[str]) -> str | None:
    return arguments[arguments.index("--sample") + 1] if "--sample" in arguments else None


def test_every_folder_with_tests_is_in_the_default_lanes() -> None:
    """No folder is forgotten."""
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert folders == set(lanes.ALL)
    assert set(lanes.PUBLIC) | set(lanes.INTERNAL) | {"unit", "docs_and_example", "proof"} == folders


def test_a_sample_is_the_same_for_the_same_seed_and_subject() -> None:
    choices = range(600)
    some = sample("seed", "walk", choices, 6, always={0, 599})
    assert some == sample("seed", "walk", choices, 6, always={0, 599}) == sorted(some)
    assert {0, 599} <= set(some)
    assert 50 < len(some) < 200
    assert some != sample("another", "walk", choices, 6)
    assert some != sample("seed", "another", choices, 6)
    assert sample(None, "walk", choices, 6) == list(choices)
    assert first_of(None, "walk", 6) == 0
    assert {first_of(str(number), "walk", 6) for number in range(100)} == set(range(6))


def test_a_timed_sample_takes_its_part_of_the_time_whatever_the_seed() -> None:
    seconds = {f"test {n}": 0.1 + n % 60 for n in range(600)}
    longest, part = 60, sum(seconds.values()) / 8
    counts = Counter[str]()
    for seed in range(400):
        taken = timed_sample(str(seed), "part", seconds, 8)
        assert taken == timed_sample(str(seed), "part", seconds, 8)
        assert abs(sum(seconds[name] for name in taken) - part) <= longest
        counts.update(taken)
    assert set(counts) == set(seconds), "each test is in a sample"
    assert 25 <= min(counts.values()) <= max(counts.values()) <= 90
