"""Remove messages from a group's backlog, or send them to its front, a few hundred in each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..policy.ids import new_token
from ..policy.message_query import DEAD, PENDING, SCHEDULED, WAITING, MessageQuery
from ..policy.names import SCHEDULED_SUFFIX
from ..protocol.waking import commits
from ..store import garbage, moving, offsets
from ..store.connection import session
from ..store.moving import PendingMessage
from ..store.queries.partition_walk import Found
from .message_search import CHUNK, Search

MOVABLE = (WAITING, PENDING, SCHEDULED)
"""The statuses that ``move`` selects if no status is given: the message is not done, and not in flight.

The order matters: a changed message must not get a status that ``move`` selects later.
"""

Row = dict[str, Any]
Batch = Sequence[tuple[Found, Row]]


@dataclass(frozen=True)
class Operation:
    """An operation on messages.

    ``waiting``: changes messages that wait for a retry. ``pending``: changes messages that were never delivered;
    returns the offsets of those messages that had no delivery state until then. ``elsewhere``: changes messages in
    other topics, which are scheduled messages and dead letters. ``statuses``: the statuses that the operation accepts.
    """

    waiting: Callable[[CursorWrapper, str, str, Sequence[moving.Message]], None]
    pending: Callable[[CursorWrapper, str, str, Sequence[PendingMessage]], set[int]]
    elsewhere: Callable[[CursorWrapper, str, Batch], None]
    statuses: tuple[str, ...]


def _delete(cursor: CursorWrapper, topic: str, batch: Batch) -> None:
    """Delete the messages, and the delivery state that consumers of their topic have for them.

    Dead letters can have such state, because groups may consume a dead-letter topic.
    """
    consumers = sorted(garbage.starts(cursor, topic))
    garbage.delete(cursor, topic, consumers, [found.offset for found, _ in batch])


def _make_wait(cursor: CursorWrapper, group: str, topic: str, messages: Sequence[PendingMessage]) -> set[int]:
    moving.lease_free(cursor, group, topic, sorted({message.partition for message in messages}))
    return moving.begin_waiting(cursor, group, topic, messages, new_token())


REMOVE = Operation(
    waiting=lambda cursor, group, topic, rows: moving.finish_waiting(cursor, group, topic, rows, new_token()),
    pending=lambda cursor, group, topic, rows: moving.insert_acknowledged(
        cursor, group, topic, rows, new_token()
    ),
    elsewhere=_delete,
    statuses=(*MOVABLE, DEAD),
)
TO_FRONT = Operation(
    waiting=moving.send_to_front,
    pending=_make_wait,
    elsewhere=lambda cursor, topic, batch: moving.make_due(cursor, [found.offset for found, _ in batch]),
    statuses=MOVABLE,
)


def move(
    using: str,
    operation: Operation,
    query: MessageQuery,
    status: str | None,
    *,
    limit: int | None,
    dry_run: bool,
) -> int:
    """Change all messages that match the query and have this status. Return how many.

    ``status``: None selects all of ``MOVABLE``. If the query has no group, the operation runs for every group.
    ``limit``: the maximum number of messages. ``dry_run``: change nothing, only count.
    """
    total = 0
    with session.migration_errors(using):
        for group, each in _parts(using, query, status):
            left = None if limit is None else limit - total
            total += _Move(using, operation, replace(query, group=group, status=each)).run(left, dry_run)
            if total == limit:
                break
    return total


def _parts(using: str, query: MessageQuery, status: str | None) -> Iterator[tuple[str | None, str]]:
    """Yield (group, status) for each search. One search covers scheduled messages or dead letters of all groups."""
    groups: list[str | None] = [query.group]
    if query.group is None:
        groups = [*offsets.registrations(using, query.topic), None]
    for group in groups:
        for each in MOVABLE if status is None else (status,):
            if (each in (SCHEDULED, DEAD)) == (group is None) or query.group is not None:
                yield group, each


class _Move:
    """The operation on messages of one status, for one group."""

    def __init__(self, using: str, operation: Operation, query: MessageQuery) -> None:
        self.using, self.operation, self.query = using, operation, query
        self.search = Search(using, query, newest_first=False)

    def run(self, limit: int | None, dry_run: bool) -> int:
        """Change the messages, a few hundred in each transaction. Return how many.

        A message that arrives meanwhile may be changed or not. A group that reads the log has no deliveries to change.
        """
        registration = self.search.registration
        if registration and registration.reads_log and self.query.status in (PENDING, WAITING):
            return 0
        total = 0
        for batch in self._batches(limit):
            while batch and total != limit:
                size = CHUNK if limit is None else limit - total
                chosen, batch = batch[:size], batch[size:]
                moved = (
                    len(chosen) if dry_run else session.run(self.using, partial(self._change, batch=chosen))
                )
                if moved and not dry_run:
                    commits.after_commit(self.using, self.query.topic)
                total += moved
            if total == limit:
                break
        return total

    def _batches(self, limit: int | None) -> Iterator[Batch]:
        """Yield lists of messages, each for one transaction. With a ``limit``, yield as soon as it is reached."""
        batch: list[tuple[Found, Row]] = []
        enough = CHUNK if limit is None else min(CHUNK, limit)
        for step in self.search.source.walk(None, CHUNK):
            rows = self.search.read(step, payloads=False)
            batch += [(found, row) for found, row, _ in rows if self._may_change(row)]
            while len(batch) >= enough:
                yield batch[:CHUNK]
                batch = batch[CHUNK:]
            if self.search.is_past_time:
                break
        if batch:
            yield batch

    def _may_change(self, row: Row) -> bool:
        """Return False for a scheduled message that other groups also receive: this group must not change it."""
        return self.query.status != SCHEDULED or self.query.group in (None, row["target"])

    def _change(self, cursor: CursorWrapper, *, batch: Batch) -> int:
        """Change the messages that no other transaction has locked. Return how many."""
        if self.query.status in (PENDING, WAITING):
            return self._change_of_group(cursor, batch)
        locked = _lock(cursor, batch)
        if locked:
            self.operation.elsewhere(cursor, self._topic, locked)
        return len(locked)

    @property
    def _topic(self) -> str:
        topic = self.query.topic
        return topic + SCHEDULED_SUFFIX if self.query.status == SCHEDULED else conf.dead_letter_topic(topic)

    def _change_of_group(self, cursor: CursorWrapper, batch: Batch) -> int:
        """Change messages of one group. Its registration is locked, so that no worker claims them meanwhile."""
        group, topic, registration = self.query.group, self.query.topic, self.search.registration
        assert group is not None
        assert registration is not None
        if not moving.lock_group(cursor, group, topic, registration.generation):
            raise NotRegistered(topic, group)
        locked = _lock(cursor, batch)
        if not locked:
            return 0
        waiting = moving.lock_waiting(cursor, group, topic, [(f.partition, f.offset) for f, _ in locked])
        if waiting:
            retries = [(f.partition, f.offset) for f, _ in locked if f.offset in waiting]
            self.operation.waiting(cursor, group, topic, retries)
        others = [_initial_state(f, row) for f, row in locked if f.offset not in waiting]
        if others and self.query.status == PENDING:
            waiting |= self.operation.pending(cursor, group, topic, others)
        return len(waiting)


def _lock(cursor: CursorWrapper, batch: Batch) -> Batch:
    """Lock the log rows of the messages that no other transaction has locked. Return these messages."""
    free = garbage.lock_free(cursor, [found.offset for found, _ in batch])
    return [(found, row) for found, row in batch if found.offset in free]


def _initial_state(found: Found, row: Row) -> PendingMessage:
    retry = row["retry"] if row["original_id"] is not None else {}
    return PendingMessage(
        found.partition,
        found.offset,
        int(retry.get("count", 0)),
        int(retry.get("failures", 0)),
        retry.get("errors", ()),
    )
