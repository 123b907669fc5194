"""The pure parts of the benchmarks: figures, targets, tables, and the marks in a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.report import tables, writing
from tests.benchmarks.report.results import BROKERS, Results
from tests.benchmarks.speed.figures import medians, per_message, percentiles
from tests.benchmarks.speed.profiling import described
from tests.benchmarks.speed.scenarios import DRAINS, PARTITIONS, RATES
from tests.benchmarks.targets import TARGETS, Target

RATE = {"messages per second": 1000.0}


def drain(worker: float, server: float) -> dict[str, float]:
    return {**RATE, "worker CPU ms per message": worker, "server CPU ms per message": server}


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([float(value) for value in range(1, 101)]) == {
        "p50 ms": 50,
        "p95 ms": 95,
        "p99 ms": 99,
    }
    assert percentiles([7.0]) == {"p50 ms": 7, "p95 ms": 7, "p99 ms": 7}
    assert percentiles([3.0, 1.0, 2.0])["p50 ms"] == 2


def test_costs_per_message() -> None:
    cost = {"seconds": 2.0, "worker_cpu": 1.0, "server_cpu": 0.5}
    of_a_broker = {"worker CPU ms per message": 10, "server CPU ms per message": 5}
    assert per_message(cost, 100) == of_a_broker
    of_a_server = per_message({**cost, "statements": 300, "commits": 50}, 100)
    assert of_a_server == {"statements per message": 3, "commits per message": 0.5, **of_a_broker}


def test_medians_of_each_figure() -> None:
    assert medians([{"a": 1, "b": 9}, {"a": 3, "b": 7}, {"a": 2, "b": 8}]) == {"a": 2, "b": 8}


@pytest.mark.parametrize(
    ("worker", "server", "limit"),
    [(0.95, 0.1, "the worker's Python"), (0.85, 0.96, "the machine's cores"), (0.5, 0.5, "waiting")],
)
def test_the_limit_of_a_drain(worker: float, server: float, limit: str) -> None:
    assert tables.limit(drain(worker, server), cores=2).startswith(limit)


def test_targets() -> None:
    measured = {"a": {"ms": 8.0}, "b": {"ms": 16.0}}
    for target, value, met in (
        (Target("a", "ms", 8), 8, True),
        (Target("a", "ms", 7), 8, False),
        (Target("a", "ms", 7, least=True), 8, True),
        (Target("a", "ms", 0.5, least=True, of="b"), 0.5, True),
        (Target("a", "ms", 0.6, least=True, of="b"), 0.5, False),
    ):
        assert target.value(measured) == value
        assert target.met(value) is met
    assert Target("c", "ms", 1).value(measured) is None
    assert Target("a", "ms", 1, of="c").value(measured) is None


def test_each_target_is_of_a_scenario() -> None:
    speed = {drain.name for drain in DRAINS} | {f"latency at {rate}/s" for rate in RATES}
    speed |= {f"idle with {count:,} partitions" for count in PARTITIONS}
    others = {target.scenario for target in TARGETS} - speed
    assert all(name.startswith(("scale: ", "publish")) for name in others), others


def test_a_missed_target_is_bold() -> None:
    results = Results(servers={"mysql": "9.7.1"})
    results.begin("mysql", "batches of 200", 1.0)
    results.add("mysql", "batches of 200", {"of plain SQL": 0.75})
    assert tables.targets(results).splitlines()[2:] == [
        "| batches of 200 | of plain SQL | at least 1 | **0.75** |"
    ]
    assert tables.missed(results.measured("mysql")) == {"batches of 200"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (12345.6, "12,346"), (100.4, "100"), (3, "3"), (0.5, "0.5"), (42.19, "42.2")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert tables.number(value) == text


def test_the_core_table_has_each_server_and_the_brokers() -> None:
    results = Results(servers={"mariadb": "10.11.19-MariaDB", "mysql": "9.7.1"})
    for kind, rate in (("mariadb", 1000.0), ("mysql", 900.0)):
        for name in ("one message a call", "huey (SqlHuey)"):
            results.begin(kind, name, 1.0)
            results.add(kind, name, {"messages per second": rate})
    results.begin(BROKERS, "Celery, Redis, default settings", 1.0)
    results.add(BROKERS, "Celery, Redis, default settings", {"messages per second": 700.0})
    lines = tables.core(results).splitlines()
    assert lines[0] == "| Messages per second | MariaDB 10.11 | MySQL 9.7 |"
    assert lines[2:] == [
        "| django_mqueue, one message a call | 1,000 | 900 |",
        "| huey (SqlHuey) | 1,000 | 900 |",
        "| Celery, Redis, default settings | 700 | 700 |",
    ]
    lines = tables.overview(results).splitlines()
    assert lines[0].startswith("|  | MariaDB 10.11: messages/s | MySQL 9.7: messages/s | MariaDB 10.11: p50")
    assert lines[2:] == [
        "| django_mqueue | 1,000 | 900 | - | - |",
        "| huey (SqlHuey) | 1,000 | 900 | - | - |",
        "| Celery, Redis, default settings | 700 | 700 | - | - |",
    ]


def test_a_new_run_of_a_scenario_replaces_its_rounds_only(tmp_path: Path) -> None:
    results = Results()
    for name in ("a", "b"):
        results.begin("mariadb", name, 1.0)
        results.add("mariadb", name, {"messages per second": 1.0})
    results.save(tmp_path / writing.FILE)
    loaded = Results.load(tmp_path / writing.FILE)
    assert loaded == results
    loaded.begin("mariadb", "b", 0.1)
    assert list(loaded.measured("mariadb")) == ["a"]
    loaded.add("mariadb", "b", {"messages per second": 2.0})
    assert loaded.measured("mariadb") == {
        "a": {"messages per second": 1.0},
        "b": {"messages per second": 2.0},
    }


def test_only_the_text_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{writing.BEGIN}\nold\n{writing.END}\nafter\n")
    for new in ("first", "second"):
        writing.replace(page, new)
    assert page.read_text() == f"before\n{writing.BEGIN}\n\nsecond\n\n{writing.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="add them"):
        writing.replace(page, "new")


def test_a_frame_outside_this_project_is_not_in_a_profile() -> None:
    import sys

    assert described(sys._getframe()) is None
