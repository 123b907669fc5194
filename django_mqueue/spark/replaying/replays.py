"""Messages of an archive stored anew, as copies that tell their origin."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

from django.db.backends.utils import CursorWrapper

from ...exceptions import NotRegistered
from ...service import copying, registration
from ...service.copying import Run
from ...store import session
from ...store.copies import Mark
from ..errors import ReplayBegun
from .asking import check_replay
from .choice import Choice
from .held import Held
from .originals import Originals
from .preview import Preview, preview
from .running import computed
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

    ``name`` says which replay it is: run again under its name, it goes on where it was, whatever has happened to its
    messages since. ``dry_run`` changes nothing, and tells what would be stored. ``stopping`` ends a run early;
    ``watch`` is called every second with how many are stored.

    Raises ``NotRegistered`` for a group that is not registered for ``to``, ``ReplayBegun`` for a name that was begun
    with other conditions, ``LogGap`` where messages between archive and log may be deleted (unless
    ``fail_on_data_loss`` is False), ``NoArchive``, ``NoSuchTopic``, ``OptionError``, and ``ValueError`` for bad
    arguments.
    """
    given, to = dict(options or {}), topic if to is None else to
    choice = Choice(since, until, keys, kinds, where, targeted, group or "")
    check_replay(topic, name, choice, source, to, group, rate, given)
    one = _Replay(
        spark, topic, source, live or source is None, choice, given, Run(KIND, name, to, group=group or "")
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
        live: bool,
        choice: Choice,
        options: Mapping[str, str],
        run: Run,
    ) -> None:
        super().__init__(spark, topic, source, options, f"{KIND}-{run.name}")
        self.live, self.choice, self.run = live, choice, run

    @property
    def number(self) -> int:
        """What it must be a second time, too: the choice, where from, and whom for."""
        return (self.choice.digest ^ hash_of(self.topic, str(self.live))) & ((1 << 62) - 1)

    def preview(self) -> Preview:
        head, groups = self.line.run(self._known)
        found = self.look(live=self.live)
        if head is not None:
            found = self._upto(found, head)
        lanes = self.line.run(lambda using: copying.lanes_of(using, self.run))
        done = self.line.run(lambda using: copying.copied(using, with_lanes(self.run, lanes))) if lanes else 0
        return preview(
            self.choice.of(found.frame(self.spark, self.options, targeted=self.choice.targeted)),
            name=self.run.name,
            topic=self.topic,
            to=self.run.topic,
            groups=groups,
            stored=head.number if head and head.finished else done,
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
            self._end()
            return Replayed(self.run.name, self.run.topic, 0, head.number, True, True)
        # What cannot be is found out before anything is noted.
        self.choice.of(
            self.look(live=self.live).frame(self.spark, self.options, targeted=self.choice.targeted)
        )
        found = self.hold(fail_on_data_loss) if self.live else self.look(live=False)
        head, lanes = self.line.run(lambda using: self._begin(using, found.upto))
        run = with_lanes(self.run, lanes)
        frame = self._upto(found, head).frame(self.spark, self.options, targeted=self.choice.targeted)
        wanted = stored(self.choice.of(frame), Orders(self.how, run, self.topic, rate))

        def tell() -> None:
            if watch is not None:
                watch(self.line.run(lambda using: copying.copied(using, run)))

        numbers = computed(self.spark, wanted, stopping, tell)
        total = self.line.run(lambda using: copying.copied(using, run))
        if numbers is None:
            return Replayed(run.name, run.topic, 0, total, False)
        self.line.run(lambda using: self._finish(using, run, total))
        self._end()
        return Replayed(run.name, run.topic, sum(numbers), total, True)

    def _known(self, using: str) -> tuple[Mark | None, list[str]]:
        """What an earlier run of the name has noted, and who will be given the copies."""
        to, group = self.run.topic, self.run.group
        groups = registration.groups_of(using, to)
        if group and group not in groups:
            raise NotRegistered(to, group)
        head = copying.head(using, self.run)
        if head is not None and not head.finished and head.number != self.number:
            raise self._begun()
        return head, [group] if group else groups

    def _upto(self, found: Originals, head: Mark) -> Originals:
        return Originals(found.topic, found.archive, found.archived, head.position, found.live)

    def _begin(self, using: str, upto: int) -> tuple[Mark, int]:
        lanes = with_lanes(self.run, parallelism(self.spark)).lanes

        def work(cursor: CursorWrapper) -> Mark:
            head = copying.lock_head(using, cursor, self.run)
            if head is None:
                copying.begin(cursor, with_lanes(self.run, lanes), upto, self.number)
                return Mark(upto, self.number, False, 0)
            if head.finished or head.number != self.number:
                raise self._begun()
            return head

        return session.run(using, work), copying.lanes_of(using, self.run)

    def _finish(self, using: str, run: Run, total: int) -> None:
        def work(cursor: CursorWrapper) -> None:
            head = copying.lock_head(using, cursor, run)
            if head is not None and not head.finished:
                copying.finish(cursor, run, total)

        session.run(using, work)

    def _end(self) -> None:
        if self.live:
            self.let_go()

    def _begun(self) -> ReplayBegun:
        return ReplayBegun(
            f"a replay {self.run.name!r} into topic {self.run.topic!r} was begun with other conditions: run it again"
            " with those, or take another name"
        )


def hash_of(*texts: str) -> int:
    """62 bits of a digest."""
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest()) >> 2


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, about; a Spark Connect server does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)
