"""Store messages of an archive again, as copies whose headers name the original."""

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
from ...service import registration
from ...store.connection import session
from ..archives.places import check_as_of
from ..database import copying, following
from ..database.copying import CopyRun
from ..errors import ArchiveError, ReplayBegun
from ..sql.copies import Progress
from . import guards
from .choice import ConditionFailed, MessageFilter
from .held import GuardedSource, hash_of
from .originals import Originals
from .preview import Preview, preview
from .requests import check_replay
from .stoppable import computed, parallelism
from .storing import CopyTask, stored, with_lanes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "replay"


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    * ``stored``: how many messages this run has stored.
    * ``total``: how many all runs of this name have stored.
    * ``finished``: false if this run was stopped.
    * ``before``: an earlier run has finished the replay, and this run did nothing.
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
    """Store messages of a topic again, in the order of each key.

    The messages come from the archive ``source``. With ``live``, or without a ``source``, they also come from the log
    above it.

    * ``name``: identifies the replay. A run with the name of an earlier run continues it, even if its copies are
      already deleted.
    * ``as_of``: the state of the archive, as a version of its table of messages or as a time; only without the log.
    * ``to``: the topic of the copies. Default: the same topic.
    * ``group``: the only group that gets the copies. Default: all groups.
    * ``since`` and ``until``: choose messages that were published at ``since`` or later, and before ``until``.
    * ``keys`` and ``kinds``: choose messages with one of the keys and one of the kinds.
    * ``where``: a condition in SQL over the columns of ``format("mqueue")`` and ``value``, the payload as text.
    * ``targeted``: also choose messages that were for one group alone.
    * ``rate``: the maximum number of messages that are stored in a second.
    * ``fail_on_data_loss``: raise ``LogGap`` if messages between archive and log may be deleted.
    * ``options``: how ``format("mqueue")`` reaches the database.
    * ``dry_run``: change nothing, and return a ``Preview``.
    * ``stopping``: an event. When it is set, the run ends early.
    * ``watch``: called every second with the number of messages that all runs have stored.

    Raises:

    * ``NotRegistered``: ``group`` is not registered for ``to``.
    * ``ReplayBegun``: a replay of this name was begun with other conditions, or from another archive.
    * ``LogGap``: messages between archive and log may be deleted, and ``fail_on_data_loss`` is true.
    * ``OptionError``: an option is invalid, or the condition fails for a message.
    * ``NoArchive``, ``ArchiveError``, ``NoSuchTopic``.
    * ``Superseded``: another process has given up this replay.
    * ``TypeError``, ``ValueError``: an argument is invalid.
    """
    given, to = dict(options or {}), topic if to is None else to
    choice = MessageFilter(since, until, keys, kinds, where, targeted, group or "")
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
        CopyRun(KIND, name, to, group=group or ""),
    )
    try:
        if dry_run:
            return one.preview()
        return one.run_to_end(rate, fail_on_data_loss, stopping, watch)
    finally:
        one.line.close()


class _Replay(GuardedSource):
    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        source: str | os.PathLike[str] | None,
        as_of: int | datetime | None,
        live: bool,
        choice: MessageFilter,
        options: Mapping[str, str],
        run: CopyRun,
    ) -> None:
        super().__init__(spark, topic, source, options, guards.of_replay(run.name, topic, run.topic), as_of)
        self.live, self.choice, self.run = live, choice, run

    @cached_property
    def number(self) -> int:
        """Return a number for the choice, the source and the group. It must be the same in each run of this name."""
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
        # Raise errors before anything is noted.
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
                # Build the table in this block: a Spark Connect server may keep its analysis of the condition.
                wanted = stored(self.choice.of(frame), CopyTask(self.how, run, self.topic, rate))
                numbers = computed(self.spark, wanted, stopping, tell)
        except ConditionFailed:  # For other errors the replay can continue later.
            self.line.run(lambda using: self._give_up(using, run))
            raise
        if numbers is None:
            total = self.line.run(lambda using: copying.copied(using, run))
            return Replayed(run.name, run.topic, 0, total, False)
        self.line.run(lambda using: self._finish(using, run))
        self._end()
        return Replayed(run.name, run.topic, sum(numbers), self._total(), True)

    def _known(self, using: str) -> tuple[Progress | None, list[str]]:
        """Return what an earlier run of this name has noted, and the groups that will get the copies.

        Raises ``NotRegistered`` or ``ReplayBegun``.
        """
        number = self.number  # This opens the archive, so do it before anything is locked or registered.
        to, group = self.run.topic, self.run.group
        groups = registration.groups_of(using, to)
        if group and group not in groups:
            raise NotRegistered(to, group)
        head = copying.head(using, self.run)
        if head is not None and head.number != number:
            raise self._other()
        return head, [group] if group else groups

    def _looked(self, head: Progress | None) -> Originals:
        found = self.look(live=self.live)
        return found if head is None else self._upto(found, head)

    def _upto(self, found: Originals, head: Progress) -> Originals:
        if found.upto < head.position:
            raise ArchiveError(
                f"replay {self.run.name!r} was started with messages up to offset {head.position}, but now there are"
                f" none above {found.upto}: the archive or the database is an older copy"
            )
        return replace(found, upto=head.position)

    def _begin(self, using: str, found: Originals, begun: bool) -> tuple[Progress, int]:
        """Note that the run begins. Return what is noted now, and the number of lanes.

        If an earlier run, or another process at the same time, has already noted it, return that note.
        """
        lanes = with_lanes(self.run, parallelism(self.spark)).lanes

        def work(cursor: CursorWrapper) -> Progress:
            head = copying.lock_head(using, cursor, self.run)
            if head is not None:
                if head.number != self.number:
                    raise self._other()
                return head
            if begun or not self._is_held(using, found):
                raise self._given_up()  # The group that held messages for this run is gone.
            copying.begin(cursor, with_lanes(self.run, lanes), found.upto, self.number)
            return Progress(found.upto, self.number, False)

        return session.run(using, work), copying.lanes_of(using, self.run)

    def _is_held(self, using: str, found: Originals) -> bool:
        """Return whether the registration that held back deletion when the messages were found still exists."""
        if not self.live:
            return True
        place = following.place(self.topic, self.guard, using=using)
        return place is not None and place.life == found.life

    def _finish(self, using: str, run: CopyRun) -> None:
        def work(cursor: CursorWrapper) -> None:
            head = copying.lock_head(using, cursor, run)
            if head is None:
                raise self._given_up()
            if not head.finished:
                copying.note_total(cursor, run, copying.copied(using, run))
                copying.finish(cursor, run)

        session.run(using, work)

    def _give_up(self, using: str, run: CopyRun) -> None:
        """Delete all notes of a run whose condition failed for a message, so that its name can be used again.

        The same transaction unsubscribes the group that holds back deletion, so that no new run relies on it. This does
        nothing if copies are stored already.
        """

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
            f"a replay {self.run.name!r} into topic {self.run.topic!r} was started with other conditions, or from"
            " another archive: run it again with those, or choose another name"
        )

    def _given_up(self) -> Superseded:
        return Superseded(
            f"another process has given up replay {self.run.name!r} into topic {self.run.topic!r}: run it again"
        )
