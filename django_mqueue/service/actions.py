"""The record of operators' actions on topics and groups: the action, its author, the time and the reason.

An action is a message of the topic ``mqueue_actions``, whose key is the topic that the action is about. It is stored in
the transaction of the action. These messages are never deleted.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import Error
from django.db.backends.utils import CursorWrapper

from .. import conf
from ..policy import encoding, names
from ..policy.durations import moment
from ..policy.ids import uuid7
from ..store import log
from ..store.connection import session
from ..store.log import NewRow
from ..store.queries import message_pages

BY_MAX, WHY_MAX = 255, 2_000
"""Maximum characters of the texts that callers give."""
BYTES_MAX = 1_048_576
READ = 200
"""The maximum number of a topic's newest actions that are read."""


@dataclass(frozen=True)
class Action:
    """One action of an operator.

    ``action``: the name of the function or of the command's verb. ``group``: "" if it was about the topic. ``by``: a
    user, or the process that called the function. ``why``: the reason that the operator gave, or "". ``details``:
    arguments and results. ``via``: ``ADMIN`` if the admin performed it, and has its own entry for it; else "".
    """

    at: datetime
    action: str
    topic: str
    group: str
    by: str
    why: str
    details: Mapping[str, Any]
    via: str = ""


ADMIN = "admin"
_via: ContextVar[str] = ContextVar("via", default="")


@contextmanager
def through(via: str) -> Iterator[None]:
    """Mark actions as performed through ``via`` if their ``Author`` is created inside this block."""
    token = _via.set(via)
    try:
        yield
    finally:
        _via.reset(token)


def check_text(argument: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
    if len(value) > limit:
        raise ValueError(f"{argument} may have at most {limit} characters, not {len(value)}")
    return value


@dataclass(frozen=True)
class Author:
    """The person or process that performs an action, and the reason.

    ``by``: "" means this process: its user, host, program and id. Raises ``TypeError`` or ``ValueError`` for
    texts that are too long.
    """

    by: str = ""
    why: str = ""
    via: str = field(default_factory=_via.get)

    def __post_init__(self) -> None:
        check_text("by", self.by, BY_MAX)
        check_text("why", self.why, WHY_MAX)


def record(
    cursor: CursorWrapper, author: Author, action: str, topic: str, group: str = "", **details: Any
) -> None:
    """Store an action, in the current transaction. ``details``: JSON values."""
    payload = {
        "action": action, "topic": topic, "group": group, "by": author.by or this_process(), "why": author.why,
        "details": {name: value for name, value in details.items() if value is not None},
        **({"via": author.via} if author.via else {}),
    }  # fmt: skip
    row = NewRow(topic, uuid7(), encoding.encode(payload, action, None, BYTES_MAX))
    log.insert(cursor, names.ACTIONS_TOPIC, [row])


class BulkRecord:
    """The record of an action that takes several transactions.

    The first transaction that changes messages records the action. If there are more, another record at the end has
    the total. ``unit``: what is counted.
    """

    def __init__(
        self, author: Author, action: str, topic: str, group: str = "", unit: str = "messages", **details: Any
    ) -> None:
        self.arguments, self.unit, self.details = (author, action, topic, group), unit, details
        self.changes: list[int] = []

    def batch(self, cursor: CursorWrapper, changed: int) -> None:
        """Record the number of changes in the first transaction that changes anything."""
        if changed and not self.changes:
            record(cursor, *self.arguments, **self.details | {self.unit: changed})

    def committed(self, changed: int) -> None:
        """Note that the transaction has committed."""
        if changed:
            self.changes.append(changed)

    @contextmanager
    def total(self, using: str) -> Iterator[None]:
        """Record the total at the end of this block, also if an error or Ctrl-C ends it."""
        try:
            yield
        except BaseException:
            with suppress(Error):
                self.end(using)
            raise
        self.end(using)

    def end(self, using: str) -> None:
        """Record the total, if there was more than one transaction."""
        if len(self.changes) > 1:
            total = sum(self.changes)
            details = self.details | {f"{self.unit}_in_all": total}
            session.run(using, lambda cursor: record(cursor, *self.arguments, **details))


def recent(
    topic: str, group: str | None = None, *, limit: int = 20, using: str | None = None
) -> list[Action]:
    """Return the newest actions on a topic, or on one of its groups, newest first.

    An action on all groups of the topic counts for each group. The function reads at most ``READ`` actions.
    """
    found = [one for _, one in page(topic, using=using)]
    return [one for one in found if group is None or one.group in ("", group)][:limit]


def last_pause(newest: Sequence[Action], group: str) -> Action | None:
    """Return the record of a group's pause, if it is the newest pause or resume among the actions of its topic."""
    for one in newest:
        if one.group in ("", group) and one.action in ("pause", "resume"):
            return one if one.action == "pause" else None
    return None


def page(
    topic: str | None, *, before: int | None = None, using: str | None = None
) -> list[tuple[int, Action]]:
    """Return the ``READ`` newest actions with their offsets: of all topics or of one, below the offset ``before``."""
    alias = conf.database(using)
    end = 1 << 62 if before is None else before
    with session.raises_not_migrated(alias):
        entries = message_pages.log_page(alias, names.ACTIONS_TOPIC, topic, (0, end), READ, newest_first=True)
        offsets = [offset for offset, _, _ in entries]
        rows = message_pages.rows(alias, offsets)
        payloads = message_pages.payloads(alias, offsets)
    return [
        (offset, _action(json.loads(payloads[offset][0]), rows[offset]))
        for offset in offsets
        if offset in rows and offset in payloads
    ]


def _action(payload: dict[str, Any], row: Mapping[str, Any]) -> Action:
    return Action(
        at=moment(int(row["published_at"])),
        **{name: payload[name] for name in ("action", "topic", "group", "by", "why", "details")},
        via=payload.get("via", ""),
    )


def this_process() -> str:
    """Return a text that names this process: ``root@web-1: manage.py shell (4711)``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container may run with a user id that has no name.
        user = str(os.getuid())
    program = " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:2]])
    return f"{user}@{socket.gethostname()}: {program} ({os.getpid()})"[:BY_MAX]
