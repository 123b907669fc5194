"""Leases, ``queue_partition_leases``: only a lease's holder may deliver from the partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .connection import session
from .connection.dialect import GROUP_ROW, NOW_MS, flat, for_share, placeholders
from .offsets import REMOVING


@dataclass(frozen=True)
class Holder:
    """One incarnation of one subscriber. ``incarnation`` is new with each start, and statements compare it."""

    group: str
    topic: str
    name: str
    incarnation: str


_OF_GROUP = "WHERE consumer_group = %s AND topic = %s"
COUNTS = (
    f"(SELECT COUNT(*) FROM queue_partition_leases FORCE INDEX (queue_leases_partition) {_OF_GROUP}),"
    f" (SELECT COUNT(*) FROM queue_partition_leases FORCE INDEX (queue_leases_holder) {_OF_GROUP} AND holder = '')"
    f" + (SELECT COUNT(*) FROM queue_partition_leases FORCE INDEX (queue_leases_renewed) {_OF_GROUP}"
    f" AND lease_renewed_at <= {NOW_MS} - %s AND holder <> '')"
)
"""SQL for two columns: the number of a group's leases, and how many of them are free or expired.

Its parameters are group and topic, three times, and the lease duration. A renewal changes only
``queue_leases_renewed``. The old entry is read only if InnoDB has not purged it after a lease duration.
"""

LOCK_OWNED = (
    "SELECT l.partition_key FROM queue_offsets r FORCE INDEX (queue_offsets_partition)"
    " STRAIGHT_JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
    " ON l.consumer_group = r.consumer_group AND l.topic = r.topic"
    " WHERE r.consumer_group = %s AND r.topic = %s AND r.partition_key = '' AND r.id = %s AND r.paused = 0"
    f" AND r.scan_offset <> {REMOVING}"
    " AND l.partition_key IN ({partitions}) AND l.holder = %s {locking}"
)
"""Finds the registration by ``queue_offsets_partition``, then the leases by ``queue_leases_partition``."""
LOCK_UNLOCKED = (
    "SELECT id FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
    " WHERE consumer_group = %s AND topic = %s AND holder = %s FOR UPDATE SKIP LOCKED"
)
"""Finds the leases by ``queue_leases_holder``."""
RENEW = f"UPDATE queue_partition_leases FORCE INDEX (PRIMARY) SET lease_renewed_at = {NOW_MS} WHERE id IN ({{ids}})"
"""Finds the leases by their primary key, after ``LOCK_UNLOCKED``."""

LeaseId = tuple[int, str]
"""A lease's row id and its partition."""


def acquire(using: str, holder: Holder, partitions: Sequence[str], lease_ms: int) -> list[str] | None:
    """Take the leases that are missing, free or expired. Return the partitions whose lease this holder then has.

    Return None, and take none, if the registration is missing, is being reset, or is locked by another transaction
    (for example an uncommitted ``pause``). It waits only for transactions that insert the same or neighbouring leases.
    In a long wait, this worker's leases would expire.
    """
    wanted = sorted(partitions)
    names = " UNION ALL ".join(["SELECT %s AS partition_key"] + ["SELECT %s"] * (len(wanted) - 1))

    def work(cursor: CursorWrapper) -> list[str] | None:
        cursor.execute(
            f"SELECT 1 FROM queue_offsets {GROUP_ROW} AND scan_offset <> {REMOVING} {for_share(using)}",
            [holder.group, holder.topic],
        )
        if cursor.fetchone() is None:
            return None
        cursor.execute(
            # IGNORE: another worker has just inserted one of them. The others are inserted. No ON DUPLICATE KEY: next
            # to a deleted row that is not purged, the server would also lock the next partition's lease, and wait for a
            # transaction that has acknowledged a delivery of that partition.
            "INSERT IGNORE INTO queue_partition_leases"
            " (consumer_group, topic, partition_key, leased_by, holder, leased_at, lease_renewed_at)"
            f" SELECT %s, %s, p.partition_key, %s, %s, {NOW_MS}, {NOW_MS} FROM ({names}) p"
            " WHERE NOT EXISTS (SELECT 1 FROM queue_partition_leases l FORCE INDEX (queue_leases_partition)"
            " WHERE l.consumer_group = %s AND l.topic = %s AND l.partition_key = p.partition_key)",
            [
                holder.group,
                holder.topic,
                holder.name,
                holder.incarnation,
                *wanted,
                holder.group,
                holder.topic,
            ],
        )
        cursor.execute(
            "SELECT id, partition_key, holder = %s FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
            f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(wanted)})"
            f" AND (holder IN ('', %s) OR lease_renewed_at <= {NOW_MS} - %s)",
            [holder.incarnation, holder.group, holder.topic, *wanted, holder.incarnation, lease_ms],
        )
        found = cursor.fetchall()
        free = [(int(number), partition) for number, partition, is_mine in found if not is_mine]
        return [partition for _, partition, is_mine in found if is_mine] + take_over(
            cursor, holder, free, lease_ms, len(free)
        )

    return session.run(using, work)


