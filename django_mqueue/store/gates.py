"""The gate: rows that publishers lock in share mode, so that settling knows which transactions may still commit.

A publishing INSERT locks the current slot of its topic's gate before it gets an offset. It holds the lock until its
transaction ends. Settling notes an offset, and then waits until each slot has been free once. After that, all
transactions with offsets below the noted one are committed or rolled back. See docs/explanation/protocol.md,
"Settling".
"""

from __future__ import annotations

from zlib import crc32

from django.db.backends.utils import CursorWrapper

from .connection.dialect import NOW_MS, placeholders

GATES, SLOTS, SLOT_MS = 64, 64, 500
"""``GATES`` and ``SLOTS`` are fixed by the migrations: publishers and workers must agree on them. Migration 0004 shows
how to change them."""

_INDEX = "FORCE INDEX (queue_offsets_partition)"
"""Publishers and settling must use the same index. Publishers read only this index, so the server locks only its
record. Through any other index, every slot would look free."""
LOCK_SLOT = (
    f"(SELECT %s FROM queue_offsets {_INDEX} WHERE consumer_group = '' AND topic = '' AND partition_key ="
    f" CONCAT(%s, LPAD({NOW_MS} DIV {SLOT_MS} MOD {SLOTS}, 3, '0')) LOCK IN SHARE MODE)"
)
FREE_SLOTS = (
    f"SELECT partition_key FROM queue_offsets {_INDEX} WHERE consumer_group = '' AND topic = ''"
    " AND partition_key IN ({names}) FOR UPDATE SKIP LOCKED"
)


def gate_of(topic: str) -> int:
    return crc32(topic.encode()) % GATES


def slot_name(gate: int, slot: int) -> str:
    return f"gate-{gate:03d}-slot-{slot:03d}"


def locking_topic(topic: str) -> tuple[str, list[str]]:
    """Return a subselect that yields ``topic`` and locks the current slot, for the first row of an INSERT's VALUES."""
    return LOCK_SLOT, [topic, slot_name(gate_of(topic), 0)[:-3]]


def ensure(cursor: CursorWrapper) -> None:
    """Insert missing gate rows. Do nothing if other names exist: publishers of another release lock those rows."""
    names = {slot_name(gate, slot) for gate in range(GATES) for slot in range(SLOTS)}
    cursor.execute(
        "SELECT partition_key FROM queue_offsets"
        " WHERE consumer_group = '' AND topic = '' AND partition_key LIKE 'gate-%'"
    )
    found = {name for (name,) in cursor.fetchall()}
    missing = sorted(names - found)
    if missing and found <= names:
        rows = ", ".join(["('', '', %s, 0, 0, 0, 0)"] * len(missing))
        cursor.execute(
            "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
            f" updated_at) VALUES {rows} ON DUPLICATE KEY UPDATE offset_acked = offset_acked",
            missing,
        )


def free_slots(cursor: CursorWrapper, candidates: set[str]) -> set[str]:
    """Return the slots among ``candidates`` that no publisher holds at this moment. Never waits."""
    names = sorted(candidates)
    cursor.execute(FREE_SLOTS.format(names=placeholders(names)), names)
    return {name for (name,) in cursor.fetchall()}


def slots(gate: int) -> set[str]:
    return {slot_name(gate, slot) for slot in range(SLOTS)}
