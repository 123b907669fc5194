"""A streaming query that is a consumer group: it says that it lives, and how far it is durably done."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress

from django.db import DatabaseError

from ..exceptions import GroupTaken, LogGap, MQueueError, NotRegistered
from ..service import following
from ..service.following import Place
from ..store.leases import Holder
from . import incarnations
from .checkpoint import Checkpoint
from .connecting import connected
from .incarnations import Birth
from .offsets import Offsets
from .options import ReadOptions

BEAT_EVERY = following.ALIVE_MS / 3000
GO_ON = "'failOnDataLoss' set to false goes on with what is there"


class Follower:
    """One query's part in its group, over all its topics."""

    def __init__(self, options: ReadOptions, made: float | None = None) -> None:
        """``made``: when this process was, by ``incarnations.clock``; None: now."""
        assert options.group is not None
        self.group, self.options = options.group, options
        self._places: dict[str, Place] = {}
        self._members: dict[str, Holder] = {}
        self._resumed: set[str] = set()
        self._checkpoint = Checkpoint(options.checkpoint) if options.checkpoint else None
        self._query = ""
        self._made = incarnations.clock() if made is None else made
        self._birth: Birth | None = None
        self._incarnation = ""
        """Of this process: one that was started from the same checkpoint has the same name, and is another."""
        self._planned: Offsets | None = None
        self._is_ours = False
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    @property
    def lives(self) -> dict[str, int]:
        return {topic: place.life for topic, place in self._places.items()}

    def begin(self, using: str, wanted: Mapping[str, tuple[int, int]]) -> dict[str, Place]:
        """Where the group stands on each topic; one that is new there, above the first number (see ``follow_all``).

        Others may read for it yet. But whoever lives is told before anything is changed.
        """
        if not self._members:
            there = [topic for topic in wanted if following.place(topic, self.group, using=using)]
            for topic in there if len(there) < len(wanted) else ():
                following.wait_for_silence(topic, self.group, using=using)
        places = following.follow_all(wanted, self.group, using=using)
        self._places |= places
        return places

    def resume(self, using: str, begun: Offsets) -> None:
        """Be the group's reader, from there on. Raises ``LogGap`` if what is above may be deleted.

        Of the topics that are still read: a checkpoint names others for ever.
        """
        topics = [topic for topic in self._read(begun) if topic not in self._resumed]
        if new := [topic for topic in topics if topic not in self._members]:
            self._join(using, new, begun)
        for topic in topics:
            self._resume(using, topic, begun)
            self._resumed.add(topic)

    def holds(self, using: str, topic: str, begun: Offsets) -> bool:
        """Whether all that a batch begins with is there, of a topic that is read no more: the batch was planned before.

        Its group need not wait for it any more, and is moved no more.
        """
        found = following.place(topic, self.group, using=using)
        return self._gap(topic, found, begun.lives.get(topic), begun.above(topic)) is None

    def check(self, using: str, topic: str, begun: Offsets) -> None:
        """All above that was there until now. Raises ``LogGap`` if not, ``GroupTaken`` if another one reads now."""
        life = begun.lives.get(topic)
        if topic in self._members:
            following.check_reader(self._members[topic], using=using)
            life = self._places[topic].life
        found = following.place(topic, self.group, using=using)
        self._tell(self._gap(topic, found, life, begun.above(topic)))

    def done(self, using: str, upto: Offsets) -> None:
        """The query is durably done up to there. Raises ``LogGap`` if the group is not where it was."""
        self.resume(using, upto)
        for topic in self._read(upto):
            self._done(using, topic, upto.above(topic))

    def planned(self, ended: Offsets) -> None:
        """A batch was planned that ends there: from now on its checkpoint may say that it is durable."""
        self._planned = ended

    def check_checkpoint(self) -> None:
        """A batch was done. Raises ``OptionError`` if the checkpoint that was named is another query's."""
        if self._checkpoint is None or self._is_ours:
            return
        try:
            self._is_ours = self._checkpoint.durable(self._query) is not None
        except OSError as error:
            raise self._checkpoint.foreign() from error
        if not self._is_ours:
            raise self._checkpoint.foreign()

    def stop(self) -> None:
        """Follow the last batch, and let another read for the group at once.

        What is not reachable now is found out by its silence.
        """
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        if self._members:
            with suppress(Exception), connected(self.options.connecting) as using:
                with suppress(Exception):
                    self._follow_checkpoint(using)
                for me in self._members.values():
                    following.leave(me, using=using)

    def _read(self, told: Offsets) -> list[str]:
        return [topic for topic in told.next if self.options.reads(topic)]

    def _done(self, using: str, topic: str, above: int) -> None:
        try:
            self._move(using, topic, above)
        except NotRegistered:
            self._tell(self._changed(topic, above))
            self._begin_anew(using, topic, above)
            self._move(using, topic, above)

    def _move(self, using: str, topic: str, above: int) -> None:
        place = self._places[topic]
        if above > place.above:
            try:
                following.move(topic, self.group, place.life, above, using=using, me=self._members[topic])
            except LogGap as gap:
                self._tell(f"{gap}. Messages that it has since then up to there may be missed; {GO_ON}")
                return
            self._places[topic] = Place(place.life, above)

    def _begin_anew(self, using: str, topic: str, above: int) -> None:
        """In another life of the group, as its reader, unless another one is that by now."""
        following.join_all([self._members[topic]], list(self._members.values()), using=using)
        self._places[topic] = following.follow(topic, self.group, above, 0, using=using)

    def _follow_checkpoint(self, using: str) -> None:
        """Be done with what the checkpoint says is durable, before Spark looks for the next batch, or if it never does.

        Whoever's place it is not any more moves nothing, and is told by ``done`` or ``check``.
        """
        if self._checkpoint is None or (planned := self._planned) is None:
            return
        found = self._checkpoint.durable(self._query)
        if found is None:
            return
        for topic in found.next.keys() & self._members.keys() & found.lives.keys():
            life, above = found.lives[topic], found.above(topic)
            with suppress(NotRegistered, GroupTaken, LogGap):
                following.move(topic, self.group, life, above, using=using, me=self._members[topic])
        if found.next == planned.next and self._planned is planned:
            self._planned = None

    def _resume(self, using: str, topic: str, upto: Offsets) -> None:
        """Go on from a checkpoint: nothing above it may have been deleted since."""
        above, found = upto.above(topic), following.place(topic, self.group, using=using)
        problem = self._gap(topic, found, upto.lives.get(topic), above)
        self._tell(problem)
        if problem or not found:
            found = following.follow(topic, self.group, above, 0, using=using)
        self._places[topic] = found

    def _gap(self, topic: str, found: Place | None, life: int | None, above: int) -> str | None:
        """Why something above that may be deleted: None if the group has held it back, in that life, all the time."""
        if found is None or found.life != life:
            return self._changed(topic, above)
        if found.above > above:
            return (
                f"group {self.group!r} is done with topic {topic!r} up to offset {found.above}, but this query's"
                f" checkpoint is only at {above}: another query has read for it since, and what lies between may be"
                f" deleted. Give each query a group of its own; {GO_ON}"
            )
        return None

    def _tell(self, problem: str | None) -> None:
        if problem is not None and self.options.fail_on_data_loss:
            raise LogGap(problem)
        if problem is not None:
            warnings.warn(problem, stacklevel=2)

    def _changed(self, topic: str, above: int) -> str:
        return (
            f"group {self.group!r} was unsubscribed from topic {topic!r}, reset, or registered anew since this query"
            f" was at offset {above}, and messages above that may be deleted. A new checkpointLocation begins where the"
            " group stands now; 'failOnDataLoss' set to false goes on from the checkpoint with what is there"
        )

    def _join(self, using: str, topics: Sequence[str], begun: Offsets) -> None:
        """Who was made before the reader of this checkpoint, or whose checkpoint is behind its group, takes nobody's
        place: a process that stood still, perhaps."""
        name = f"{following.READER}{begun.query[:12]}"
        if self._birth is None:
            self._birth = Birth.of(self._made, using)
            self._incarnation = self._birth.incarnation()
        birth = self._birth
        new = {topic: Holder(self.group, topic, name, self._incarnation) for topic in topics}

        def before() -> None:
            for me in new.values():
                following.check_newest(me, birth.is_before, using=using)
            for topic in topics if self.options.fail_on_data_loss else ():
                found = following.place(topic, self.group, using=using)
                self._tell(self._gap(topic, found, begun.lives.get(topic), begun.above(topic)))

        held = list(self._members.values())
        following.join_all(list(new.values()), held, using=using, before=before)
        self._query = begun.query
        self._members |= new
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, name="mqueue-heartbeat", daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        """In a thread of its own: a batch may take hours."""
        while not self._stop.wait(BEAT_EVERY):
            with suppress(MQueueError, DatabaseError, OSError), connected(self.options.connecting) as using:
                for me in list(self._members.values()):
                    following.beat(me, using=using)
                self._follow_checkpoint(using)
