"""Wake sleeping workers and requesters after a commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ... import conf
from . import sockets, wakers


def wake_after_commit(using: str, topic: str) -> None:
    """Wake the workers that sleep and consume the topic: now, or when the caller's transaction commits.

    In a transaction that was begun by turning autocommit off, wake none: Django runs no hook at its commit.
    """
    ways = conf.get("WAKE_WORKERS")
    if ways != "never":
        connection = connections[using]
        place = sockets.place_by(connection.settings_dict)
        _after_commit(connection, _workers(using, place, topic, ways == "everywhere"))


def reply_after_commit(using: str, box: str) -> None:
    """Wake the requester that waits for a reply in this box, if it is on this host."""
    if conf.get("WAKE_WORKERS") != "never":
        connection = connections[using]
        place = sockets.place_by(connection.settings_dict, sockets.REQUESTS)
        _after_commit(connection, lambda: sockets.wake(place, sockets.bit_of(box)))


def reply_socket(using: str, box: str) -> sockets.SleepSocket | None:
    """Return a socket for a requester that waits for a reply in this box; None if it must poll."""
    if conf.get("WAKE_WORKERS") == "never":
        return None
    try:
        return sockets.SleepSocket(sockets.place_of(using, sockets.REQUESTS), [box])
    except OSError:
        return None


def _after_commit(connection: BaseDatabaseWrapper, wake: Callable[[], None]) -> None:
    if not connection.in_atomic_block:
        if connection.get_autocommit():
            wake()
    elif not _stays(connection, wake):
        connection.__dict__.setdefault(_PLACES, {})[wake] = len(connection.run_on_commit)
        transaction.on_commit(wake, using=connection.alias, robust=True)


_PLACES = "mqueue_wake_hooks"
"""The attribute of a connection that holds the index of each ``wake`` among the hooks of the transaction."""


def _stays(connection: BaseDatabaseWrapper, wake: Callable[[], None]) -> bool:
    """Return whether a registered ``wake`` hook runs whenever what is written now is committed."""
    hooks = connection.run_on_commit
    if not hooks:
        connection.__dict__.pop(_PLACES, None)
        return False
    place = connection.__dict__.get(_PLACES, {}).get(wake, len(hooks))
    is_there = place < len(hooks) and hooks[place][1] is wake
    return hooks[-1][1] is wake or (is_there and hooks[place][0] <= set(connection.savepoint_ids))


@lru_cache(1000)
def _workers(using: str, place: str, topic: str, everywhere: bool) -> Callable[[], None]:
    """Return the same function for the same topic."""

    bit = sockets.bit_of(topic)

    def wake() -> None:
        sockets.wake(place, bit)
        if everywhere:
            wakers.wake(using, topic)

    return wake
