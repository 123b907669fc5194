"""Make an archive run the only reader of its group until the run ends."""

from __future__ import annotations

import uuid

from ...store.leases import Holder
from ..connecting import ConnectionParameters, RetryingConnection
from ..database import following
from ..database.heartbeating import Heartbeats


class Membership:
    """A context manager. While it is open, no other process reads the joined topics for the group."""

    def __init__(self, parameters: ConnectionParameters, group: str) -> None:
        self._group, self._run = group, uuid.uuid4().hex
        self._heartbeats = Heartbeats(parameters)

    def __enter__(self) -> Membership:
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.stop()

    def join(self, connection: RetryingConnection, topic: str) -> Holder:
        """Make the run the group's reader of a topic. Raises ``GroupTaken`` if another reader is alive."""
        reader = Holder(self._group, topic, f"{following.READER_PREFIX}{self._run[:12]}", self._run)
        connection.run(lambda using: following.join_all([reader], using=using))
        self._heartbeats.add([reader])
        return reader
