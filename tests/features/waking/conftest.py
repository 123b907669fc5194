"""What the tests of sleeping and waking share."""

from __future__ import annotations

import shutil

import pytest
from django.db import connection

from django_mqueue.protocol.waking import sockets
from django_mqueue.store.connection import wakeups
from tests.support.waiting import wait_until

from .sleeping import directory


@pytest.fixture(autouse=True)
def only_sleepers_of_this_test(transactional_db: None) -> None:
    """Wait for the end of sleeping connections of earlier tests, and remove their sockets.

    A process that was killed leaves both. The server notices it after some seconds, and ends the connection.
    """
    wait_until(lambda: not _held_slots(), "no connection of an earlier test sleeps")
    for what in ("", sockets.REQUESTS):
        shutil.rmtree(directory(what), ignore_errors=True)


def _held_slots() -> set[int]:
    with connection.cursor() as cursor:
        return wakeups.held_slots(cursor, str(connection.settings_dict["NAME"]))
