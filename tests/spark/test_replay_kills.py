"""SIGKILL of a replay and of a backfill, while consumers acknowledge at once and garbage collection follows."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, publish_many, subscribe
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Offset
from django_mqueue.spark import backfill, replay
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.processes import Worker, wait_until
from tests.support.subscribers import QUICK, in_log, settle_and_collect
from tests.support.threads import Background
from tests.support.waiting import SPARK_PATIENCE

from .commands import NO_DJANGO, SMALL, arguments_of, command
from .test_backfill import assert_given_all, done, publishing
from .test_replay import kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS, KEYS = 1200, ("ada", "bob", "cyd", None)
RATE, KILL_AFTER = 5, 20
"""At ``RATE`` messages per second, a run lasts four minutes. So the test kills it before its end on a slow machine."""


@pytest.fixture
def place(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> str:
    """Return the path of an archive whose messages are deleted from the log."""
    found = str(tmp_path / "archive")
    publish_many("orders", [OutgoingMessage(n, key=KEYS[n % 4]) for n in range(ROWS)])
    kept(spark, options, found)
    return found


def run(options: dict[str, str], *arguments: str) -> AbstractContextManager[Worker]:
    password = {"MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    words = (*arguments, *arguments_of(options), *SMALL)
    return command(("django_mqueue.spark",), words, {**NO_DJANGO, **password})


def kill(worker: Worker) -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@contextmanager
def eating(topic: str, group: str) -> Iterator[list[tuple[int, str | None, int]]]:
    """Run a consumer that acknowledges at once, and garbage collection. Yield the received (offset, key, payload)."""
    stop = threading.Event()
    got: list[tuple[int, str | None, int]] = []

    def work() -> None:
        with Subscription(topic, group) as worker:
            while not stop.wait(0.01):
                for delivery in worker.poll():
                    delivery.ack()
                    got.append((delivery.offset, delivery.key, delivery.payload))
                settle_and_collect(worker)

    thread = Background(work).start()
    try:
        yield got
    finally:
        stop.set()
        thread.result()


@override_settings(MQUEUE=QUICK)
@pytest.mark.parametrize(
    "alone",
    [pytest.param(False, marks=pytest.mark.long, id="for all"), pytest.param(True, id="for one group")],
)
@pytest.mark.exhaustive
def test_a_killed_replay_goes_on_and_stores_nothing_twice(
    spark: SparkSession, options: dict[str, str], place: str, alone: bool
) -> None:
    """When the replay runs again, the copies of the first run are already deleted from the log."""
    subscribe("again", "billing")
    target = ("--group", "billing") if alone else ()
    named = ("replay", "--topic", "orders", "--from", place, "--to", "again", "--name", "spring", *target)
    with eating("again", "billing") as got:
        with run(options, *named, "--rate", str(RATE), "--yes") as worker:
            wait_until(
                lambda: len(got) >= KILL_AFTER or not worker.running, "some are eaten", seconds=SPARK_PATIENCE
            )
            assert worker.running, "it ended before it could be killed"
            kill(worker)
        assert KILL_AFTER <= len(got) < ROWS, "it was over before it was killed"
        wait_until(lambda: not in_log("again"), "all of them are deleted")
        found = replay(
            spark, "orders", "spring", source=place, to="again", group="billing" if alone else None, options=options,
            dry_run=False,
        )  # fmt: skip
        assert isinstance(found, Replayed)
        assert (found.finished, found.total) == (True, ROWS)
        wait_until(lambda: len(got) >= ROWS and not in_log("again"), "all are eaten")
    assert Counter(number for _, _, number in got) == Counter(range(ROWS))
    # Sort by offset, because a group that is not strict may receive the messages of a key out of order.
    for key in ("ada", "bob", "cyd"):
        assert [number for _, name, number in sorted(got) if name == key] == [
            n for n in range(ROWS) if KEYS[n % 4] == key
        ]


@pytest.mark.long
@override_settings(MQUEUE=QUICK)
def test_a_killed_backfill_goes_on_and_the_group_is_given_each_message_once(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    """Meanwhile messages are published, and another group consumes them and runs garbage collection."""
    named = ("backfill", "--topic", "orders", "--group", "reports", "--from", place)
    subscribe("orders", "others")
    with publishing(ROWS, ROWS + 2000) as said, eating("orders", "others"):
        with run(options, *named, "--rate", str(RATE), "--yes") as worker:

            def some() -> bool:
                lanes = Offset.objects.filter(partition_key__startswith="backfill-lane")
                return sum(row.scan_offset for row in lanes) >= KILL_AFTER or not worker.running

            wait_until(some, "some are copied", seconds=SPARK_PATIENCE)
            assert worker.running, "it ended before it could be killed"
            kill(worker)
        assert Offset.objects.get(consumer_group="reports", partition_key="").paused
        found = done(backfill(spark, "orders", "reports", source=place, options=options, dry_run=False))
        assert found.upto
    assert_given_all(said[0], seconds=SPARK_PATIENCE)
