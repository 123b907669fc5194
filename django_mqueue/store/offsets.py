"""Registrations of groups, and the rows of topics, in ``queue_offsets``. ``positions`` has its rows of partitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from .connection import errors, session
from .connection.dialect import GROUP_ROW, NOW_MS, TOPIC_ROW, for_share, placeholders
from .connection.second_connection import outside_snapshot
from .log import MessageIdentity

COLUMNS = "(consumer_group, topic, partition_key, offset_acked, scan_offset, paused, updated_at)"
INSERT_TOPIC_ROW = (
    f"INSERT INTO queue_offsets {COLUMNS} VALUES ('', %s, '', 0, 0, 0, 0)"
    " ON DUPLICATE KEY UPDATE offset_acked = offset_acked"
)
REGISTRATION = "id, offset_acked, paused, updated_at, scan_offset"
"""The columns that ``parse_registration`` takes."""


@dataclass(frozen=True)
class Registration:
    """A group's registration for a topic.

    ``generation``: changes when the group is reset or subscribes again. ``changed``: the time of the last change of
    the group or, by an operator, of its messages (epoch milliseconds). ``reads_log``: the group reads the log
    directly, and its start moves with its progress. ``resetting``: nothing is delivered until the group's old state
    is removed.
    """

    generation: int
    start: int
    paused: bool
    changed: int
    reads_log: bool
    resetting: bool = False

    @property
    def is_suspended(self) -> bool:
        """Return whether delivery is suspended."""
        return self.paused or self.resetting


READS_LOG, REMOVING = -1, -2
"""Values of a registration's ``scan_offset``: the group reads the log directly; its ``removal`` is not finished."""


def registration(using: str, group: str, topic: str) -> Registration | None:
    rows = session.fetch(using, f"SELECT {REGISTRATION} FROM queue_offsets {GROUP_ROW}", [group, topic])
    return parse_registration(rows[0]) if rows else None


def registrations(using: str, topic: str) -> dict[str, Registration]:
    """Return the registrations of a topic by group, in the order of the names."""
    rows = session.fetch(
        using,
        f"SELECT consumer_group, {REGISTRATION} FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        " WHERE topic = %s AND partition_key = '' AND consumer_group > '' ORDER BY consumer_group",
        [topic],
    )
    return {group: parse_registration(row) for group, *row in rows}


def parse_registration(row: Sequence[Any]) -> Registration:
    """Return the registration of (id, start, paused, time of the last change, scan offset)."""
    generation, start, paused, changed, scanned = row
    reads_log, resetting = int(scanned) == READS_LOG, int(scanned) == REMOVING
    return Registration(int(generation), int(start), bool(paused), int(changed), reads_log, resetting)


def registered_among(
    cursor: CursorWrapper, topic: str, groups: Collection[str], *, locking: bool = False
) -> dict[str, tuple[int, int]]:
    """Return (generation, start) of each group that is registered. ``locking``: lock their rows in share mode."""
    if not groups:
        return {}
    cursor.execute(
        "SELECT consumer_group, id, offset_acked FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group IN ({placeholders(sorted(groups))}) AND topic = %s AND partition_key = ''"
        f"{' LOCK IN SHARE MODE' if locking else ''}",
        [*sorted(groups), topic],
    )
    return {group: (int(generation), int(start)) for group, generation, start in cursor.fetchall()}


def lock_registrations(
    cursor: CursorWrapper, topic: str, groups: Collection[str]
) -> dict[str, tuple[int, int] | None]:
    """Return (generation, start) of each group, or None if it is not registered, and lock it in share mode.

    Groups that an open transaction changes are left out.
    """
    found: dict[str, tuple[int, int] | None] = {}
    for group in sorted(groups):
        try:
            lock = for_share(cursor.db.alias, "NOWAIT")
            cursor.execute(f"SELECT id, offset_acked FROM queue_offsets {GROUP_ROW} {lock}", [group, topic])
        except DatabaseError as error:
            if not errors.is_locked(error):
                raise
        else:
            row = cursor.fetchone()
            found[group] = None if row is None else (int(row[0]), int(row[1]))
    return found


def registered_now(cursor: CursorWrapper, topic: str, groups: Collection[str]) -> set[str]:
    """Return the groups that are registered, also if they registered after the transaction's snapshot."""
    using = cursor.db.alias
    known = set(registered_among(cursor, topic, groups))
    rest = set(groups) - known
    with outside_snapshot(using) as fresh:
        if fresh == using or not rest:
            return known
        return known | set(
            session.run_statement(fresh, lambda beside: registered_among(beside, topic, rest), locks=False)
        )


