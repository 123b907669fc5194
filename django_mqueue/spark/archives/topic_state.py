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

HOW_TO_CONTINUE = "To continue with the remaining messages, set fail_on_data_loss=False (--allow-gaps)"


@dataclass(frozen=True)
class TopicState:
    """The state of a topic in its archive. ``upto``: the offset that each table reaches."""

    topic: str
    group: str
    upto: dict[Table, int]
    position: int = 0  # The group's offset, or the offset to which it must be moved.
    begun: bool = False  # True if the archive has a batch of the topic.
    generation: int = 0  # The generation of the group's registration; 0 before it is registered.
    lowest: int = 0  # The group's position before the last commit. The group is never below it.
    last: bulk.Last | None = None  # The last message of the archive.


def read_state(archive: Archive | None, topic: str, group: str) -> TopicState:
    """Return the state of a topic as the archive has it."""
    if archive is None:
        return TopicState(topic, group, dict.fromkeys(TABLES, 0))
    messages = archive.snapshots["messages"]
    upto: dict[Table, int] = {table: archive.upto(topic, table) for table in TABLES}
    return TopicState(
        topic, group, upto, messages.number("position", topic), messages.has_topic(topic),
        messages.number("generation", topic), messages.number("lowest", topic), archive.last(topic),
    )  # fmt: skip


def check(state: TopicState, using: str) -> None:
    """Raise ``LogGap`` if messages above the archive's end may be gone, or if the database was restored.

    A restored database gives archived offsets to new messages, which no run would archive.
    """
    topic, group = state.topic, state.group
    found = following.position(topic, group, using=using)
    if not state.begun:
        if found is not None and found.above > 0:
            raise LogGap(
                f"group {group!r} is done with topic {topic!r} up to offset {found.above}, but this archive has"
                " nothing of the topic: the group wrote another archive. Give the folder of that archive, or use"
                f" another group. {HOW_TO_CONTINUE}"
            )
        return
    if found is None or found.generation != state.generation:
        raise LogGap(
            f"group {group!r} was unsubscribed from topic {topic!r}, reset, or registered again after the archive's"
            f" last batch: messages above offset {state.position} may be deleted. {HOW_TO_CONTINUE}"
        )
    if found.above > state.position:
        raise LogGap(
            f"group {group!r} is done with topic {topic!r} up to offset {found.above}, but this archive records only"
            f" offset {state.position}: the archive is an older copy, or the group also writes another archive."
            f" Messages between these offsets may be deleted. {HOW_TO_CONTINUE}"
        )
    if gap := _find_restore(state, found, using):
        raise LogGap(". ".join(gap))


def _find_restore(state: TopicState, found: ReaderPosition, using: str) -> tuple[str, str] | None:
    """Return what shows that the database was restored, and what to do; None if nothing shows it."""
    end, known, last = state.upto["messages"], offsets.settled(using, state.topic), state.last
    if known < end:  # A run stores the settled offset before it archives, and nothing lowers it.
        known = max(known, log.newest(using, state.topic))
    row = None if last is None else bulk.name_at(using, last.offset)
    if known < end:
        why = f"this database has never settled an offset above {known}"
    elif found.above < state.lowest:
        why = f"group {state.group!r} is at offset {found.above}, but was at {state.lowest} before"
    elif last is not None and row is not None and row != (state.topic, last.id):
        why = (
            f"offset {last.offset} belonged to id {last.id!r} when it was archived, but now belongs to id {row[1]!r}"
            f" in topic {row[0]!r}"
        )
    else:
        return None
    return (
        f"topic {state.topic!r} has changed since it was archived up to offset {end}: {why}",
        "The database was restored to an earlier state (from a backup, or by a failover to a server that was behind)."
        f" Messages that were published at offsets up to {end} since then are not in the archive, and cannot be added."
        " Keep this archive, and start another one with a new folder and a new group."
        f" {HOW_TO_CONTINUE}: the archive then continues above that offset",
    )


def catch_up_group(state: TopicState, using: str) -> TopicState:
    """Register the group, move it to the archive's position if a killed run did not, and return the new state.

    The group moves only to a settled offset: a failover or a restore may just have replaced the database.
    """
    settled = offsets.settled(using, state.topic)
    position = following.follow(state.topic, state.group, state.position, 0, using=using)
    if position.above < state.position <= settled:
        following.move(state.topic, state.group, position.generation, state.position, using=using)
    return replace(state, generation=position.generation, position=max(position.above, state.position))


def check_last(state: TopicState, using: str) -> None:
    """Raise ``LogGap`` unless the log still has the batch's last message, whose deletion the group holds back."""
    last = state.last
    if last is not None and bulk.name_at(using, last.offset) != (state.topic, last.id):
        raise LogGap(
            f"topic {state.topic!r} no longer has id {last.id!r} at offset {last.offset}, although deletion was"
            " held back while it was archived: the message was deleted by hand, or the database was restored to an"
            " earlier state. This batch added nothing. Run it again: it continues, or names the cause"
        )


def check_group_unchanged(state: TopicState, using: str) -> None:
    """Raise ``LogGap`` if the group, which holds back deletion for this run, was unsubscribed, reset or moved ahead."""
    found = following.position(state.topic, state.group, using=using)
    if found is None or found.generation != state.generation or found.above > state.position:
        raise LogGap(
            f"group {state.group!r} was unsubscribed from topic {state.topic!r}, reset, or moved while the"
            " topic was archived: some messages may have been deleted before they were read. This batch added"
            " nothing"
        )


def move(state: TopicState, using: str, reader: Holder | None = None) -> None:
    """Move the group to its position, which lets the log delete the archived messages.

    Raises ``GroupTaken`` if ``reader`` was replaced. Raises ``LogGap`` if the group was unsubscribed or reset, or the
    database was restored.
    """
    try:
        following.move(state.topic, state.group, state.generation, state.position, using=using, reader=reader)
    except NotRegistered as error:
        raise LogGap(
            f"group {state.group!r} was unsubscribed from topic {state.topic!r}, or reset, while the topic was"
            f" archived. The batch itself is complete, up to offset {state.upto['messages']}"
        ) from error


def gap_above(using: str, archive: Archive, topic: str, upto: int) -> tuple[str, str] | None:
    """Return why messages above ``upto`` may be gone, and what to do; None if the group held back deletion."""
    group = archive.group
    state, position = read_state(archive, topic, group), following.position(topic, group, using=using)
    if not state.begun:
        return None
    if position is not None and position.generation == state.generation and position.above <= upto:
        return _find_restore(state, position, using)
    if position is None:
        problem = "is not registered"
    elif position.generation == state.generation:
        problem = f"was moved to offset {position.above}"
    else:
        problem = "was registered again later"
    return (
        f"the archive holds topic {topic!r} up to offset {upto}, but its group {group!r} {problem}",
        "Messages above that offset may be deleted. Archive the topic again first; or allow the gap to continue with"
        " the remaining messages",
    )
