"""A streaming query as a consumer group. It sends heartbeats, and moves the group up to what is durable."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...exceptions import GroupTaken, LogGap, NotRegistered
from ...store.leases import Holder
from ..database import following
from ..database.following import ReaderPosition
from ..database.heartbeating import Heartbeats
from ..reader.options import ReadOptions
from . import incarnations
from .checkpoint import Checkpoint, Offsets
from .incarnations import CreationTime

HOW_TO_CONTINUE = "To continue with the remaining messages, set 'failOnDataLoss' to false"


class GroupReader:
    """One query's membership in its group, on all its topics."""

    def __init__(self, options: ReadOptions, created: float | None = None) -> None:
        """``created``: when this process was created, by ``incarnations.clock``. Default: now."""
        assert options.group is not None
        self.group, self.options = options.group, options
        self._positions: dict[str, ReaderPosition] = {}
        self._members: dict[str, Holder] = {}
        self._resumed: set[str] = set()
        self._checkpoint = Checkpoint(options.checkpoint) if options.checkpoint else None
        self._query = ""
        self._created = incarnations.clock() if created is None else created
        self._created_at: CreationTime | None = None
        self._planned: Offsets | None = None
        self._is_checkpoint_checked = False
        self._heartbeats = Heartbeats(options.connecting, after=self._follow_checkpoint)

    @property
    def generations(self) -> dict[str, int]:
        return {topic: position.generation for topic, position in self._positions.items()}

    def begin(self, using: str, starts: Mapping[str, tuple[int, int]]) -> dict[str, ReaderPosition]:
        """Return the group's position on each topic. Register the group on topics where it is new.

        ``starts``: the ``targets`` of ``following.follow_all``. If only some of the topics are new, another query may
        read for the group. So before it joins, a query waits until no other reader is alive. Raises ``GroupTaken`` if
        a reader stays alive; then nothing is changed.
        """
        if not self._members:
            registered = [topic for topic in starts if following.position(topic, self.group, using=using)]
            for topic in registered if len(registered) < len(starts) else ():
                following.wait_until_alone(topic, self.group, using=using)
        positions = following.follow_all(starts, self.group, using=using)
        self._positions |= positions
        return positions

    def resume(self, using: str, start: Offsets) -> None:
        """Become the group's reader from ``start``. Raises ``GroupTaken``, or ``LogGap`` if messages may be deleted."""
        topics = [topic for topic in self._selected_topics(start) if topic not in self._resumed]
        if new := [topic for topic in topics if topic not in self._members]:
            self._join(using, new, start)
        for topic in topics:
            self._resume(using, topic, start)
            self._resumed.add(topic)

    def holds_back_deletion(self, using: str, topic: str, start: Offsets) -> bool:
        """Return whether the group still holds back deletion above ``start``. For topics that are no longer read."""
        return self._gap(using, topic, start)[1] is None

    def check(self, using: str, topic: str, start: Offsets) -> None:
        """Raise ``LogGap`` if messages above ``start`` may be deleted, ``GroupTaken`` if another reader took over."""
        if topic in self._members:
            following.check_reader(self._members[topic], using=using)
            start = start.moved({}, {topic: self._positions[topic].generation})
        self._report(self._gap(using, topic, start)[1])

    def done(self, using: str, upto: Offsets) -> None:
        """Move the group up to these offsets: all below is durably done. Raises ``LogGap`` or ``GroupTaken``."""
        self.resume(using, upto)
        for topic in self._selected_topics(upto):
            self._done(using, topic, upto.above(topic))

    def note_planned(self, ended: Offsets) -> None:
        """Note the end of a planned batch. The heartbeats then look for it in the checkpoint."""
        self._planned = ended

    def check_checkpoint(self) -> None:
        """Raise ``OptionError`` if the named checkpoint shows no batch of this query. Call it when a batch is done."""
        if self._checkpoint is not None and not self._is_checkpoint_checked:
            self._checkpoint.check(self._query)
            self._is_checkpoint_checked = True

    def stop(self) -> None:
        """Move the group up to the last durable batch, and leave it, so that another reader can join at once."""
        self._heartbeats.stop()

    def _selected_topics(self, offsets: Offsets) -> list[str]:
        """Return the topics that the options still select. A checkpoint also keeps the topics of earlier options."""
        return [topic for topic in offsets.next if self.options.reads(topic)]

    def _done(self, using: str, topic: str, above: int) -> None:
        try:
            self._move(using, topic, above)
        except NotRegistered:
            self._report(self._changed(topic, above))
            # Register the group again, if no other process is the reader now.
            following.join_all([self._members[topic]], list(self._members.values()), using=using)
            self._positions[topic] = following.follow(topic, self.group, above, 0, using=using)
            self._move(using, topic, above)

    def _move(self, using: str, topic: str, above: int) -> None:
        position = self._positions[topic]
        if above > position.above:
            try:
                following.move(
                    topic, self.group, position.generation, above, using=using, reader=self._members[topic]
                )
            except LogGap as gap:
                self._report(f"{gap}. New messages with these offsets may be missed. {HOW_TO_CONTINUE}")
                return
            self._positions[topic] = ReaderPosition(position.generation, above)

    def _follow_checkpoint(self, using: str) -> None:
        """Move the group up to the checkpoint's durable batch. Ignore refusals: ``done`` and ``check`` raise them."""
        if self._checkpoint is None or (planned := self._planned) is None:
            return
        found = self._checkpoint.durable(self._query)
        if found is None:
            return
        for topic in found.next.keys() & self._members.keys() & found.generations.keys():
            generation, above = found.generations[topic], found.above(topic)
            with suppress(NotRegistered, GroupTaken, LogGap):
                following.move(topic, self.group, generation, above, using=using, reader=self._members[topic])
        if found.next == planned.next and self._planned is planned:
            self._planned = None

    def _resume(self, using: str, topic: str, start: Offsets) -> None:
        found, problem = self._gap(using, topic, start)
        self._report(problem)
        if problem or not found:
            found = following.follow(topic, self.group, start.above(topic), 0, using=using)
        self._positions[topic] = found

    def _gap(self, using: str, topic: str, start: Offsets) -> tuple[ReaderPosition | None, str | None]:
        """Return the group's position, and why messages above ``start`` may be deleted; None if they cannot be."""
        found = following.position(topic, self.group, using=using)
        generation, above = start.generations.get(topic), start.above(topic)
        if found is None or found.generation != generation:
            return found, self._changed(topic, above)
        if found.above > above:
            return found, (
                f"group {self.group!r} is done with topic {topic!r} up to offset {found.above}, but this query's"
                f" checkpoint is only at {above}: another query has read for the group since then. Messages between"
                f" these offsets may be deleted. Use one group for each query. {HOW_TO_CONTINUE}"
            )
        return found, None

    def _report(self, problem: str | None) -> None:
        """Raise ``LogGap`` for a problem; if the options allow data loss, only warn. None: there is no problem."""
        if problem is None:
            return
        if self.options.fail_on_data_loss:
            raise LogGap(problem)
        warnings.warn(problem, stacklevel=2)

    def _changed(self, topic: str, above: int) -> str:
        return (
            f"group {self.group!r} was unsubscribed from topic {topic!r}, reset, or registered again since this query"
            f" was at offset {above}. Messages above that offset may be deleted. A new checkpointLocation starts at"
            f" the group's current position. {HOW_TO_CONTINUE}"
        )

    def _join(self, using: str, topics: Sequence[str], start: Offsets) -> None:
        """Join the group on these topics as its reader, in place of an earlier process of this query.

        This process may have been suspended. So it raises ``GroupTaken`` if a later process is alive, and ``LogGap`` if
        the checkpoint is behind the group and ``fail_on_data_loss`` is set.
        """
        name = f"{following.READER_PREFIX}{start.query[:12]}"
        created_at = self._created_at = self._created_at or CreationTime.of(self._created, using)
        new = {topic: Holder(self.group, topic, name, created_at.incarnation) for topic in topics}

        def before() -> None:
            for reader in new.values():
                following.check_newest(reader, created_at.is_before, using=using)
            for topic in topics if self.options.fail_on_data_loss else ():
                self._report(self._gap(using, topic, start)[1])

        joined = list(self._members.values())
        following.join_all(list(new.values()), joined, using=using, before=before)
        self._query = start.query
        self._members |= new
        self._heartbeats.add(new.values())
