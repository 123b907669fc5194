"""Leases, ``queue_partition_leases``: who may deliver from a partition. Every change is conditional on the holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from . import session
from .dialect import DUPLICATE_ENTRY, NOW_MS, flat, marks, sharing
from .offsets import REMOVING


@dataclass(frozen=True)
class Holder:
    """One life of one subscriber: ``incarnation`` is new with each start, and what every condition compares."""

    group: str
    topic: str
    name: str
    incarnation: str


RACES = 10
"""So often others may be quicker before a worker takes none for now."""

Free = tuple[int, str]
"""A lease's row and its partition."""


def acquire(using: str, me: Holder, partitions: Sequence[str], lease_ms: int) -> list[str] | None:
    """Take those of the partitions that nobody ever leased, or that are free or expired; return those that are mine.

    Returns None, and takes none, if the group's registration is gone, or locked by another transaction (a ``pause``
    that is not committed, for instance), or if the group is being reset. Never waits for a lock: a worker that waits
    renews nothing, and loses all its leases.
    """
    wanted = sorted(partitions)
    names = " UNION ALL ".join(["SELECT %s AS partition_key"] + ["SELECT %s"] * (len(wanted) - 1))

    def work(cursor: CursorWrapper) -> list[str] | None:
        cursor.execute(
            "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
            " WHERE consumer_group = %s AND topic = %s AND partition_key = ''"
            f" AND scan_offset <> {REMOVING} {sharing(using)}",
            [me.group, me.topic],
        )
        if cursor.fetchone() is None:
            return None
        cursor.execute(
            "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder, leased_at,"
            f" lease_renewed_at) SELECT %s, %s, p.partition_key, %s, %s, {NOW_MS}, {NOW_MS} FROM ({names}) p"
            " WHERE NOT EXISTS (SELECT 1 FROM queue_partition_leases l FORCE INDEX (queue_leases_partition)"
            # No ON DUPLICATE KEY: if an earlier row of this partition is not purged yet, the server also locks the
            # next lease, and waits for a transaction that has answered a delivery of that partition.
            " WHERE l.consumer_group = %s AND l.topic = %s AND l.partition_key = p.partition_key)",
            [me.group, me.topic, me.name, me.incarnation, *wanted, me.group, me.topic],
        )
        cursor.execute(
            "SELECT id, partition_key, holder = %s FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
            f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(wanted)})"
            f" AND (holder IN ('', %s) OR lease_renewed_at <= {NOW_MS} - %s)",
            [me.incarnation, me.group, me.topic, *wanted, me.incarnation, lease_ms],
        )
        found = cursor.fetchall()
        free = [(int(number), partition) for number, partition, is_mine in found if not is_mine]
        return [partition for _, partition, is_mine in found if is_mine] + _take_over(
            cursor, me, free, lease_ms, len(free)
        )

    for _ in range(RACES):
        try:
            return session.run(using, work)
        except IntegrityError as error:
            # Another has just taken one of them, which is found now.
            if session.error_code(error) != DUPLICATE_ENTRY or session.in_transaction(using):
                raise
    return []


def take_over(using: str, me: Holder, free: Sequence[Free], lease_ms: int, most: int) -> list[str]:
    """The same for at most so many of those that were ``takeable``."""
    return session.run(using, lambda cursor: _take_over(cursor, me, free, lease_ms, most))


def _take_over(
    cursor: CursorWrapper, me: Holder, free: Sequence[Free], lease_ms: int, most: int
) -> list[str]:
    if not free:
        return []
    # By their ids: through any other index MariaDB would lock rows besides that do not match.
    cursor.execute(
        "SELECT id, partition_key FROM queue_partition_leases FORCE INDEX (PRIMARY)"
        f" WHERE id IN ({marks(free)}) AND (holder = '' OR lease_renewed_at <= {NOW_MS} - %s)"
        f" LIMIT {most:d} FOR UPDATE SKIP LOCKED",
        [*sorted(number for number, _ in free), lease_ms],
    )
    taken = cursor.fetchall()
    if taken:
        cursor.execute(
            "UPDATE queue_partition_leases FORCE INDEX (PRIMARY)"
            f" SET leased_by = %s, holder = %s, leased_at = {NOW_MS}, lease_renewed_at = {NOW_MS}"
            f" WHERE id IN ({marks(taken)})",
            [me.name, me.incarnation, *(number for number, _ in taken)],
        )
    return [partition for _, partition in taken]


