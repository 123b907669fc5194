"""The state of a topic in its archive and in its group, and checks that both fit together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...exceptions import LogGap, NotRegistered
from ...store import log, offsets
from ...store.leases import Holder
from ..database import following
from ..database.following import ReaderPosition
from ..reader.options import Table
from ..sql import bulk
from .requests import TABLES

if TYPE_CHECKING:
    from .catalog import Archive

WAYS_OUT = "To continue with the remaining messages, set failOnDataLoss to false (--allow-gaps)"


@dataclass(frozen=True)
class Last:
    """The message that identifies the log at the archive's end."""

    offset: int
    id: str


@dataclass(frozen=True)
class TopicState:
    """The state of a topic in its archive.

    * ``upto``: the offset that each table of the archive reaches.
    * ``position``: the offset of the group, or the offset to which it must be moved.
    * ``begun``: whether the archive has a batch of the topic.
    * ``life``: the generation of the group's registration; 0 before it is registered.
    * ``lowest``: the minimum offset of the group. A killed run may not have moved the group for its last batch, but it
      moved the group for the batch before.
    * ``last``: the last message of the archive.
    """

    topic: str
    group: str
    upto: dict[Table, int]
    position: int = 0
    begun: bool = False
    life: int = 0
    lowest: int = 0
    last: Last | None = None


def read_state(archive: Archive | None, topic: str, group: str) -> TopicState:
    """Return the state of a topic as the archive has it."""
    if archive is None:
        return TopicState(topic, group, dict.fromkeys(TABLES, 0))
    messages = archive.snapshots["messages"]
    upto: dict[Table, int] = {table: archive.upto(topic, table) for table in TABLES}
    return TopicState(
        topic, group, upto, messages.number("position", topic), messages.knows(topic),
        messages.number("life", topic), messages.number("lowest", topic), archive.last(topic),
    )  # fmt: skip


def check(standing: TopicState, found: ReaderPosition | None) -> None:
    """Raise ``LogGap`` if messages above the archive's end may be deleted. ``found``: the place of the group."""
    topic, group = standing.topic, standing.group
    if not standing.begun:
        if found is not None and found.above > 0:
            raise LogGap(
                f"group {group!r} is done with topic {topic!r} up to offset {found.above}, but this archive has"
                " nothing of the topic: the group wrote another archive. Give the folder of that archive, or use"
                f" another group. {WAYS_OUT}"
            )
        return
    if found is None or found.life != standing.life:
        raise LogGap(
            f"group {group!r} was unsubscribed from topic {topic!r}, reset, or registered again after the archive's"
            f" last batch: messages above offset {standing.position} may be deleted. {WAYS_OUT}"
        )
    if found.above > standing.position:
        raise LogGap(
            f"group {group!r} is done with topic {topic!r} up to offset {found.above}, but this archive records only"
            f" offset {standing.position}: the archive is an older copy, or the group also writes another archive."
            f" Messages between these offsets may be deleted. {WAYS_OUT}"
        )


def check_log(standing: TopicState, found: ReaderPosition | None, using: str) -> None:
    """Raise ``LogGap`` if the database was set back since the topic was archived.

    Such a database uses offsets again. The log and the archive then have different messages at these offsets, and no
    run would ever archive the new messages. ``found``: the place of the group, after ``check``.
    """
    if not standing.begun:
        return
    end, known = standing.upto["messages"], offsets.settled(using, standing.topic)
    if known < end:  # A run stores the settled offset before it archives, and nothing lowers it.
        known = max(known, log.newest(using, standing.topic))
    if known < end:
        raise _went_back(standing, f"this database has never settled an offset above {known}")
    if found is not None and found.above < standing.lowest:
        raise _went_back(
            standing,
            f"group {standing.group!r} is at offset {found.above}, but was at {standing.lowest} before",
        )
    if standing.last is not None:
        row = bulk.name_at(using, standing.last.offset)
        if row is not None and row != (standing.topic, standing.last.id):
            raise _went_back(
                standing,
                f"offset {standing.last.offset} belonged to id {standing.last.id!r} when it was archived, but now"
                f" belongs to id {row[1]!r} in topic {row[0]!r}",
            )


