"""Messages of an archive stored anew, as copies that tell their origin."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from django.db.backends.utils import CursorWrapper

from ...exceptions import NotRegistered, Superseded
from ...service import copying, following, registration
from ...service.copying import Run
from ...store import session
from ...store.copies import Mark
from ..archives.places import check_as_of
from ..errors import ArchiveError, ReplayBegun
from . import guards
from .choice import Choice, Unanswered
from .held import Held, hash_of
from .originals import Originals
from .preview import Preview, preview
from .requests import check_replay
from .stoppable import computed, parallelism
from .storing import Orders, stored, with_lanes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "replay"


@dataclass(frozen=True)
class Replayed:
    """What a replay has done. ``stored``: how many messages this run has stored; ``total``: all runs of its name.

    ``finished``: False where it was stopped. ``before``: an earlier run has finished it; nothing was done.
    """

    name: str
    to: str
    stored: int
    total: int
    finished: bool
    before: bool = False


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
    """Store messages of a topic anew, in the order of each key: from the archive ``source``, and with ``live`` (or
    without a ``source``) from the log above it; into topic ``to`` (None: the same), for one ``group`` or for all.

    Which: those that were published at ``since`` or later, and before ``until``, have one of the ``keys`` and one of
    the ``kinds``, and fit ``where``, a condition of SQL over the columns of ``format("mqueue")`` and ``value``, the
    payload as text. Messages that were for one group alone only if ``targeted``. At most ``rate`` a second are stored.

    ``as_of``: the archive as it was then, by a version of its table of messages or by a time; only without the log.

    ``name`` says which replay it is: run again under its name, it goes on where it was, whatever has happened to its
    messages since. ``dry_run`` changes nothing, and tells what would be stored. ``stopping`` ends a run early;
    ``watch`` is called every second with how many are stored.

    Raises ``NotRegistered`` for a group that is not registered for ``to``, ``ReplayBegun`` for a name that was begun
    with other conditions or another archive, ``LogGap`` where messages between archive and log may be deleted (unless
    ``fail_on_data_loss`` is False), ``NoArchive``, ``ArchiveError``, ``NoSuchTopic``, ``OptionError`` (also for a
    condition that one of the messages cannot answer), and ``ValueError`` for bad arguments.
    """
    given, to = dict(options or {}), topic if to is None else to
    choice = Choice(since, until, keys, kinds, where, targeted, group or "")
    check_replay(topic, name, choice, source, to, group, rate, given)
    check_as_of(as_of, source, live=live)
    one = _Replay(
        spark,
        topic,
        source,
        as_of,
        live or source is None,
        choice,
        given,
        Run(KIND, name, to, group=group or ""),
    )
    try:
        if dry_run:
            return one.preview()
        return one.run_to_end(rate, fail_on_data_loss, stopping, watch)
    finally:
        one.line.close()


class _Replay(Held):
    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        source: str | os.PathLike[str] | None,
        as_of: int | datetime | None,
        live: bool,
        choice: Choice,
        options: Mapping[str, str],
        run: Run,
    ) -> None:
        super().__init__(spark, topic, source, options, guards.of_replay(run.name, topic, run.topic), as_of)
        self.live, self.choice, self.run = live, choice, run

    @cached_property
    def number(self) -> int:
        """What it must be a second time, too: the choice, where from, and whom for."""
        return self.choice.digest ^ hash_of(self.topic, str(self.live), self.archive_id)

    def preview(self) -> Preview:
        head, groups = self.line.run(self._known)
        found = self._looked(head)
        lanes = self.line.run(lambda using: copying.lanes_of(using, self.run))
        done = self.line.run(lambda using: copying.copied(using, with_lanes(self.run, lanes))) if lanes else 0
        return preview(
            self.choice,
            found.frame(self.spark, self.options, targeted=self.choice.targeted),
            name=self.run.name,
            topic=self.topic,
            to=self.run.topic,
            groups=groups,
            stored=self._total() if head and head.finished else done,
        )

    def run_to_end(
        self,
        rate: float | None,
        fail_on_data_loss: bool,
        stopping: threading.Event | None,
        watch: Callable[[int], object] | None,
    ) -> Replayed:
        head, _ = self.line.run(self._known)
        if head is not None and head.finished:
            return self._before()
        # What cannot be is found out before anything is noted.
        found, begun = self._looked(head), head is not None
        self.choice.of(found.frame(self.spark, self.options, targeted=self.choice.targeted))
        if self.live:
            found = self.hold(fail_on_data_loss, begun=begun)
        head, lanes = self.line.run(lambda using: self._begin(using, found, begun))
        if head.finished:
            return self._before()
        run = with_lanes(self.run, lanes)
        frame = self._upto(found, head).frame(self.spark, self.options, targeted=self.choice.targeted)

        def tell() -> None:
            if watch is not None:
                watch(self.line.run(lambda using: copying.copied(using, run)))

        try:
            with self.choice.asked(self.spark):
                # A Spark Connect server may keep what it has made of the condition when the table was put together.
                wanted = stored(self.choice.of(frame), Orders(self.how, run, self.topic, rate))
                numbers = computed(self.spark, wanted, stopping, tell)
        except Unanswered:  # And nothing else: the condition itself was looked at before it was begun.
            self.line.run(lambda using: self._give_up(using, run))
            raise
        if numbers is None:
            total = self.line.run(lambda using: copying.copied(using, run))
            return Replayed(run.name, run.topic, 0, total, False)
        self.line.run(lambda using: self._finish(using, run))
        self._end()
        return Replayed(run.name, run.topic, sum(numbers), self._total(), True)

    def _known(self, using: str) -> tuple[Mark | None, list[str]]:
        """What an earlier run of the name has noted, and who will be given the copies."""
        number = self.number  # It opens the archive: here, where nothing is locked, and nothing registered.
        to, group = self.run.topic, self.run.group
        groups = registration.groups_of(using, to)
        if group and group not in groups:
            raise NotRegistered(to, group)
        head = copying.head(using, self.run)
        if head is not None and head.number != number:
            raise self._other()
        return head, [group] if group else groups

    def _looked(self, head: Mark | None) -> Originals:
        found = self.look(live=self.live)
        return found if head is None else self._upto(found, head)

    def _upto(self, found: Originals, head: Mark) -> Originals:
        if found.upto < head.position:
            raise ArchiveError(
                f"replay {self.run.name!r} was begun with messages up to offset {head.position}, but now there are none"
                f" above {found.upto}: this is an older copy of the archive, or of the database"
            )
        return replace(found, upto=head.position)

    def _begin(self, using: str, found: Originals, begun: bool) -> tuple[Mark, int]:
        """Note that it is begun; or how far it is, where an earlier run, or one at the same time, has done that."""
        lanes = with_lanes(self.run, parallelism(self.spark)).lanes

        def work(cursor: CursorWrapper) -> Mark:
            head = copying.lock_head(using, cursor, self.run)
            if head is not None:
                if head.number != self.number:
                    raise self._other()
                return head
            if begun or not self._is_held(using, found):
                raise self._given_up()  # With what held messages for this one, too.
            copying.begin(cursor, with_lanes(self.run, lanes), found.upto, self.number)
            return Mark(found.upto, self.number, False, 0)

        return session.run(using, work), copying.lanes_of(using, self.run)

    def _is_held(self, using: str, found: Originals) -> bool:
        """Whether deletion is held back by the registration that was there when it was found what there is."""
        if not self.live:
            return True
        place = following.place(self.topic, self.guard, using=using)
        return place is not None and place.life == found.life

    def _finish(self, using: str, run: Run) -> None:
        def work(cursor: CursorWrapper) -> None:
            head = copying.lock_head(using, cursor, run)
            if head is None:
                raise self._given_up()
            if not head.finished:
                copying.note_total(cursor, run, copying.copied(using, run))
                copying.finish(cursor, run)

        session.run(using, work)

    def _give_up(self, using: str, run: Run) -> None:
        """Leave nothing of a run whose condition some message cannot answer: its name is free for a better one.
        Together with what holds its messages, so that nobody who begins at this moment relies on that. Not if anything
        is stored."""

        def work(cursor: CursorWrapper) -> None:
            head = copying.lock_head(using, cursor, run)
            if head is None or head.finished or head.number != self.number:
                return
            if copying.give_up(cursor, run) and self.live:
                following.forget(self.topic, self.guard, using=using)

        session.run(using, work)

    def _before(self) -> Replayed:
        self._end()
        return Replayed(self.run.name, self.run.topic, 0, self._total(), True, True)

    def _total(self) -> int:
        return self.line.run(lambda using: copying.total(using, self.run))

    def _end(self) -> None:
        if self.live:
            self.let_go()

    def _other(self) -> ReplayBegun:
        return ReplayBegun(
            f"a replay {self.run.name!r} into topic {self.run.topic!r} was begun with other conditions, or from another"
            " archive: run it again with those, or take another name"
        )

    def _given_up(self) -> Superseded:
        return Superseded(
            f"replay {self.run.name!r} into topic {self.run.topic!r} was given up by another process: run it again"
        )
