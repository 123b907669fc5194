"""The complete pipeline of the flights: log, stream, files, deletion, sink, replay and backfill.

Each step must give the same answers. ``manage.py mqueue_spark`` writes the export and the archive, as a user or a timer
would start it. The other steps are calls from Python, in one Spark session.
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
from .days import Result, days_of, dead_letters_of, different_days, out_of_order, results_of
from .events import ARCHIVE, BULLETINS, CARRIERS, DAYS, GROUPS, LATE, REPLAYED, TOPIC
from .exported import COLUMNS as EXPORTED
from .exported import carriers_of, different_carriers
from .hours import Hours, Totals, computed_hours, different_hours, expected_hours, kept_hours
from .models import Run
from .progress import Progress, consumed
from .publishing import delete_results
from .report import check
from .sink import dead_letters, deliveries, publish_days, stored_days, times
from .streaming import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 5
"""The archive run makes this number of batches, so that there are files to compact. The default is a batch per million
messages."""

LOOK_EVERY = 0.5
TIMEOUT = 120.0
"""Seconds without progress after which the workers count as stuck."""

SHOWN = 3


class Stuck(MQueueError):
    """The workers have ended, or make no progress."""


class VerbFailed(MQueueError):
    """A run of ``manage.py mqueue_spark`` has failed. Its output says why."""


def register() -> None:
    """Register the groups of the later steps before any flight is published."""
    for topic, readers in ((TOPIC, (CARRIERS, ARCHIVE)), (REPLAYED, GROUPS), (DAYS, (BULLETINS,))):
        for group in readers:
            unsubscribe(topic, group)
            subscribe(topic, group, start="latest")
    purge(DAYS)


@dataclass
class Pipeline:
    """The steps of a run, in order.

    ``say``: called with the result of each step. ``wrong``: all differences from the file.
    """

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
        """Run all steps and return the number of wrong answers."""
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
        """Run the streaming query over all published flights, and compare its table with the file."""
        start(self.spark, self.run.pk, self.place / "checkpoint", drain=True).awaitTermination()
        kept = kept_hours(self.run)
        self._compare(
            f"Streaming query: {len(kept):,} hours of carriers kept in a table",
            different_hours(self.hours, kept),
        )

    def consume(self, topic: str) -> None:
        """Wait until the workers' two groups have handled all messages of a topic, and check the results."""
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
        """Export the topic for readers without Spark and without the queue, and compare the exported files."""
        folder = self.place / "export"
        self._command("export", "--topic", TOPIC, "--columns", EXPORTED, "--to", str(folder))
        carriers = carriers_of(self.run.pk, folder)
        self._compare(
            f"Export: {carriers.total():,} flights of {len(carriers)} carriers, counted by Arrow alone",
            different_carriers(self.hours, carriers),
        )

    def archive(self) -> None:
        """Archive the topic into Delta tables, and compare the totals computed from them."""
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
        """Wait until the workers have deleted the messages: all groups are done with them, also the archive."""
        self._wait(_oldest, "the log is emptied")
        self.say(f"Log: the topic {TOPIC} is empty, all groups were done with it.")

    def compact(self) -> None:
        """Join the files of the archive, and verify them. Only the archive has the flights now."""
        (done,) = compact(self.spark, self.folder)
        (found,) = verify(self.spark, self.folder)
        self._compare(
            f"Compacted and verified: {done.files} files are {done.files_now}; {found.rows:,} rows read",
            found.problems,
            "as the tables say",
        )

    def publish(self) -> None:
        """Publish each carrier's days, computed from the archive. Publishing them twice must store them once."""
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
        """Wait until the workers have informed the carriers, and compare the tables of deliveries and dead letters."""
        self._wait(_oldest_day, "the workers tell carriers of their days")
        found = deliveries(self.spark, self.run)
        results = {(row.carrier, row.day): Result(row.done, row.failures) for row in collect_all(found)}
        self._compare(
            f"Deliveries: {BULLETINS} is done with {sum(result.done or 0 for result in results.values()):,} days",
            different_days(results_of(self.days), results),
        )
        for row in collect_all(times(found)):
            self.say(
                f"  {row.days:,} at attempt {row.attempts}: half of them within {_seconds(row.half)} of publication,"
                f" all within {_seconds(row.all)}"
            )
        dead = {(row.carrier, row.day): row.error for row in collect_all(dead_letters(self.spark, self.run))}
        errors = Counter(dead.values())
        self._compare(
            f"Dead letters: {', '.join(f'{count:,} by {name}' for name, count in errors.items()) or 'none'}",
            different_days(dead_letters_of(self.days), dead),
        )

    def replay(self) -> None:
        """Replay the archive's messages to a topic that holds none, for groups without results."""
        delete_results()
        replay(self.spark, TOPIC, f"flights {self.run.token}", source=self.folder, to=REPLAYED, dry_run=False)
        log = self.spark.read.format("mqueue").schema(COLUMNS).option("topic", REPLAYED).load()
        self._compare(
            f"Replay: from the archive to the topic {REPLAYED}; the hours computed from there",
            different_hours(self.hours, self._computed(log)),
        )

    def backfill(self) -> None:
        """Backfill a new group with the archive's messages. The log is empty at this point."""
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
        """Report on archive and log together, and write a page with charts."""
        found, page = report(self.spark, (TOPIC, DAYS), archive=self.folder), self.place / "report.html"
        page.write_text(found.to_html(), encoding="utf-8")
        unsubscribe(TOPIC, LATE)  # No worker consumes for it, and deletion would wait.
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
        """Run a command as a user would type it. It starts its own Spark."""
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
        """Wait until ``left`` returns 0. Raises ``Stuck`` if its value does not change for ``TIMEOUT`` seconds."""
        before, deadline = -1, 0.0
        while found := left():
            if found != before:
                before, deadline = found, time.monotonic() + TIMEOUT
            if not self.workers.running():
                raise Stuck("the workers have ended")
            if time.monotonic() > deadline:
                raise Stuck(f"nothing has changed for {TIMEOUT:g} s: {what}")
            time.sleep(LOOK_EVERY)


def _oldest() -> int:
    """Return the offset of the first message, or 0 if there is none."""
    found = messages(TOPIC, limit=1).messages
    return found[0].offset if found else 0


def _oldest_day() -> int:
    """Return the offset of the first message that the group is not done with, or 0."""
    return next((one.oldest or 0 for one in groups(DAYS) if one.group == BULLETINS), 0)


def _seconds(milliseconds: int | None) -> str:
    return "?" if milliseconds is None else f"{milliseconds / 1000:.1f} s"