def take_over(
    cursor: CursorWrapper, holder: Holder, free: Sequence[LeaseId], lease_ms: int, most: int
) -> list[str]:
    """Take up to ``most`` of these leases that are still free or expired. Return their partitions."""
    if not free:
        return []
    # By primary key: through any other index MariaDB would also lock rows that do not match.
    cursor.execute(
        "SELECT id, partition_key FROM queue_partition_leases FORCE INDEX (PRIMARY)"
        f" WHERE id IN ({placeholders(free)}) AND (holder = '' OR lease_renewed_at <= {NOW_MS} - %s)"
        f" LIMIT {most:d} FOR UPDATE SKIP LOCKED",
        [*sorted(number for number, _ in free), lease_ms],
    )
    taken = cursor.fetchall()
    if taken:
        cursor.execute(
            "UPDATE queue_partition_leases FORCE INDEX (PRIMARY)"
            f" SET leased_by = %s, holder = %s, leased_at = {NOW_MS}, lease_renewed_at = {NOW_MS}"
            f" WHERE id IN ({placeholders(taken)})",
            [holder.name, holder.incarnation, *(number for number, _ in taken)],
        )
    return [partition for _, partition in taken]


@dataclass(frozen=True)
class LockedLeases:
    """This holder's leases.

    ``locked``: this transaction has locked them. ``busy``: another transaction has locked them or the registration.
    """

    locked: set[str]
    busy: set[str]


def lock_owned(
    cursor: CursorWrapper, holder: Holder, generation: int, partitions: Sequence[str]
) -> LockedLeases:
    """Lock the group's registration and this holder's leases in share mode until the transaction ends. Never waits.

    Locks and returns no lease if the group is paused or being reset, or has another generation. While the locks
    last, no other transaction can take these leases, or pause, reset or unsubscribe the group.
    """
    found: list[set[str]] = []
    for locking in (for_share(cursor.db.alias), ""):
        cursor.execute(
            LOCK_OWNED.format(partitions=placeholders(partitions), locking=locking),
            [holder.group, holder.topic, generation, *sorted(partitions), holder.incarnation],
        )
        found.append({partition for (partition,) in cursor.fetchall()})
        if len(found[0]) == len(partitions):
            return LockedLeases(found[0], set())
    return LockedLeases(found[0], found[1] - found[0])


def renew(using: str, holder: Holder) -> int:
    """Renew this holder's leases, except locked ones. Return how many.

    No other worker can take a locked lease. If this call waited for it, the other leases would expire.
    """

    def work(cursor: CursorWrapper) -> int:
        mine = _lock_unlocked(cursor, holder)
        if mine:
            cursor.execute(RENEW.format(ids=placeholders(mine)), mine)
        return len(mine)

    return session.run(using, work)


def _lock_unlocked(cursor: CursorWrapper, holder: Holder) -> list[int]:
    """Lock this holder's leases that no other transaction has locked. Return their ids."""
    cursor.execute(LOCK_UNLOCKED, [holder.group, holder.topic, holder.incarnation])
    return [int(number) for (number,) in cursor.fetchall()]


def _lock_some(cursor: CursorWrapper, holder: Holder, partitions: Sequence[str]) -> dict[str, int]:
    """Lock this holder's leases on these partitions, except locked ones. Return row ids by partition."""
    cursor.execute(
        "SELECT partition_key, id FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(partitions)}) AND holder = %s"
        " FOR UPDATE SKIP LOCKED",
        [holder.group, holder.topic, *sorted(partitions), holder.incarnation],
    )
    return {partition: int(number) for partition, number in cursor.fetchall()}


def _set_free(cursor: CursorWrapper, ids: Sequence[int]) -> None:
    """Release leases that this transaction has locked."""
    cursor.execute(
        "UPDATE queue_partition_leases FORCE INDEX (PRIMARY)"
        f" SET holder = '', leased_by = '', lease_renewed_at = {NOW_MS} WHERE id IN ({placeholders(ids)})",
        ids,
    )


def held(using: str, holder: Holder) -> set[str]:
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        " WHERE consumer_group = %s AND topic = %s AND holder = %s",
        [holder.group, holder.topic, holder.incarnation],
    )
    return {partition for (partition,) in rows}


def overview(using: str, group: str, topic: str, lease_ms: int) -> tuple[int, int]:
    """Return (number of leases, number that are free or expired)."""
    ((total, free),) = session.fetch(using, f"SELECT {COUNTS}", [*[group, topic] * 3, lease_ms])
    return int(total), int(free)


