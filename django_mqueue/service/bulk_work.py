"""Work that an operator has started and that workers continue: messages of the topic ``mqueue_operations``.

Each message is one step. The transaction that does the step also stores the message of the next step. All messages of
one operation have the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..policy import encoding, names
from ..policy.ids import uuid7
from ..protocol.waking import commits
from ..store import log
from ..store.connection import session
from ..store.log import NewRow

GROUP = "mqueue"
"""The only group of the topic."""
BYTES_MAX = 1_048_576


def send(using: str, key: str, step: Mapping[str, Any]) -> None:
    """Store the message of the next step, in the current transaction if there is one. ``step``: JSON."""
    row = NewRow(key, uuid7(), encoding.encode(step, "", None, BYTES_MAX))
    session.run(using, lambda cursor: log.insert(cursor, names.OPERATIONS_TOPIC, [row]))
    commits.wake_after_commit(using, names.OPERATIONS_TOPIC)