def _went_back(standing: TopicState, why: str) -> LogGap:
    end = standing.upto["messages"]
    return LogGap(
        f"topic {standing.topic!r} has changed since it was archived up to offset {end}: {why}. The database was set"
        " back to an earlier state (by a restore, or by a failover to a server that was behind). Messages that were"
        f" published at offsets up to {end} since then are not in the archive, and cannot be added. Keep this"
        f" archive, and start another one with a new folder and a new group. {WAYS_OUT}: the archive then continues"
        " above that offset"
    )


def settle(standing: TopicState, using: str) -> TopicState:
    """Register the group, and move it to the position in the archive. Return the new state.

    A run that was killed may not have done this. The group moves only if the database has stored this position as
    settled: a failover or a restore may have replaced the database a moment ago.
    """
    settled = offsets.settled(using, standing.topic)
    place = following.follow(standing.topic, standing.group, standing.position, 0, using=using)
    if place.above < standing.position <= settled:
        following.move(standing.topic, standing.group, place.life, standing.position, using=using)
    return replace(standing, life=place.life, position=max(place.above, standing.position))


def check_last(standing: TopicState, using: str) -> None:
    """Raise ``LogGap`` unless the log holds the batch's last message. Until now the group has held back its deletion.

    A missing message was deleted by hand, or the database was set back.
    """
    last = standing.last
    if last is not None and bulk.name_at(using, last.offset) != (standing.topic, last.id):
        raise LogGap(
            f"topic {standing.topic!r} no longer has id {last.id!r} at offset {last.offset}, although deletion was"
            " held back while it was archived: the message was deleted by hand, or the database was restored to an"
            " earlier state. This batch added nothing. Run it again: the next run reports what is missing"
        )


def still(standing: TopicState, using: str) -> None:
    """Raise ``LogGap`` unless the group is where this run left it. Only this group holds back deletion for the run."""
    found = following.place(standing.topic, standing.group, using=using)
    if found is None or found.life != standing.life or found.above > standing.position:
        raise LogGap(
            f"group {standing.group!r} was unsubscribed from topic {standing.topic!r}, reset, or moved while the"
            " topic was archived: some messages may have been deleted before they were read. This batch added"
            " nothing"
        )


def move(standing: TopicState, using: str, me: Holder | None = None) -> None:
    """Move the group to its position, which lets the log delete the archived messages.

    Raises ``GroupTaken`` if ``me`` is no longer the group's reader. Raises ``LogGap`` if the group was unsubscribed or
    reset, or if the database was set back.
    """
    try:
        following.move(standing.topic, standing.group, standing.life, standing.position, using=using, me=me)
    except NotRegistered as error:
        raise LogGap(
            f"group {standing.group!r} was unsubscribed from topic {standing.topic!r}, or reset, while the topic was"
            f" archived. The batch itself is complete, up to offset {standing.upto['messages']}"
        ) from error


def check_held(using: str, archive: Archive, topic: str, upto: int) -> None:
    """Raise ``LogGap`` if messages above ``upto``, the archive's end, may be deleted because the group did not wait."""
    group = archive.group
    standing = read_state(archive, topic, group)
    if not standing.begun:
        return
    place = following.place(topic, group, using=using)
    if place is not None and place.life == standing.life and place.above <= upto:
        check_log(standing, place, using)
        return
    problem = (
        "is not registered"
        if place is None
        else f"was moved to offset {place.above}"
        if place.life == standing.life
        else "was registered again later"
    )
    raise LogGap(
        f"the archive holds topic {topic!r} up to offset {upto}, but its group {group!r} {problem}: messages above"
        " that offset may be deleted. Archive the topic again first; or allow the gap to continue with the remaining"
        " messages"
    )
