"""Operations on many messages: remove, delay, hold or redeliver them, a few hundred in each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..exceptions import NotRegistered
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..policy.ids import new_token, uuid7
from ..policy.message_query import DEAD, DONE, PENDING, SCHEDULED, WAITING, MessageQuery
from ..policy.outcomes import HELD_UNTIL
from ..protocol.waking import commits
from ..service.actions import BulkRecord
from ..store import dead_letters, garbage, moving, offsets
from ..store.connection import session
from ..store.dead_letters import Redriven
from ..store.moving import PendingMessage
from ..store.parked_retries import without
from ..store.queries import message_pages
from ..store.queries.partition_walk import Found
from .message_search import CHUNK, Search
from .sources import stored_in

MOVABLE = (WAITING, PENDING, SCHEDULED)
"""The statuses of messages that are not done, and not in flight.

The order matters: a changed message must not get a status that ``move`` selects later.
"""

Row = dict[str, Any]
Batch = Sequence[tuple[Found, Row]]


@dataclass(frozen=True)
class Operation:
    """An operation on messages.

    ``name``: for the record of actions. ``statuses``: the statuses that the operation accepts.

    ``waiting``: changes messages that wait for a retry. ``pending``: changes messages that were never delivered;
    returns the offsets of those messages that had no delivery state until then. ``others``: changes messages of other
    statuses in ``topic``, where they are stored. ``fits``: selects among the rows that match the query.
    """

    name: str
    statuses: tuple[str, ...]
    others: Callable[[CursorWrapper, str | None, str, Batch], None]
    waiting: Callable[[CursorWrapper, str, str, Sequence[moving.Message]], None] | None = None
    pending: Callable[[CursorWrapper, str, str, Sequence[PendingMessage]], set[int]] | None = None
    fits: Callable[[MessageQuery, Row], bool] = lambda query, row: True


def _delete(cursor: CursorWrapper, group: str | None, topic: str, batch: Batch) -> None:
    """Delete the messages, and the delivery state that consumers of their topic have for them.

    Dead letters can have such state, because groups may consume a dead-letter topic.
    """
    consumers = sorted(garbage.starts(cursor, topic))
    garbage.delete(cursor, topic, consumers, [found.offset for found, _ in batch])


REMOVE = Operation(
    "remove",
    (*MOVABLE, DEAD),
    others=_delete,
    waiting=lambda cursor, group, topic, rows: moving.finish_waiting(cursor, group, topic, rows, new_token()),
    pending=lambda cursor, group, topic, rows: moving.insert_acknowledged(
        cursor, group, topic, rows, new_token()
    ),
)


def _become_due(name: str, due: int | None, *, scheduled: int | None) -> Operation:
    """Return an operation that changes when messages are due. ``scheduled``: the time for scheduled messages."""

    def begin(cursor: CursorWrapper, group: str, topic: str, rows: Sequence[PendingMessage]) -> set[int]:
        moving.insert_free_leases(cursor, group, topic, sorted({row.partition for row in rows}))
        return moving.begin_waiting(cursor, group, topic, rows, new_token(), due)

    return Operation(
        name,
        MOVABLE,
        others=lambda cursor, group, topic, batch: moving.reschedule(
            cursor, [found.offset for found, _ in batch], scheduled
        ),
        waiting=partial(moving.set_due, due=due),
        pending=begin,
    )


def delay(until: int) -> Operation:
    """Return the operation that delivers messages no earlier than ``until`` (epoch milliseconds)."""
    return _become_due("delay", until, scheduled=until)


TO_FRONT = _become_due("send_to_front", moving.AT_THE_FRONT, scheduled=None)
HOLD = _become_due("hold", HELD_UNTIL, scheduled=HELD_UNTIL)
UNHOLD = replace(
    _become_due("unhold", None, scheduled=None),
    statuses=(WAITING, SCHEDULED),
    fits=lambda query, row: (
        row["available_at" if query.status == SCHEDULED else "invisible_until"] == HELD_UNTIL
    ),
)


def _append_copies(cursor: CursorWrapper, group: str | None, topic: str, batch: Batch) -> None:
    """Append a copy of each message to the log, for the group alone."""
    assert group is not None
    if not offsets.registered_among(cursor, topic, {group}, locking=True):
        raise NotRegistered(topic, group)
    sizes = message_pages.sizes(cursor.db.alias, [found.offset for found, _ in batch])
    for part in batches_by_weight(list(sizes.items()), itemgetter(1), BYTES_PER_STATEMENT):
        copies = [
            Redriven(
                row["partition"],
                uuid7(),
                group,
                bytes(row["payload"]),
                without("retry", row["metadata"]),
                row["original_id"],
            )
            for row in dead_letters.read(cursor, [offset for offset, _ in part])
        ]
        dead_letters.append_redriven(cursor, topic, copies)


REDELIVER = Operation(
    "redeliver",
    (DONE,),
    others=_append_copies,
    # The log may also hold copies, of a retry or an earlier redelivery. Only an offset selects these.
    fits=lambda query, row: row["original_id"] is None or query.offset is not None,
)


def move(
    using: str,
    operation: Operation,
    query: MessageQuery,
    status: str | None,
    *,
    limit: int | None,
    dry_run: bool,
    record: BulkRecord | None = None,
) -> int:
    """Change all messages that match the query and have this status. Return how many.

    ``status``: None selects all that the operation accepts, except dead letters. If the query has no group, the
    operation runs for every group.
    ``limit``: the maximum number of messages. ``dry_run``: change nothing, only count.
    ``record``: None if the action is not an operator's.
    """
    total = 0
    with session.raises_not_migrated(using), nullcontext() if record is None else record.total(using):
        statuses = [each for each in operation.statuses if each != DEAD] if status is None else [status]
        for group, each in _parts(using, query, statuses):
            left = None if limit is None else limit - total
            one = _Move(using, operation, replace(query, group=group, status=each), record)
            total += one.run(left, dry_run)
            if total == limit:
                break
    return total


def _parts(using: str, query: MessageQuery, statuses: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """Yield (group, status) for each search. One search covers scheduled messages or dead letters of all groups."""
    groups: list[str | None] = [query.group]
    if query.group is None:
        groups = [*offsets.registrations(using, query.topic), None]
    for group in groups:
        for each in statuses:
            if (each in (SCHEDULED, DEAD)) == (group is None) or query.group is not None:
                yield group, each


class _Move:
    """The operation on messages of one status, for one group."""

    def __init__(
        self, using: str, operation: Operation, query: MessageQuery, record: BulkRecord | None
    ) -> None:
        self.using, self.operation, self.query, self.record = using, operation, query, record
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
                moved = len(chosen)
                if not dry_run:
                    moved = session.run(self.using, partial(self._change, batch=chosen))
                    if self.record is not None:
                        self.record.committed(moved)
                    if moved:
                        commits.wake_after_commit(self.using, self.query.topic)
                total += moved
            if total == limit:
                break
        return total

    def _batches(self, limit: int | None) -> Iterator[Batch]:
        """Yield lists of messages, each for one transaction. With a ``limit``, yield as soon as it is reached.

        A walk of waiting messages follows their due times, so it may meet a message again that was postponed meanwhile.
        """
        batch: list[tuple[Found, Row]] = []
        seen: set[int] = set()
        enough = CHUNK if limit is None else min(CHUNK, limit)
        for step in self.search.source.walk(None, CHUNK):
            rows = self.search.read(step, payloads=False)
            fresh = [
                (found, row) for found, row, _ in rows if found.offset not in seen and self._may_change(row)
            ]
            batch += fresh
            if self.query.status == WAITING:
                seen.update(found.offset for found, _ in fresh)
            while len(batch) >= enough:
                yield batch[:CHUNK]
                batch = batch[CHUNK:]
            if self.search.is_past_time:
                break
        if batch:
            yield batch

    def _may_change(self, row: Row) -> bool:
        """Return whether the operation applies to this message.

        If it runs for one group, it must not change a scheduled message that other groups also receive.
        """
        is_own = self.query.status != SCHEDULED or self.query.group in (None, row["target"])
        return is_own and self.operation.fits(self.query, row)

    def _change(self, cursor: CursorWrapper, *, batch: Batch) -> int:
        """Change the messages that no other transaction has locked. Return how many."""
        if self.query.status in (PENDING, WAITING):
            changed = self._change_of_group(cursor, batch)
        else:
            locked = _lock(cursor, batch)
            if locked:
                self.operation.others(cursor, self.query.group, stored_in(self.query), locked)
            changed = len(locked)
        if self.record is not None:
            self.record.batch(cursor, changed)
        return changed

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
        if waiting and self.operation.waiting is not None:
            retries = [(f.partition, f.offset) for f, _ in locked if f.offset in waiting]
            self.operation.waiting(cursor, group, topic, retries)
        others = [_initial_state(f, row) for f, row in locked if f.offset not in waiting]
        if others and self.query.status == PENDING and self.operation.pending is not None:
            waiting |= self.operation.pending(cursor, group, topic, others)
        return len(waiting)


def _lock(cursor: CursorWrapper, batch: Batch) -> Batch:
    """Lock the log rows of the messages that no other transaction has locked. Return these messages."""
    free = garbage.lock_unlocked(cursor, [found.offset for found, _ in batch])
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
