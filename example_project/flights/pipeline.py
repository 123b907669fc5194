"""The flights' whole way: log, stream, files, deletion, sink, replay, backfill; the same answers at each place.

Export and archive are written by ``manage.py mqueue_spark``, as a user or a timer would start it. The other steps, its
other verbs among them, are called from Python, in one session of Spark's.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from django_mqueue import MQueueError, purge, subscribe, unsubscribe
from django_mqueue.inspect import groups, messages
from django_mqueue.spark import Archive, backfill, collect_all, compact, replay, report, verify
from example_project.environment.layout import ROOT
from example_project.environment.processes import forward
from example_project.workers import Workers

from .carriers import COLUMNS, by_day, by_hour, flights_of
from .days import Fate, days_of, different_days, fates_of, letters_of, out_of_order
from .events import ARCHIVE, BULLETINS, CARRIERS, DAYS, GROUPS, LATE, REPLAYED, TOPIC
from .exported import COLUMNS as EXPORTED
from .exported import carriers_of, different_carriers
from .hours import Hours, Totals, computed_hours, different_hours, expected_hours, kept_hours
from .models import Run
from .progress import Progress, consumed
from .publishing import forget_made
from .report import check
from .sink import deliveries, letters, publish_days, stored_days, times
from .streaming import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 5
"""Batches of the archive run, so that there are files to join. By default a batch is a million messages."""

LOOK_EVERY = 0.5
PATIENCE = 120.0
"""Seconds in which workers must have come forward."""

SHOWN = 3


class Stuck(MQueueError):
    """The workers do not come to their end."""


class VerbFailed(MQueueError):
    """A run of ``manage.py mqueue_spark`` has ended badly, and has said why."""


def register() -> None:
    """All who read the flights, before any is published; and those who read what is made of them."""
    for topic, readers in ((TOPIC, (CARRIERS, ARCHIVE)), (REPLAYED, GROUPS), (DAYS, (BULLETINS,))):
        for group in readers:
            unsubscribe(topic, group)
            subscribe(topic, group, start="latest")
    purge(DAYS)


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
        self.days = days_of(self.hours)
        self.folder = str(self.place / "archive")

    def run_all(self) -> int:
        """How many answers are wrong."""
        self.stream()
        self.consume(TOPIC)
        self.export()
        self.archive()
        self.wait_until_deleted()
        self.compact()
        self.publish()
        self.bulletins()
        self.replay()
        self.consume(REPLAYED)
        self.backfill()
        self.report()
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

    def export(self) -> None:
        """What the topic holds, for whoever has neither Spark nor the queue."""
        folder = self.place / "export"
        self._command("export", "--topic", TOPIC, "--columns", EXPORTED, "--to", str(folder))
        carriers = carriers_of(self.run.pk, folder)
        self._compare(
            f"Export: {carriers.total():,} flights of {len(carriers)} carriers, counted by Arrow alone",
            different_carriers(self.hours, carriers),
        )

    def archive(self) -> None:
        """All of the topic into Delta tables; and the answer from these."""
        rows = -(-self.run.flights // BATCHES)
        self._command("archive", "--topic", TOPIC, "--to", self.folder, "--batch-rows", str(rows))
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

    def compact(self) -> None:
        """Only the archive has the flights now. Join its files, and read and check all of it."""
        (done,) = compact(self.spark, self.folder)
        (found,) = verify(self.spark, self.folder)
        self._compare(
            f"Compacted and verified: {done.files} files are {done.files_now}; {found.rows:,} rows read",
            found.problems,
            "as the tables say",
        )

    def publish(self) -> None:
        """Each carrier's days, computed from the archive, become messages; and when it is done again, no more."""
        days = by_day(flights_of(self.run.pk, Archive.open(self.folder).frame(self.spark, TOPIC)))
        publish_days(self.run, days)
        publish_days(self.run, days)
        found = collect_all(stored_days(self.spark, self.run).orderBy("offset"))
        stored = [((row.carrier, row.day), Totals(*(row[name] for name in Totals._fields))) for row in found]
        self._compare(
            f"Sink: days of carriers computed from the archive, published twice to the topic {DAYS}, {len(stored):,}"
            " messages there",
            [*different_days(self.days, dict(stored)), *out_of_order(day for day, _ in stored)],
        )

    def bulletins(self) -> None:
        """The workers tell carriers of these days. What became of the messages are tables, too."""
        self._wait(_oldest_day, "the workers tell carriers of their days")
        found = deliveries(self.spark, self.run)
        fates = {(row.carrier, row.day): Fate(row.done, row.failures) for row in collect_all(found)}
        self._compare(
            f"Deliveries: {BULLETINS} is done with {sum(fate.done or 0 for fate in fates.values()):,} days",
            different_days(fates_of(self.days), fates),
        )
        for row in collect_all(times(found)):
            self.say(
                f"  {row.days:,} at attempt {row.attempts}: half of them within {_seconds(row.half)} of publication,"
                f" all within {_seconds(row.all)}"
            )
        dead = {(row.carrier, row.day): row.error for row in collect_all(letters(self.spark, self.run))}
        errors = Counter(dead.values())
        self._compare(
            f"Dead letters: {', '.join(f'{count:,} by {name}' for name, count in errors.items()) or 'none'}",
            different_days(letters_of(self.days), dead),
        )

    def replay(self) -> None:
        """The archive's messages once more, to a topic that holds none, for groups that have made nothing yet."""
        forget_made()
        replay(self.spark, TOPIC, f"flights {self.run.token}", source=self.folder, to=REPLAYED, dry_run=False)
        log = self.spark.read.format("mqueue").schema(COLUMNS).option("topic", REPLAYED).load()
        self._compare(
            f"Replay: from the archive to the topic {REPLAYED}; the hours computed from there",
            different_hours(self.hours, self._computed(log)),
        )

    def backfill(self) -> None:
        """A group comes that nobody knew of. The log is empty; it is given what the archive has, and then the log."""
        done = backfill(self.spark, TOPIC, LATE, source=self.folder, dry_run=False)
        # The copies are for this group alone.
        log = (
            self.spark.read.format("mqueue")
            .schema(COLUMNS)
            .options(topic=TOPIC, includeTargeted="true")
            .load()
        )
        self._compare(
            f"Backfill: {done.stored:,} messages from the archive for a new group, {LATE}; the hours computed from it",
            different_hours(self.hours, self._computed(log)),
        )

    def report(self) -> None:
        """What happened to the flights, in numbers, over archive and log as one; and a page with drawings."""
        found, page = report(self.spark, (TOPIC, DAYS), archive=self.folder), self.place / "report.html"
        page.write_text(found.to_html(), encoding="utf-8")
        unsubscribe(TOPIC, LATE)  # Nobody consumes for it here, and deletion would wait for it.
        by_name = {one.group: one for one in found.groups}
        counts = {name: (by_name[name].finished, by_name[name].dead) for name in GROUPS}
        self._compare(
            f"Report: over archive and log, {' and '.join(GROUPS)} finished {self.run.flights:,} flights each",
            [
                f"{name}: {done:,} finished, {dead:,} dead"
                for name, (done, dead) in counts.items()
                if (done, dead) != (self.run.flights, 0)
            ],
        )
        for name in GROUPS:
            took = by_name[name].ack
            self.say(
                f"  {name}: half of them within {_seconds(took.p50)} of publication, 99 % within {_seconds(took.p99)}"
            )
        self.say(f"  {LATE}: {by_name[LATE].lag:,} messages wait for it")
        self.say(f"  all of it, with drawings: {page.absolute()}")

    def _command(self, verb: str, *arguments: str) -> None:
        """As somebody would type it; it starts a Spark of its own."""
        line = ["mqueue_spark", verb, *arguments, "--master", "local[2]"]
        self.say(f"$ python manage.py {shlex.join(line)}")
        if code := forward([sys.executable, ROOT / "manage.py", *line], env=os.environ, cwd=Path.cwd()):
            raise VerbFailed(f"manage.py mqueue_spark {verb} has ended with exit code {code}")

    def _computed(self, found: DataFrame) -> Hours:
        return computed_hours(collect_all(by_hour(flights_of(self.run.pk, found))))

    def _compare(self, what: str, differences: Iterable[str], right: str = "as the file says") -> None:
        found = list(differences)
        self.say(f"{what}: {f'WRONG in {len(found):,} places' if found else right}.")
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


def _oldest_day() -> int:
    """The offset of the first that the group is not done with; 0 when there is none."""
    return next((one.oldest or 0 for one in groups(DAYS) if one.group == BULLETINS), 0)


def _seconds(milliseconds: int | None) -> str:
    return "?" if milliseconds is None else f"{milliseconds / 1000:.1f} s"