@dataclass(frozen=True)
class Mine:
    """Leases of mine: ``locked`` by this transaction; ``busy``, because another transaction has locked them, or the
    group's registration."""

    locked: set[str]
    busy: set[str]


def lock_mine(cursor: CursorWrapper, me: Holder, life: int, partitions: Sequence[str]) -> Mine:
    """Lock the registration and those leases that are mine until this transaction ends. Never waits for a lock.

    None while the group is paused or being reset, or if it was registered anew since (``life``). With them locked
    nobody can steal, pause, reset or unsubscribe.
    """
    found = _mine(cursor, me, life, partitions, sharing(cursor.db.alias))
    rest = [partition for partition in partitions if partition not in found]
    return Mine(found, _mine(cursor, me, life, rest, "") if rest else set())


def _mine(cursor: CursorWrapper, me: Holder, life: int, partitions: Sequence[str], locking: str) -> set[str]:
    cursor.execute(
        "SELECT l.partition_key FROM queue_offsets r FORCE INDEX (queue_offsets_partition)"
        " STRAIGHT_JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " ON l.consumer_group = r.consumer_group AND l.topic = r.topic"
        " WHERE r.consumer_group = %s AND r.topic = %s AND r.partition_key = '' AND r.id = %s AND r.paused = 0"
        f" AND r.scan_offset <> {REMOVING}"
        f" AND l.partition_key IN ({marks(partitions)}) AND l.holder = %s {locking}",
        [me.group, me.topic, life, *sorted(partitions), me.incarnation],
    )
    return {partition for (partition,) in cursor.fetchall()}


def renew(using: str, me: Holder) -> int:
    """Renew my leases: how many.

    One that is locked (by a handler of mine that has answered in a transaction which is still open) is left out.
    Nobody can take it meanwhile; if this waited for it, the others would run out.
    """

    def work(cursor: CursorWrapper) -> int:
        mine = _lock_free(cursor, me)
        if mine:
            cursor.execute(
                f"UPDATE queue_partition_leases FORCE INDEX (PRIMARY) SET lease_renewed_at = {NOW_MS}"
                f" WHERE id IN ({marks(mine)})",
                mine,
            )
        return len(mine)

    return session.run(using, work)


def _lock_free(cursor: CursorWrapper, me: Holder) -> list[int]:
    """Lock my leases that no other transaction has locked; return their ids."""
    cursor.execute(
        "SELECT id FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        " WHERE consumer_group = %s AND topic = %s AND holder = %s FOR UPDATE SKIP LOCKED",
        [me.group, me.topic, me.incarnation],
    )
    return [int(number) for (number,) in cursor.fetchall()]


def _lock_some(cursor: CursorWrapper, me: Holder, partitions: Sequence[str]) -> dict[str, int]:
    """Lock my leases on these partitions that no other transaction has locked; return partitions and ids."""
    cursor.execute(
        "SELECT partition_key, id FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(partitions)}) AND holder = %s"
        " FOR UPDATE SKIP LOCKED",
        [me.group, me.topic, *sorted(partitions), me.incarnation],
    )
    return {partition: int(number) for partition, number in cursor.fetchall()}


def _set_free(cursor: CursorWrapper, ids: Sequence[int]) -> None:
    """Release leases that this transaction has locked."""
    cursor.execute(
        "UPDATE queue_partition_leases FORCE INDEX (PRIMARY)"
        f" SET holder = '', leased_by = '', lease_renewed_at = {NOW_MS} WHERE id IN ({marks(ids)})",
        ids,
    )


def held(using: str, me: Holder) -> set[str]:
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        " WHERE consumer_group = %s AND topic = %s AND holder = %s",
        [me.group, me.topic, me.incarnation],
    )
    return {partition for (partition,) in rows}


def overview(using: str, group: str, topic: str, lease_ms: int) -> tuple[int, int, int]:
    """(lease rows, those of them that are free or expired, the database's time)."""
    rows = session.fetch(
        using,
        f"SELECT COUNT(*), COALESCE(SUM(holder = '' OR lease_renewed_at <= {NOW_MS} - %s), 0), {NOW_MS}"
        " FROM queue_partition_leases FORCE INDEX (queue_leases_holder) WHERE consumer_group = %s AND topic = %s",
        [lease_ms, group, topic],
    )
    total, free, now = rows[0]
    return int(total), int(free), int(now)