def takeable(using: str, holder: Holder, lease_ms: int, limit: int, free_ms: int = 0) -> list[LeaseId]:
    """Return up to ``limit`` leases that have been free, or expired and another holder's, for ``free_ms``.

    While a transaction has locked an own lease, it is not renewed, and nobody can take it.
    """
    for_long = ""
    if free_ms:  # Only if needed: the index lacks the column. A future time: the clock was set back.
        for_long = f" AND (lease_renewed_at <= {NOW_MS} - {free_ms:d} OR lease_renewed_at > {NOW_MS})"
    rows = session.fetch(
        using,
        f"(SELECT id, partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_holder) {_OF_GROUP}"
        f" AND holder = ''{for_long} LIMIT {limit:d}) UNION ALL"
        f" (SELECT id, partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_renewed) {_OF_GROUP}"
        f" AND lease_renewed_at <= {NOW_MS} - %s AND holder NOT IN ('', %s) LIMIT {limit:d}) LIMIT {limit:d}",
        [*[holder.group, holder.topic] * 2, lease_ms + free_ms, holder.incarnation],
    )
    return [(int(number), partition) for number, partition in rows]


def known(using: str, group: str, topic: str, partitions: Sequence[str]) -> set[str]:
    """Return the partitions that have a lease row, held or free."""
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        " WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key IN ({placeholders(partitions)})",
        [group, topic, *partitions],
    )
    return {partition for (partition,) in rows}


def release(using: str, holder: Holder, partitions: Sequence[str]) -> list[str]:
    """Release this holder's leases on these partitions, except locked ones. Return the released partitions."""

    def work(cursor: CursorWrapper) -> list[str]:
        found = _lock_some(cursor, holder, partitions)
        if found:
            _set_free(cursor, sorted(found.values()))
        return list(found)

    return session.run(using, work)


def delete_drained(cursor: CursorWrapper, holder: Holder, partitions: Sequence[str]) -> list[str]:
    """Delete this holder's leases on drained partitions, except locked ones. Return those partitions."""
    found = _lock_some(cursor, holder, partitions)
    if found:
        cursor.execute(
            f"DELETE l FROM queue_partition_leases l FORCE INDEX (PRIMARY) WHERE l.id IN ({placeholders(list(found))})",
            sorted(found.values()),
        )
    return list(found)


def release_unlocked(cursor: CursorWrapper, holder: Holder) -> bool:
    """Release this holder's leases that no other transaction has locked. Return whether it has no leases left."""
    if free := _lock_unlocked(cursor, holder):
        _set_free(cursor, free)
    cursor.execute(
        "SELECT 1 FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        " WHERE consumer_group = %s AND topic = %s AND holder = %s LIMIT 1",
        [holder.group, holder.topic, holder.incarnation],
    )
    return cursor.fetchone() is None


@dataclass(frozen=True)
class LeaseRow:
    """A lease as it was read: its row id, its partition, and its holder's incarnation and name."""

    id: int
    partition: str
    incarnation: str
    subscriber: str


def find_held(
    using: str, group: str, topic: str, partition: str | None, name: str | None, holder: str | None
) -> list[LeaseRow]:
    """Return the held leases of a group. The last three arguments narrow the search; None: any value."""
    given = {"partition_key": partition, "leased_by": name, "holder": holder}
    wanted = {column: value for column, value in given.items() if value is not None}
    conditions = "".join(f" AND {column} = %s" for column in wanted)
    found = session.fetch(
        using,
        "SELECT id, partition_key, holder, leased_by FROM queue_partition_leases"
        f" WHERE consumer_group = %s AND topic = %s AND holder <> ''{conditions} ORDER BY partition_key",
        [group, topic, *wanted.values()],
    )
    return [LeaseRow(*row) for row in found]


def expired(
    using: str, group: str, topic: str, lease_ms: int, name: str | None, after: str, limit: int
) -> list[str]:
    """Return the next ``limit`` partitions whose lease has expired. ``name``: only those of this subscriber."""
    of_name, params = ("", []) if name is None else (" AND leased_by = %s", [name])
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key > %s AND holder <> ''"
        f" AND lease_renewed_at <= {NOW_MS} - %s{of_name} ORDER BY partition_key LIMIT {limit:d}",
        [group, topic, after, lease_ms, *params],
    )
    return [str(name) for (name,) in rows]


def unchanged(using: str, seen: Sequence[LeaseRow]) -> list[LeaseRow]:
    """Return the leases whose holder has not changed since they were read. They may be locked."""
    ids = [one.id for one in seen]
    if not ids:
        return []
    rows = session.fetch(
        using, f"SELECT id, holder FROM queue_partition_leases WHERE id IN ({placeholders(ids)})", ids
    )
    now: dict[int, str] = dict(rows)
    return [one for one in seen if now.get(one.id) == one.incarnation]


def set_free(cursor: CursorWrapper, seen: Sequence[LeaseRow]) -> list[LeaseRow]:
    """Release the leases whose holder has not changed since they were read, and that are not locked."""
    # By primary key, as in take_over.
    one = "(id = %s AND holder = %s)"
    cursor.execute(
        "SELECT id FROM queue_partition_leases FORCE INDEX (PRIMARY)"
        f" WHERE {' OR '.join([one] * len(seen))} FOR UPDATE SKIP LOCKED",
        flat((one.id, one.incarnation) for one in sorted(seen, key=lambda one: one.id)),
    )
    locked = {int(number) for (number,) in cursor.fetchall()}
    if locked:
        _set_free(cursor, sorted(locked))
    return [one for one in seen if one.id in locked]
