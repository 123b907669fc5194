"""Run all commands of the example in a user's order.

Log, streaming query, export, archive, garbage collection, daily totals with their deliveries, replay, consuming again,
backfill of a new group, and report.
"""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.docs_and_example.example.conftest import Example
from tests.spark.jobs import defaults

FLIGHTS = 600


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.exhaustive
def test_the_same_answers_come_out_at_each_place(example: Example, tmp_path: Path) -> None:
    example.environment["SPARK_CONF_DIR"] = str(defaults(tmp_path))
    with example.start("pipeline", "--flights", str(FLIGHTS), "--place", str(tmp_path)) as process:
        try:
            output, _ = process.communicate(timeout=850)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
            raise AssertionError(f"not at its end:\n{output}") from None
    assert process.returncode == 0, output
    said = [line for line in output.splitlines() if ": as the file says" in line]
    begins = [
        "Streaming query",
        "Topic flights",
        "Export",
        "Archive",
        "Sink",
        "Deliveries",
        "Dead letters",
        "Replay",
        "Topic flights-replayed",
        "Backfill",
        "Report",
    ]
    assert [line.partition(":")[0] for line in said] == begins, output
    assert (
        f"$ python manage.py mqueue_spark export --topic flights --columns headers,payload --to {tmp_path}"
        in output
    )
    assert re.search(rf"Export: {FLIGHTS} flights of \d+ carriers, counted by Arrow alone: as", output), (
        output
    )
    assert f"$ python manage.py mqueue_spark archive --topic flights --to {tmp_path}" in output
    assert f"\nflights: {FLIGHTS} messages, 0 dead letters, {2 * FLIGHTS:,} deliveries in " in output
    assert f"Archive: {FLIGHTS} messages and {2 * FLIGHTS:,} deliveries" in output
    assert "Log: the topic flights is empty" in output
    assert re.search(r"Compacted and verified: \d+ files are \d+; 1,800 rows read: as the tables say", output)
    assert "published twice to the topic carrier-days, 14 messages there" in output
    assert "Deliveries: bulletins is done with 14 days" in output
    for days, attempt in ((1, 1), (13, 2)):
        assert re.search(
            rf"\n  {days} at attempt {attempt}: half of them within [\d.]+ s of publication, all within [\d.]+ s\n",
            output,
        ), output
    assert "Dead letters: 1 by NoNumber: as" in output
    assert f"Backfill: {FLIGHTS} messages from the archive for a new group, latecomers" in output
    assert "WRONG" not in output
    assert re.search(r"board: half of them within [\d.]+ s of publication", output), output
    assert f"latecomers: {FLIGHTS} messages wait for it" in output
    (page,) = tmp_path.glob("*/report.html")
    assert f"all of it, with drawings: {page}" in output
    assert "<svg" in (text := page.read_text(encoding="utf-8"))
    assert "latecomers" in text
    assert "example_project.flights.bulletins.NoNumber" in text


@pytest.mark.spark
def test_more_flights_than_are_in_order_are_refused(example: Example) -> None:
    code, output = example.run("pipeline", "--flights", "all")
    assert code == 1
    assert "at most 111,296 flights, not 336,776" in output


@pytest.mark.usefixtures("flights")
def test_each_hour_that_differs_is_told() -> None:
    from example_project.flights.hours import Totals, different_hours

    noon, one = datetime(2013, 1, 1, 12, tzinfo=UTC), Totals(1, 0, 1, 3)
    want = {("AA", noon): one, ("UA", noon): one}
    assert list(different_hours(want, dict(want))) == []
    assert list(different_hours(want, {("AA", noon): one._replace(delay=4), ("DL", noon): one})) == [
        f"AA, 2013-01-01 12:00: {one._replace(delay=4)}, should be {one}",
        f"DL, 2013-01-01 12:00: {one}, should be missing",
        f"UA, 2013-01-01 12:00: missing, should be {one}",
    ]