def takeable(using: str, group: str, topic: str, lease_ms: int, limit: int) -> list[Free]:
    """Up to ``limit`` partitions that are free or expired."""
    rows = session.fetch(
        using,
        "SELECT id, partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        f" WHERE consumer_group = %s AND topic = %s AND (holder = '' OR lease_renewed_at <= {NOW_MS} - %s)"
        f" LIMIT {limit:d}",
        [group, topic, lease_ms],
    )
    return [(int(number), partition) for number, partition in rows]


def known(using: str, group: str, topic: str, partitions: Sequence[str]) -> set[str]:
    """Those of the partitions that have a lease row, whoever holds it."""
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        " WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key IN ({marks(partitions)})",
        [group, topic, *partitions],
    )
    return {partition for (partition,) in rows}


def release(using: str, me: Holder, partitions: Sequence[str]) -> list[str]:
    """Release my leases on the partitions, except those that another transaction has locked; return which."""

    def work(cursor: CursorWrapper) -> list[str]:
        found = _lock_some(cursor, me, partitions)
        if found:
            _set_free(cursor, sorted(found.values()))
        return list(found)

    return session.run(using, work)


def give_up(cursor: CursorWrapper, me: Holder, partitions: Sequence[str]) -> list[str]:
    """Delete my leases on drained partitions, except those that another transaction has locked; return which."""
    found = _lock_some(cursor, me, partitions)
    if found:
        cursor.execute(
            f"DELETE l FROM queue_partition_leases l FORCE INDEX (PRIMARY) WHERE l.id IN ({marks(list(found))})",
            sorted(found.values()),
        )
    return list(found)


def release_free(cursor: CursorWrapper, me: Holder) -> bool:
    """Release my leases, except those that another transaction has locked; return whether none is left."""
    if free := _lock_free(cursor, me):
        _set_free(cursor, free)
    cursor.execute(
        "SELECT 1 FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        " WHERE consumer_group = %s AND topic = %s AND holder = %s LIMIT 1",
        [me.group, me.topic, me.incarnation],
    )
    return cursor.fetchone() is None


@dataclass(frozen=True)
class Seen:
    """A lease as somebody has seen it: its row, its partition, its holder's incarnation and name."""

    id: int
    partition: str
    holder: str
    owner: str


def whose(
    using: str, group: str, topic: str, partition: str | None, name: str | None, holder: str | None
) -> list[Seen]:
    """The leases that somebody holds: of a partition, under a name, of an incarnation, as far as these are given."""
    given = {"partition_key": partition, "leased_by": name, "holder": holder}
    wanted = {column: value for column, value in given.items() if value is not None}
    rows = session.fetch(
        using,
        "SELECT id, partition_key, holder, leased_by FROM queue_partition_leases"
        " FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s{''.join(f' AND {column} = %s' for column in wanted)}"
        " AND holder <> '' ORDER BY partition_key",
        [group, topic, *wanted.values()],
    )
    return [Seen(int(number), found, incarnation, owner) for number, found, incarnation, owner in rows]


def still(using: str, seen: Sequence[Seen]) -> list[Seen]:
    """Those that are as they were seen, locked or not."""
    if not seen:
        return []
    rows = session.fetch(
        using,
        f"SELECT id, holder FROM queue_partition_leases FORCE INDEX (PRIMARY) WHERE id IN ({marks(seen)})",
        [one.id for one in seen],
    )
    now = {int(number): holder for number, holder in rows}
    return [one for one in seen if now.get(one.id) == one.holder]


def set_free(cursor: CursorWrapper, seen: Sequence[Seen]) -> list[Seen]:
    """Set those free that are as they were seen, and that nobody has locked: which they were."""
    # By their ids, as in _take_over.
    one = "(id = %s AND holder = %s)"
    cursor.execute(
        "SELECT id FROM queue_partition_leases FORCE INDEX (PRIMARY)"
        f" WHERE {' OR '.join([one] * len(seen))} FOR UPDATE SKIP LOCKED",
        flat((one.id, one.holder) for one in sorted(seen, key=lambda one: one.id)),
    )
    locked = {int(number) for (number,) in cursor.fetchall()}
    if locked:
        _set_free(cursor, sorted(locked))
    return [one for one in seen if one.id in locked]