def lock_topic(cursor: CursorWrapper, topic: str) -> int:
    """Lock the topic's row, and create it if it is missing. Return the settled offset.

    Register, unsubscribe, reset and GC hold this lock, so that none of them sees another's unfinished change.
    """
    cursor.execute(f"SELECT 1 FROM queue_offsets {TOPIC_ROW}", [topic])
    if cursor.fetchone() is None:
        # Insert only a missing row: at REPEATABLE READ, a duplicate also locks the end of the table, and no worker
        # could insert a position until the caller's transaction ends.
        cursor.execute(INSERT_TOPIC_ROW, [topic])
    cursor.execute(f"SELECT offset_acked FROM queue_offsets {TOPIC_ROW} FOR UPDATE", [topic])
    return int(cursor.fetchone()[0])


def settled(using: str, topic: str) -> int:
    """Return the stored settled offset of a topic. No transaction can still commit a message at or below it."""
    rows = session.fetch(using, f"SELECT offset_acked FROM queue_offsets {TOPIC_ROW}", [topic])
    return int(rows[0][0]) if rows else 0


def store_settled(using: str, topic: str, newest: MessageIdentity) -> int | None:
    """Store ``newest`` as settled, for all workers. Return the stored offset; None if the topic's row is locked.

    Store nothing if the log no longer holds this message: after a restore, its offset may be handed out again.
    """

    def work(cursor: CursorWrapper) -> int | None:
        # The subselect locks nothing: FOR UPDATE does not apply to it.
        cursor.execute(
            "SELECT offset_acked, EXISTS (SELECT 1 FROM queue_messages m FORCE INDEX (PRIMARY)"
            " WHERE m.`offset` = %s AND m.topic = %s AND m.id = %s AND m.published_at = %s)"
            f" FROM queue_offsets {TOPIC_ROW} FOR UPDATE SKIP LOCKED",
            [newest.offset, topic, newest.id, newest.published_at, topic],
        )
        row = cursor.fetchone()
        if row is None:
            return None
        known, exists = int(row[0]), bool(row[1])
        if known >= newest.offset or not exists:
            return known
        advance_settled(cursor, topic, newest.offset)
        return newest.offset

    return session.run(using, work)


def advance_settled(cursor: CursorWrapper, topic: str, offset: int) -> None:
    """Store a higher settled offset in the topic's row, which this transaction has locked."""
    cursor.execute(
        "UPDATE queue_offsets FORCE INDEX (queue_offsets_partition)"
        " SET offset_acked = GREATEST(offset_acked, %s)"
        " WHERE consumer_group = '' AND topic = %s AND partition_key = ''",
        [offset, topic],
    )


def lock_registration(
    cursor: CursorWrapper, group: str, topic: str, *, shared: bool = False
) -> Registration | None:
    """Lock a group's registration, and return it; None if there is none. While the topic is locked, none is added.

    ``shared``: lock it in share mode.
    """
    lock = "LOCK IN SHARE MODE" if shared else "FOR UPDATE"
    cursor.execute(f"SELECT {REGISTRATION} FROM queue_offsets {GROUP_ROW} {lock}", [group, topic])
    row = cursor.fetchone()
    return None if row is None else parse_registration(row)


def register(
    cursor: CursorWrapper,
    group: str,
    topic: str,
    start: int,
    *,
    paused: bool = False,
    reads_log: bool = False,
    resetting: bool = False,
) -> None:
    """Insert a group's registration. The group must not be registered, and the topic must be locked."""
    scanned = READS_LOG if reads_log else REMOVING if resetting else start
    cursor.execute(
        f"INSERT INTO queue_offsets {COLUMNS} VALUES (%s, %s, '', %s, %s, %s, {NOW_MS})",
        [group, topic, start, scanned, paused],
    )


def end_reset(cursor: CursorWrapper, group: str, topic: str, *, wait: bool) -> bool:
    """End the reset of a group, if any, with a new generation. Return False if its row is locked."""
    cursor.execute(f"SELECT scan_offset FROM queue_offsets {GROUP_ROW}", [group, topic])
    registered = cursor.fetchone()
    if registered is None or int(registered[0]) != REMOVING:
        return True
    lock = f"FOR UPDATE{'' if wait else ' SKIP LOCKED'}"
    cursor.execute(f"SELECT id, offset_acked, paused FROM queue_offsets {GROUP_ROW} {lock}", [group, topic])
    row = cursor.fetchone()
    if row is None:
        return False
    cursor.execute("DELETE o FROM queue_offsets o FORCE INDEX (PRIMARY) WHERE id = %s", [row[0]])
    register(cursor, group, topic, int(row[1]), paused=bool(row[2]))
    return True


