"""Store messages of an archive, or of the log, again: as copies whose headers name the original."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

from django.db.backends.utils import CursorWrapper

from ...exceptions import NotRegistered, Superseded
from ...service import registration
from ...store.connection import session
from ..archives.locations import check_as_of
from ..database import copying, following
from ..database.copying import CopyRun
from ..errors import ArchiveError, ReplayBegun
from ..reader.conditions import ConditionFailed
from ..sql.copies import Mark
from .message_filter import MessageFilter, check_replay, hash_of
from .originals import GuardedSource, Originals, guard_of_replay
from .preview import Preview, preview
from .storing import lanes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "replay"


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    name: str
    to: str
    stored: int  # Messages that were stored during this run.
    total: int  # Messages that all runs of this name have stored.
    finished: bool  # False if this run was stopped.
    before: bool = False  # An earlier run has finished the replay, and this run did nothing.


def replay(
    spark: SparkSession,
    topic: str,
    name: str,
    *,
    source: str | os.PathLike[str] | None = None,
    as_of: int | datetime | None = None,
    live: bool = False,
    to: str | None = None,
    group: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    keys: Collection[str] = (),
    kinds: Collection[str] = (),
    where: str | None = None,
    targeted: bool = False,
    rate: float | None = None,
    fail_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
    dry_run: bool = True,
    stopping: threading.Event | None = None,
    watch: Callable[[int], object] | None = None,
) -> Preview | Replayed:
    """Store messages of a topic again, in the order of each key.

    The messages come from the archive ``source``; with ``live``, also from the log above it. Without ``source``, they
    come from the log.

    * ``name``: identifies the replay. A run with the name of an earlier run continues it.
    * ``as_of``: the state of the archive, as a version of its table of messages or as a time; only without the log.
    * ``to``: the topic of the copies. Default: the same topic.
    * ``group``: the only group that gets the copies. Default: all groups.
    * ``since`` and ``until``: choose messages that were published at ``since`` or later, and before ``until``.
    * ``keys`` and ``kinds``: choose messages with one of the keys and one of the kinds.
    * ``where``: a condition in SQL over the columns of ``format("mqueue")`` and ``value``, the payload as text.
    * ``targeted``: also choose messages for ``group`` alone; without ``group``, for any one group.
    * ``rate``: the maximum number of messages that are stored in a second.
    * ``fail_on_data_loss``: raise ``LogGap`` if messages between archive and log may be missing.
    * ``options``: the connection options of ``format("mqueue")``.
    * ``dry_run``: change nothing, and return a ``Preview``.
    * ``stopping``: an event. When it is set, the run ends early.
    * ``watch``: called every second with the number of messages that all runs have stored.

    Raises ``NotRegistered`` (``group`` is not registered for ``to``), ``ReplayBegun`` (a replay of this name was begun
    with other conditions, or from another archive), ``Superseded`` (another process has given up this replay),
    ``LogGap``, ``OptionError`` (also if the condition fails for a message), ``NoArchive``, ``ArchiveError``,
    ``NoSuchTopic``, ``TypeError`` or ``ValueError``.
    """
    given, to = dict(options or {}), topic if to is None else to
    message_filter = MessageFilter(since, until, keys, kinds, where, targeted, group or "")
    check_replay(topic, name, message_filter, source, to, group, rate, given)
    check_as_of(as_of, source, live=live)
    replay_run = _Replay(
        spark,
        topic,
        source,
        given,
        guard_of_replay(name, topic, to),
        as_of,
        rate,
        stopping,
        watch,
        live=live or source is None,
        message_filter=message_filter,
        run=CopyRun(KIND, name, to, group=group or ""),
    )
    with closing(replay_run.connection):
        if dry_run:
            return replay_run.preview()
        return replay_run.run_to_end(fail_on_data_loss)


@dataclass(kw_only=True)
class _Replay(GuardedSource):
    live: bool
    message_filter: MessageFilter
    run: CopyRun

    @cached_property
    def number(self) -> int:
        """Return a hash of the filter, the topic and the sources. It must be equal in all runs of this name."""
        return self.message_filter.digest ^ hash_of(self.topic, str(self.live), self.archive_id)

    def preview(self) -> Preview:
        record, groups = self.connection.run(self._find_earlier)
        frame = self._originals(record).frame(self.spark, self.options, targeted=self.message_filter.targeted)
        lanes = self.connection.run(partial(copying.lanes_of, run=self.run))
        done = self.copied(replace(self.run, lanes=lanes)) if lanes else 0
        return preview(
            self.message_filter,
            frame,
            name=self.run.name,
            topic=self.topic,
            to=self.run.topic,
            groups=groups,
            stored=self._total() if record and record.finished else done,
        )

    def run_to_end(self, fail_on_data_loss: bool) -> Replayed:
        record, _ = self.connection.run(self._find_earlier)
        begun = record is not None
        if record is None or not record.finished:
            # Raise errors before anything is recorded.
            originals = self._originals(record)
            self.message_filter.of(
                originals.frame(self.spark, self.options, targeted=self.message_filter.targeted)
            )
            if self.live:
                hold_back = partial(self.hold_back_deletion, begun=begun, gap_is_error=fail_on_data_loss)
                originals = self.connection.run(hold_back)
            try:
                begin = partial(self._begin, originals=originals, begun=begun)
                record, run, before = self.connection.run(begin)
            except Superseded:
                if self.live:
                    self.connection.run(self._release_unused)
                raise
        if record.finished:
            self._end()
            return Replayed(self.run.name, self.run.topic, 0, self._total(), True, True)
        try:
            is_finished = self.store(run, self._upto(originals, record), self.message_filter)
        except ConditionFailed:  # For other errors the replay can continue later.
            self.connection.run(partial(self._give_up, run=run))
            raise
        if not is_finished:
            total = self.copied(run) or self._total()  # Another process may have finished the run meanwhile.
            return Replayed(run.name, run.topic, total - before, total, False)
        self.connection.run(partial(self._finish, run=run))
        self._end()
        total = self._total()
        return Replayed(run.name, run.topic, total - before, total, True)

    def _find_earlier(self, using: str) -> tuple[Mark | None, list[str]]:
        """Return the record of an earlier run of this name, and the groups that will get the copies."""
        number = self.number  # This opens the archive, so do it before anything is locked or registered.
        to, group = self.run.topic, self.run.group
        groups = registration.groups_of(using, to)
        if group and group not in groups:
            raise NotRegistered(to, group)
        record = copying.head(using, self.run)
        if record is not None and record.number != number:
            raise self._begun_otherwise()
        return record, [group] if group else groups

    def _originals(self, record: Mark | None) -> Originals:
        originals = self.connection.run(partial(self.find, live=self.live))
        return originals if record is None else self._upto(originals, record)

    def _upto(self, originals: Originals, record: Mark) -> Originals:
        if originals.upto < record.position:
            raise ArchiveError(
                f"replay {self.run.name!r} was started with messages up to offset {record.position}, but now there are"
                f" none above {originals.upto}: the archive or the database is an older copy"
            )
        return replace(originals, upto=record.position)

    def _begin(self, using: str, originals: Originals, begun: bool) -> tuple[Mark, CopyRun, int]:
        """Record that the run begins, unless this is recorded already.

        Return the record; and if the run has not ended, the run with its lanes and the number of its copies.
        """
        lanes = lanes_of(self.spark)

        def find_or_insert(cursor: CursorWrapper) -> Mark:
            record = copying.lock_head(using, cursor, self.run)
            if record is not None:
                if record.number != self.number:
                    raise self._begun_otherwise()
                return record
            position = following.position(self.topic, self.guard, using=using) if self.live else None
            is_held = not self.live or (position is not None and position.generation == originals.generation)
            if begun or not is_held:
                raise self._given_up()  # The record is gone, or the guard was replaced.
            copying.begin(cursor, replace(self.run, lanes=lanes), originals.upto, self.number)
            return Mark(originals.upto, self.number, False)

        def work(cursor: CursorWrapper) -> tuple[Mark, CopyRun, int]:
            record = find_or_insert(cursor)
            if record.finished:
                return record, self.run, 0
            # In this transaction, because another process that ends the run deletes these marks.
            run = replace(self.run, lanes=copying.lanes_of(using, self.run))
            return record, run, copying.copied(using, run)

        return session.run(using, work)

    def _release_unused(self, using: str) -> None:
        """Release the guard if the run has no record. Otherwise it would hold back deletion without limit."""

        def work(cursor: CursorWrapper) -> None:
            if copying.lock_head(using, cursor, self.run) is None:
                self.release(using)

        session.run(using, work)

    def _finish(self, using: str, run: CopyRun) -> None:
        def work(cursor: CursorWrapper) -> None:
            record = copying.lock_head(using, cursor, run)
            if record is None:
                raise self._given_up()
            if not record.finished:
                copying.note_total(cursor, run, copying.copied(using, run))
                copying.finish(cursor, run)

        session.run(using, work)

    def _give_up(self, using: str, run: CopyRun) -> None:
        """Delete the records of a run whose condition failed, if it stored nothing, so that its name is free again."""

        def work(cursor: CursorWrapper) -> None:
            record = copying.lock_head(using, cursor, run)
            if record is None or record.finished or record.number != self.number:
                return
            if copying.give_up(cursor, run) and self.live:
                self.release(using)  # In the same transaction, so that no new run relies on this guard.

        session.run(using, work)

    def _total(self) -> int:
        return self.connection.run(partial(copying.total, run=self.run))

    def _end(self) -> None:
        if self.live:
            self.connection.run(self.release)

    def _begun_otherwise(self) -> ReplayBegun:
        return ReplayBegun(
            f"a replay {self.run.name!r} into topic {self.run.topic!r} was started with other conditions, or from"
            " another archive: run it again with those, or choose another name"
        )

    def _given_up(self) -> Superseded:
        return Superseded(
            f"another process has given up replay {self.run.name!r} into topic {self.run.topic!r}: run it again"
        )
