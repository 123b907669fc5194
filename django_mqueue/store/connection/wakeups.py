"""Sleep in the server until another connection ends the sleep. It needs no privilege, and no table.

A sleeping connection holds user-level locks, one for each of its topics. ``KILL QUERY IS_USED_LOCK(name)`` ends the
statement of the connection that holds the lock. The server itself finds the connection, so no connection id leaves
the server, and a proxy cannot confuse two connections. The server refuses this KILL if the two connections have
different accounts.

The names of the locks end in a slot, a number of the sleeping process. So a publisher finds all processes.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from . import errors

SLOTS = 128
"""The maximum number of processes that can sleep in a database."""

_PRESENT = ""
"""Used instead of a topic, in the name of the lock that a process always holds, also while it is awake."""


def hold_slot(cursor: CursorWrapper, database: str) -> int | None:
    """Take a free slot until this connection ends. Return its number; None if no slot could be taken."""
    free = sorted(set(range(SLOTS)) - held_slots(cursor, database))
    for slot in random.sample(free, min(len(free), 5)):
        cursor.execute("SELECT GET_LOCK(%s, 0)", [_lock(database, _PRESENT, slot)])
        if cursor.fetchone() == (1,):
            return slot
    return None


def held_slots(cursor: CursorWrapper, database: str) -> set[int]:
    """Return the slots of all processes that may sleep in this database."""
    return used_slots(cursor, database, _PRESENT, range(SLOTS))


def used_slots(cursor: CursorWrapper, database: str, topic: str, slots: Collection[int]) -> set[int]:
    """Return the slots among ``slots`` whose processes sleep now and consume the topic."""
    if not slots:
        return set()
    names = [_lock(database, topic, slot) for slot in slots]
    cursor.execute(f"SELECT {', '.join(['IS_USED_LOCK(%s)'] * len(names))}", names)
    return {slot for slot, holder in zip(slots, cursor.fetchone(), strict=True) if holder is not None}


def sleep(cursor: CursorWrapper, database: str, topics: Iterable[str], slot: int, seconds: float) -> bool:
    """Sleep in the server for up to ``seconds``. Return whether another connection has ended the sleep.

    Do not sleep if another connection holds one of the locks.
    """
    names = [_lock(database, topic, slot) for topic in topics]
    all_held = " + ".join(["GET_LOCK(%s, 0)"] * len(names))
    try:
        cursor.execute(f"SELECT IF({all_held} = {len(names)}, SLEEP(%s), -1)", [*names, seconds])
        woken = bool(cursor.fetchone() == (1,))  # MySQL returns 1, and MariaDB raises an error.
    except DatabaseError as error:
        if not errors.is_interrupted(error):
            raise
        woken = True
    _release(cursor, names)
    return woken


def end_sleep(cursor: CursorWrapper, database: str, topic: str, slot: int) -> None:
    """End the sleep of a process, if it sleeps. Raises an error if the process uses another database account."""
    try:
        cursor.execute("KILL QUERY IS_USED_LOCK(%s)", [_lock(database, topic, slot)])
    except DatabaseError as error:
        if not errors.is_no_thread(error):
            raise


def _release(cursor: CursorWrapper, names: Sequence[str]) -> None:
    """Release the locks. If a publisher ends this statement instead of the sleep, run it again."""
    statement = f"DO {', '.join(['RELEASE_LOCK(%s)'] * len(names))}"
    try:
        cursor.execute(statement, names)
    except DatabaseError as error:
        if not errors.is_interrupted(error):
            raise
        cursor.execute(statement, names)


def _lock(database: str, topic: str, slot: int) -> str:
    """Return the name of a lock. Names are shorter than 64 characters, and the server ignores their case."""
    return f"mqueue.{sha256(f'{database}/{topic}'.encode()).hexdigest()[:20]}.{slot}"
