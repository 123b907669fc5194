"""The flights' whole way: log, streaming query, archive, deletion, replay; and the same answers at each place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from django_mqueue import MQueueError, subscribe, unsubscribe
from django_mqueue.inspect import messages
from django_mqueue.spark import Archive, archive, replay
from example_project.workers import Workers

from .carriers import COLUMNS, by_hour, flights_of
from .events import ARCHIVE, CARRIERS, GROUPS, REPLAYED, TOPIC
from .hours import Hours, computed_hours, different_hours, expected_hours, kept_hours
from .models import Run
from .progress import Progress, consumed
from .publishing import forget_made
from .report import check
from .streaming import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = 10_000
"""Messages of a batch of the archive's; far more, in earnest."""

LOOK_EVERY = 0.5
PATIENCE = 120.0
"""Seconds in which workers must have come forward."""

SHOWN = 3


class Stuck(MQueueError):
    """The workers do not come to their end."""


def register() -> None:
    """All who read the flights, before any is published; and those who read them once they are replayed."""
    for topic, groups in ((TOPIC, (CARRIERS, ARCHIVE)), (REPLAYED, GROUPS)):
        for group in groups:
            unsubscribe(topic, group)
            subscribe(topic, group, start="latest")


@dataclass
class Pipeline:
    """A run's steps, in their order. ``say`` is told what each came to, ``wrong`` is all that differs from the file."""

    spark: SparkSession
    run: Run
    workers: Workers
    place: Path
    say: Callable[[str], object]
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hours: Hours = expected_hours(self.run.flights)
        self.folder = str(self.place / "archive")

    def run_all(self) -> int:
        """How many answers are wrong."""
        self.stream()
        self.consume(TOPIC)
        self.archive()
        self.wait_until_deleted()
        self.replay()
        self.consume(REPLAYED)
        return len(self.wrong)

    def stream(self) -> None:
        """The streaming query reads all that was published, and keeps its table."""
        start(self.spark, self.run.pk, self.place / "checkpoint", drain=True).awaitTermination()
        kept = kept_hours(self.run)
        self._compare(
            f"Streaming query: {len(kept):,} hours of carriers kept in a table",
            different_hours(self.hours, kept),
        )

    def consume(self, topic: str) -> None:
        """The workers' two groups handle all of a topic."""
        progress = Progress(self.run.flights, *GROUPS)
        try:
            self._wait(lambda: self._unconsumed(progress), f"the workers consume {topic}")
        finally:
            progress.close()
        self._compare(
            f"Topic {topic}: {self.run.flights:,} messages consumed by {' and '.join(GROUPS)}, in the order of keys",
            check(self.run).wrong,
        )

    def archive(self) -> None:
        """All of the topic into Parquet files; and the answer from these."""
        archive(self.spark, TOPIC, self.folder, batch_rows=AT_ONCE)
        kept = Archive.open(self.folder)
        files, history = kept.entries(TOPIC), kept.entries(TOPIC, "deliveries")
        size = sum(each.bytes for each in (*files, *history)) / 1e6
        self._compare(
            f"Archive: {sum(each.rows for each in files):,} messages and {sum(each.rows for each in history):,}"
            f" deliveries in {len(files) + len(history)} files of {size:.1f} MB; the hours computed from there",
            different_hours(self.hours, self._computed(kept.frame(self.spark, TOPIC))),
        )

    def wait_until_deleted(self) -> None:
        """The workers delete what all groups are done with, the archive among them."""
        self._wait(_oldest, "the log is emptied")
        self.say(f"Log: the topic {TOPIC} is empty, all groups were done with it.")

    def replay(self) -> None:
        """The archive's messages once more, to a topic that holds none, for groups that have made nothing yet."""
        forget_made()
        replay(self.spark, TOPIC, f"flights {self.run.token}", source=self.folder, to=REPLAYED, dry_run=False)
        log = self.spark.read.format("mqueue").schema(COLUMNS).option("topic", REPLAYED).load()
        self._compare(
            f"Replay: from the archive to the topic {REPLAYED}; the hours computed from there",
            different_hours(self.hours, self._computed(log)),
        )

    def _computed(self, found: DataFrame) -> Hours:
        return computed_hours(by_hour(flights_of(self.run.pk, found)).collect())

    def _compare(self, what: str, differences: Iterable[str]) -> None:
        found = list(differences)
        self.say(f"{what}: {f'WRONG in {len(found):,} places' if found else 'as the file says'}.")
        for line in found[:SHOWN]:
            self.say(f"  {line}")
        self.wrong += found

    def _unconsumed(self, progress: Progress) -> int:
        done = consumed(self.run)
        progress.show(done)
        return self.run.flights - min(done.values())

    def _wait(self, left: Callable[[], int], what: str) -> None:
        """Until nothing is left; as long as what is left changes."""
        before, deadline = -1, 0.0
        while found := left():
            if found != before:
                before, deadline = found, time.monotonic() + PATIENCE
            if not self.workers.running():
                raise Stuck("the workers have ended")
            if time.monotonic() > deadline:
                raise Stuck(f"nothing has changed for {PATIENCE:g} s: {what}")
            time.sleep(LOOK_EVERY)


def _oldest() -> int:
    """The offset of the first message; 0 when there is none."""
    found = messages(TOPIC, limit=1).messages
    return found[0].offset if found else 0
