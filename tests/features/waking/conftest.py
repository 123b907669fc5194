"""What the tests of sleeping and waking share."""

from __future__ import annotations

import shutil

import pytest

from django_mqueue.protocol.waking import sockets

from .sleeping import directory


@pytest.fixture(autouse=True)
def only_sockets_of_this_test() -> None:
    """Remove the sockets of earlier tests. Processes that were killed leave theirs."""
    for what in ("", sockets.REQUESTS):
        shutil.rmtree(directory(what), ignore_errors=True)
