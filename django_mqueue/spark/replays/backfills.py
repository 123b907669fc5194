"""Give a new group the past messages of a topic, from an archive. Then the group continues with the log.

There is no gap and no overlap between the past messages and the log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ...exceptions import MQueueError
from ..database import backfilling
from ..database.backfilling import BackfillState, Seam
from ..errors import ArchiveError
from .message_filter import MessageFilter, check_backfill, hash_of
from .originals import GuardedSource, guard_of_backfill
from .preview import Preview, preview
from .storing import lanes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE = 0.05
SAY_AFTER, SAY_EVERY = 2.0, 30.0
"""Seconds until ``_join_past_and_log`` first reports what it waits for, and seconds between two such reports."""


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill."""

    topic: str
    group: str
    stored: int  # Copies that were stored during this run.
    upto: int  # The last offset of the past. The group gets all messages above it from the log.
    finished: bool  # False if this run was stopped.
    before: bool = False  # An earlier run has finished the backfill, and this run did nothing.


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
    """Register a new group, and give it the topic's messages in the archive ``source``, and then the log.

    The group is paused while copies of the past messages are stored for it. At the end it is resumed, if ``resume`` is
    true. The order of each key is kept, also between copies and newer messages (see ``spark.database.backfilling``). If
    a run was stopped, the next run continues it.

    * ``rate``: the maximum number of copies that are stored in a second.
    * ``fail_on_data_loss``: raise ``LogGap`` if messages between archive and log may be missing.
    * ``options``: the connection options of ``format("mqueue")``.
    * ``dry_run``: change nothing, and return a ``Preview``.
    * ``stopping``: an event. When it is set, the run ends early.
    * ``watch``: called every second with the number of stored copies.
    * ``say``: called with a line of text that names what the backfill waits for at its end.

    Raises ``GroupNotNew`` (the group is registered already), ``LogGap``, ``ArchiveError`` (the backfill was begun from
    another archive), ``NotRegistered`` or ``Superseded`` (the group was unsubscribed, resumed or reset meanwhile),
    ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``TypeError`` or ``ValueError``.
    """
    given = dict(options or {})
    check_backfill(topic, group, source, rate, given)
    one = _Backfill(
        spark, topic, source, given, guard_of_backfill(group), None, rate, stopping, watch, group=group
    )
    with closing(one.connection):
        if dry_run:
            return one.preview()
        return one.run_to_end(resume, fail_on_data_loss, say)


@dataclass(kw_only=True)
class _Backfill(GuardedSource):
    group: str
    _seam: Seam | None = None

    def preview(self) -> Preview:
        earlier = self.connection.run(self._check_new)
        past, done = self.connection.run(partial(self.find, live=True)), 0
        if earlier is not None:
            past = replace(past, upto=earlier.upto)
            done = self.copied(earlier.run)
        found = preview(
            MessageFilter(),
            past.frame(self.spark, self.options, targeted=False),
            name=backfilling.KIND,
            topic=self.topic,
            to=self.topic,
            groups=[self.group],
            stored=done,
        )
        # A backfill that has ended no longer knows how many copies it stored.
        return replace(found, stored=found.total) if earlier is not None and earlier.ended else found

    def run_to_end(
        self, resume: bool, fail_on_data_loss: bool, say: Callable[[str], object] | None
    ) -> Backfilled:
        earlier = state = self.connection.run(self._check_new)
        if state is None or not state.ended:
            hold_back = partial(
                self.hold_back_deletion, begun=earlier is not None, gap_is_error=fail_on_data_loss
            )
            found = self.connection.run(hold_back)
            try:
                state = self.connection.run(self._begin)
            except MQueueError:
                if earlier is None:
                    self.connection.run(self.release)
                raise
        if state.ended:
            self.connection.run(self.release)
            return Backfilled(self.topic, self.group, 0, state.upto, True, True)
        self._check_source(state)  # Another process may have begun the backfill at the same time.
        copies = 0
        if not self.connection.run(partial(backfilling.stored_to_border, state=state)):
            past, before = replace(found, upto=state.upto), self.copied(state.run)
            is_stored = self.store(state.run, past, MessageFilter())
            # Another process that has ended the backfill has deleted the marks.
            copies = max(0, self.copied(state.run) - before)
            if not is_stored:
                return Backfilled(self.topic, self.group, copies, state.upto, False)
            self.connection.run(partial(backfilling.note_stored, state=state))
        joined, is_complete = self._join_past_and_log(state, say, resume)
        if is_complete:
            self.connection.run(self.release)
        return Backfilled(self.topic, self.group, copies + joined, state.upto, is_complete)

    def _check_new(self, using: str) -> BackfillState | None:
        """Return the state of an earlier run; None for a new group. Raises ``GroupNotNew`` or ``ArchiveError``."""
        earlier = backfilling.find_backfill(using, self.topic, self.group)
        if earlier is not None and not earlier.ended:
            self._check_source(earlier)
        return earlier

    def _check_source(self, state: BackfillState) -> None:
        if state.source != hash_of(self.archive_id):
            raise ArchiveError(
                f"the backfill of group {self.group!r} was started from another archive than {self.source}: use that"
                " archive; or unsubscribe the group, and start again"
            )

    def _begin(self, using: str) -> BackfillState:
        source, lanes = hash_of(self.archive_id), lanes_of(self.spark)
        return backfilling.begin(using, self.topic, self.group, self.settled(using), lanes, source)

    def _join_past_and_log(
        self, state: BackfillState, say: Callable[[str], object] | None, resume: bool
    ) -> tuple[int, bool]:
        """Join the past and the log, in rounds. Return the number of copies, and whether the backfill is complete."""
        copies = 0
        say_at = time.monotonic() + SAY_AFTER
        while self.stopping is None or not self.stopping.is_set():
            more, waits_for = self.connection.run(lambda using: self._join_round(using, state))
            copies += more
            if waits_for is None:
                assert self._seam is not None
                finish = partial(backfilling.finish, state=state, number=self._seam.copies, resume=resume)
                if self.connection.run(finish):
                    return copies, True
                self._seam = None
                waits_for = "copies that another process has made for the same group"
            if say is not None and time.monotonic() >= say_at:
                say(f"the backfill of group {self.group!r} catches up with the log: waiting for {waits_for}")
                say_at = time.monotonic() + SAY_EVERY
            time.sleep(PAUSE)
        return copies, False

    def _join_round(self, using: str, state: BackfillState) -> tuple[int, str | None]:
        """Do one round of ``_join_past_and_log``. Return the number of copies, and what the backfill waits for."""
        # A new connection needs a new Seam: if a commit's result is unknown, the old one may know too few copies.
        if self._seam is None or self._seam.using != using:
            self._seam = Seam(using, state)
        copies = self._seam.copy_misplaced()
        return copies, None if self._seam.is_whole else self._seam.waits_for