def was_delivered_to(cursor: CursorWrapper, group: str, topic: str) -> bool:
    """Return whether workers consume or have consumed for the group: it has positions, leases or delivery state."""
    partitions = "consumer_group = %s AND topic = %s AND partition_key > ''"
    cursor.execute(
        f"SELECT EXISTS (SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE {partitions})"
        f" OR EXISTS (SELECT 1 FROM queue_partition_leases FORCE INDEX (queue_leases_partition) WHERE {partitions})"
        f" OR EXISTS (SELECT 1 FROM queue_delivery_state FORCE INDEX (PRIMARY) WHERE {partitions})",
        [group, topic] * 3,
    )
    return bool(cursor.fetchone()[0])


def move_start(cursor: CursorWrapper, group: str, topic: str, generation: int, to: int) -> bool:
    """Move the start of a group that reads the log forward. Return False if its generation is not ``generation``."""
    cursor.execute(
        "UPDATE queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" SET offset_acked = GREATEST(offset_acked, %s), updated_at = {NOW_MS}"
        " WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND id = %s AND scan_offset = %s",
        [to, group, topic, generation, READS_LOG],
    )
    return bool(cursor.rowcount)


def lower_start(cursor: CursorWrapper, group: str, topic: str, to: int) -> None:
    """Move back the start of a group that reads the log directly, so that GC keeps more. The topic must be locked."""
    cursor.execute(
        f"UPDATE queue_offsets FORCE INDEX (queue_offsets_partition) SET offset_acked = %s, updated_at = {NOW_MS}"
        " WHERE consumer_group = %s AND topic = %s AND partition_key = ''",
        [to, group, topic],
    )


def set_paused(cursor: CursorWrapper, topic: str, group: str | None, *, paused: bool) -> int:
    """Pause or resume a group, or all groups of a topic that do not read the log. Return how many this changes."""
    but_readers = f" AND scan_offset <> {READS_LOG}" if paused else ""
    of_group, params = ("= %s", [group]) if group is not None else ("> ''", [])
    # For all groups, queue_offsets_partition would read the positions of other topics, with locks.
    index = "queue_offsets_partition" if group is not None else "queue_offsets_groups"
    cursor.execute(
        f"SELECT id FROM queue_offsets FORCE INDEX ({index}) WHERE consumer_group {of_group}"
        f" AND topic = %s AND partition_key = ''{but_readers} AND paused <> %s FOR UPDATE",
        [*params, topic, paused],
    )
    ids = [int(number) for (number,) in cursor.fetchall()]
    if ids:
        cursor.execute(
            f"UPDATE queue_offsets FORCE INDEX (PRIMARY) SET paused = %s, updated_at = {NOW_MS}"
            f" WHERE id IN ({placeholders(ids)})",
            [paused, *ids],
        )
    return len(ids)


def pauses(using: str, topic: str) -> dict[str, bool]:
    """Return whether each group of a topic is paused, by name. Groups that read the log directly are left out."""
    return {group: one.paused for group, one in registrations(using, topic).items() if not one.reads_log}


def delivery_starts(using: str, topic: str) -> dict[str, int]:
    """Return the start offset of each registered group that messages are delivered to."""
    return {group: one.start for group, one in registrations(using, topic).items() if not one.reads_log}


def unregister(cursor: CursorWrapper, group: str, topic: str, *, members_stay: bool = False) -> bool:
    """Delete a group's registration and heartbeats. Return whether it was registered. ``removal`` deletes the rest.

    While the row is locked, no claim and no move of a watermark is in progress. ``members_stay`` keeps the heartbeats:
    they show which of two subscribers with the same name started last.
    """
    cursor.execute(f"DELETE o FROM queue_offsets o {GROUP_ROW}", [group, topic])
    was_registered = bool(cursor.rowcount)
    if not members_stay:
        cursor.execute(
            "DELETE t FROM queue_subscriber_heartbeats t FORCE INDEX (queue_heartbeats_subscriber)"
            " WHERE consumer_group = %s AND topic = %s",
            [group, topic],
        )
    return was_registered
