"""A worker in a thread of the test that polls once an hour, so that only a wake-up makes it read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import override_settings

from django_mqueue.protocol.waking import sockets
from django_mqueue.protocol.waking.sockets import SleepSocket, place_of
from django_mqueue.store.connection import wakeups
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.running import registered
from tests.support.transactions import Background
from tests.support.waiting import PATIENCE, wait_until

HOUR = 3600.0
LONG: dict[str, Any] = {
    "POLL_INTERVAL": HOUR, "LEASE_DURATION": HOUR, "LEASE_RENEWAL_INTERVAL": HOUR / 2, "WAKE_WORKERS": "host",
}  # fmt: skip
"""A worker finds messages only after a wake-up, or by work that it has planned."""


def directory(what: str = "") -> Path:
    """Return the directory of the sockets of this test's database."""
    return Path(sockets._root(), place_of("default", what))


def sleeping(what: str = "") -> list[str]:
    """Return the names of the files of sleeping processes."""
    place = directory(what)
    return [name for name in os.listdir(place) if name.count(".") == 2] if place.exists() else []


@contextmanager
def listening(*names: str, what: str = "") -> Iterator[SleepSocket]:
    """Sleep until a commit of one of these topics."""
    socket = SleepSocket(place_of("default", what), names)
    try:
        socket.sleep()
        yield socket
    finally:
        socket.close()


def is_woken(socket: SleepSocket) -> bool:
    return socket.wait(PATIENCE)


def has_nothing(socket: SleepSocket) -> bool:
    """Return whether no datagram is there. A datagram arrives before ``sendto`` returns."""
    socket.socket.setblocking(False)
    try:
        socket.socket.recv(1)
    except BlockingIOError:
        return True
    return False


@contextmanager
def worker(
    topic: str, handle: Callable[..., Any], settings: dict[str, Any] = LONG, *, rest: bool = True
) -> Iterator[Runner]:
    """Run a worker of one handler in a thread. With ``rest``, yield when it sleeps and has planned no read."""
    with override_settings(MQUEUE=settings), registered(topic, handle):
        runner = Runner(handlers([topic]), RunOptions())
        with Background(runner.run) as running:
            try:
                if rest:
                    wait_until(lambda: rests(runner), "the worker sleeps")
                yield runner
            finally:
                runner.stop()
                running.result()


def rests(runner: Runner) -> bool:
    """Return whether the worker reads the log only after a wake-up."""
    polling = runner._polling
    return polling._asleep and polling.due_in(ready=True) > HOUR / 2


def sleeps_in_server(topic: str) -> bool:
    """Return whether a connection sleeps in the server and waits for the topic."""
    database = str(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        return bool(wakeups.used_slots(cursor, database, topic, range(wakeups.SLOTS)))
