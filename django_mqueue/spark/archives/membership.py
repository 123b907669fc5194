"""Make an archive run the only reader of its group until the run ends."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress

from django.db import DatabaseError

from ...exceptions import MQueueError
from ...store import heartbeats
from ...store.leases import Holder
from ..connecting import ConnectionParameters, RetryingConnection, connected
from ..database import following
from ..streams.group_reader import BEAT_EVERY


class Membership:
    """A context manager. While it is open, no other process reads the joined topics for the group."""

    def __init__(self, parameters: ConnectionParameters, group: str) -> None:
        self._how, self._group = parameters, group
        self._run = uuid.uuid4().hex
        self._members: list[Holder] = []
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="mqueue-heartbeat", daemon=True)

    def __enter__(self) -> Membership:
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave all topics. If the database is not reachable now, the missing heartbeats show that the run ended."""
        self._stop.set()
        self._beating.join()
        with suppress(MQueueError, DatabaseError), connected(self._how) as using:
            for reader in self._members:
                following.leave(reader, using=using)

    def join(self, connection: RetryingConnection, topic: str) -> Holder:
        """Make the run the group's reader of a topic. Raises ``GroupTaken`` if another reader is alive."""
        reader = Holder(self._group, topic, f"{following.READER_PREFIX}{self._run[:12]}", self._run)
        connection.run(lambda using: following.join_all([reader], using=using))
        self._members.append(reader)
        return reader

    def _beat(self) -> None:
        """Send heartbeats. A batch may take hours."""
        while not self._stop.wait(BEAT_EVERY):
            with suppress(MQueueError, DatabaseError), connected(self._how) as using:
                for reader in list(self._members):
                    heartbeats.beat(using, reader)
