"""A new group is given the past of a topic from an archive, and then goes on with the log: no gap, no overlap."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...exceptions import MQueueError
from ...service import backfilling, copying
from ...service.backfilling import Border, Seam
from ...service.copying import Run
from ..errors import ArchiveError
from . import guards
from .choice import Choice
from .held import Held, hash_of
from .originals import Originals, settle
from .preview import Preview, preview
from .requests import check_backfill
from .stoppable import computed, parallelism
from .storing import Orders, stored, with_lanes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = backfilling.KIND
PAUSE = 0.05
SAY_AFTER, SAY_EVERY = 2.0, 30.0
"""Seconds for which the seam is not whole before it is said what for, and between two lines."""


@dataclass(frozen=True)
class Backfilled:
    """What a backfill has done. ``stored``: copies made by this run; ``upto``: the border: all above it is the log's.

    ``finished``: False where it was stopped. ``before``: an earlier run has finished it; nothing was done.
    """

    topic: str
    group: str
    stored: int
    upto: int
    finished: bool
    before: bool = False


def backfill(
    spark: SparkSession,
    topic: str,
    group: str,
    *,
    source: str | os.PathLike[str],
    rate: float | None = None,
    resume: bool = True,
    fail_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
    dry_run: bool = True,
    stopping: threading.Event | None = None,
    watch: Callable[[int], object] | None = None,
    say: Callable[[str], object] | None = None,
) -> Preview | Backfilled:
    """Register a new group that is given everything: what the archive ``source`` holds of the topic, then the log.

    The group is paused while its past is stored for it alone, and ``resume`` lets it go on. Order per key is kept, also
    between past and present (see ``service.backfilling``). Run again, it goes on where it was. ``rate``: at most so
    many copies of the past a second. ``dry_run`` changes nothing, and tells what would be stored. ``stopping`` ends a
    run early; ``watch`` is called every second with how many are stored; ``say`` with a line that tells what is waited
    for, where past and present do not come together at once.

    Raises ``GroupNotNew`` for a group that is registered already, ``LogGap`` where messages between archive and log may
    be deleted (unless ``fail_on_data_loss`` is False), ``ArchiveError`` for another archive than it was begun with,
    ``NoArchive``, ``NoSuchTopic``, and ``ValueError`` for bad arguments.
    """
    given = dict(options or {})
    check_backfill(topic, group, source, rate, given)
    one = _Backfill(spark, topic, group, source, given)
    try:
        if dry_run:
            return one.preview()
        return one.run_to_end(rate, resume, fail_on_data_loss, stopping, watch, say)
    finally:
        one.line.close()


class _Backfill(Held):
    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        group: str,
        source: str | os.PathLike[str],
        options: Mapping[str, str],
    ) -> None:
        super().__init__(spark, topic, source, options, guards.of_backfill(group))
        self.group = group
        self._seam: Seam | None = None

    def preview(self) -> Preview:
        head = self.line.run(self._check_new)
        past, done = self.look(live=True), 0
        if head is not None:
            run = head.run
            past = replace(past, upto=head.upto)
            done = self.line.run(lambda using: copying.copied(using, run))
        found = preview(
            Choice(),
            past.frame(self.spark, self.options, targeted=False),
            name=KIND,
            topic=self.topic,
            to=self.topic,
            groups=[self.group],
            stored=done,
        )
        # Of one that has ended it is forgotten how many there were.
        return replace(found, stored=found.total) if head is not None and head.ended else found

    def run_to_end(
        self,
        rate: float | None,
        resume: bool,
        fail_on_data_loss: bool,
        stopping: threading.Event | None,
        watch: Callable[[int], object] | None,
        say: Callable[[str], object] | None,
    ) -> Backfilled:
        head = self.line.run(self._check_new)
        if head is not None and head.ended:
            return self._before(head)
        found = self.hold(fail_on_data_loss, begun=head is not None)
        try:
            border = self.line.run(self._begin)
        except MQueueError:
            if head is None:
                self.let_go()
            raise
        if border.ended:
            return self._before(border)
        self._check_source(border)  # Another process may have begun it at the same moment.
        made = 0
        if not self.line.run(lambda using: backfilling.stored_to_border(using, border)):
            past = Originals(found.topic, found.archive, found.archived, border.upto, True)
            frame = Choice().of(past.frame(self.spark, self.options, targeted=False))
            orders = Orders(self.how, border.run, self.topic, rate)

            def tell() -> None:
                if watch is not None:
                    watch(self.line.run(lambda using: copying.copied(using, border.run)))

            numbers = computed(self.spark, stored(frame, orders), stopping, tell)
            if numbers is None:
                return Backfilled(self.topic, self.group, 0, border.upto, False)
            made = sum(numbers)
            self.line.run(lambda using: backfilling.note_stored(using, border))
        sewn = self._sew(border, stopping, say)
        if sewn is None:
            return Backfilled(self.topic, self.group, made, border.upto, False)
        self.line.run(lambda using: backfilling.finish(using, border, resume=resume))
        self.let_go()
        return Backfilled(self.topic, self.group, made + sewn, border.upto, True)

    def _before(self, border: Border) -> Backfilled:
        self.let_go()
        return Backfilled(self.topic, self.group, 0, border.upto, True, True)

    def _check_new(self, using: str) -> Border | None:
        """How far an earlier run has come. Raises ``GroupNotNew``, ``ArchiveError``."""
        head = backfilling.begun(using, self.topic, self.group)
        if head is not None and not head.ended:
            self._check_source(head)
        return head

    def _check_source(self, border: Border) -> None:
        if border.source != hash_of(self.archive_id):
            raise ArchiveError(
                f"group {self.group!r} is being given the past from another archive than {self.source}: go on with that"
                " one; or unsubscribe the group, and begin anew"
            )

    def _begin(self, using: str) -> Border:
        known = settle(using, self.topic, self.options)
        lanes = with_lanes(Run(KIND, self.group, self.topic), parallelism(self.spark)).lanes
        return backfilling.begin(using, self.topic, self.group, known, lanes, hash_of(self.archive_id))

    def _sew(
        self, border: Border, stopping: threading.Event | None, say: Callable[[str], object] | None
    ) -> int | None:
        """Bring past and present together; None if it was stopped."""
        made, pause = 0, threading.Event()
        say_at = time.monotonic() + SAY_AFTER
        while stopping is None or not stopping.is_set():
            more, waits_for = self.line.run(lambda using: self._stitch(using, border))
            made += more
            if waits_for is None:
                return made
            if say is not None and time.monotonic() >= say_at:
                say(f"past and present of group {self.group!r} come together: waiting for {waits_for}")
                say_at = time.monotonic() + SAY_EVERY
            pause.wait(PAUSE)
        return None

    def _stitch(self, using: str, border: Border) -> tuple[int, str | None]:
        """How many copies, and what is waited for.

        Anew on another connection: what is known of copies may be wrong when a COMMIT had no answer.
        """
        if self._seam is None or self._seam.using != using:
            self._seam = Seam(using, border)
        made = self._seam.sew()
        return made, None if self._seam.is_whole else self._seam.waits_for
