"""Erase messages from all topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..policy.filters import PAYLOAD
from ..policy.message_query import DEAD, SCHEDULED, MessageQuery, message_query
from ..results import Inspected
from ..service.actions import Author, BulkRecord
from ..stats import topic_list
from ..store import delivery_state, garbage, offsets
from ..store.connection import session
from ..store.queries.partition_walk import Found
from .message_search import CHUNK, Search
from .sources import stored_in


@dataclass(frozen=True)
class ErasedTopic:
    """The messages of one topic that were erased. ``topic``: where they were stored, for example ``orders_dlq``.

    ``found``: the matching messages. ``deleted``: the deleted messages. ``in_flight``: their deliveries that were
    claimed and not acknowledged. ``left``: messages that a second search found.
    """

    topic: str
    found: int
    deleted: int = 0
    in_flight: int = 0
    left: int = 0


def erase(
    *,
    key: str | None = None,
    id: str | None = None,
    topic: str | None = None,
    filter: Mapping[str, Any] | Callable[[Inspected], Any] | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **payload: Any,
) -> list[ErasedTopic]:
    """Delete messages from the log, the scheduled messages and the dead letters: for example, a person's data.

    * ``key``, ``id``, ``filter``, ``payload__…``: select messages, as for ``messages``. Give at least one of them. An
      index finds a key or an id. The others read all messages.
    * ``topic``: None searches all topics.
    * ``dry_run``: only count.
    * ``by``, ``why``: the author and the reason, for the record of actions, which does not contain the selection.

    No group receives the messages afterwards, even if it has not finished them. If a message is in flight, its ack
    raises ``StaleDelivery``; the writes of an atomic handler are rolled back.

    When all topics are done, a second search counts what is ``left``: another transaction had locked it, or it was
    published, scheduled, redriven or dead-lettered meanwhile. Returns one ``ErasedTopic`` for each topic with such
    messages. Replies, archives, and what handlers have stored are not erased.

    Each transaction deletes a few hundred messages, so an interrupted call can be repeated. Raises ``TypeError`` or
    ``ValueError``.
    """
    if wrong := [name for name in payload if not name.startswith(PAYLOAD)]:
        raise TypeError(
            f"erase does not take {', '.join(wrong)}: give key, id, filter, topic or a path such as payload__customer"
        )
    if key is None and id is None and filter is None and not payload:
        raise TypeError("erase needs a selection: give key, id, filter or a path such as payload__customer")
    alias, author = conf.database(using), Author(by, why)
    filters = {"key": key, "id": id, "filter": filter, **payload}
    with session.raises_not_migrated(alias):
        topics = sorted(topic_list.known_topics(alias)) if topic is None else [topic]
        queries = [message_query(one, filters) for one in topics]
        every = [replace(query, status=status) for query in queries for status in (None, SCHEDULED, DEAD)]
        # A dead-letter topic with groups occurs twice. The later query replaces the first: it finds all rows.
        parts = {stored_in(query): query for query in every}
        done = [_erase_part(alias, *part, author, dry_run=dry_run) for part in parts.items()]
        if not dry_run:  # A message may have moved to a part that was erased before.
            left = [sum(map(len, _batches(alias, query))) for query in parts.values()]
            done = [replace(one, left=count) for one, count in zip(done, left, strict=True)]
    return [one for one in done if one.found or one.left]


def _erase_part(using: str, topic: str, query: MessageQuery, author: Author, *, dry_run: bool) -> ErasedTopic:
    found = deleted = in_flight = 0
    bulk = BulkRecord(author, "erase", query.topic, stored_in=topic)
    with bulk.total(using):
        for batch in _batches(using, query):
            found += len(batch)
            if not dry_run:
                gone, running = session.run(using, partial(_erase_batch, topic=topic, batch=batch, bulk=bulk))
                bulk.committed(gone)
                deleted, in_flight = deleted + gone, in_flight + running
    return ErasedTopic(topic, found, deleted, in_flight)


def _batches(using: str, query: MessageQuery) -> Iterator[list[Found]]:
    search = Search(using, query, newest_first=False)
    for step in search.source.walk(None, CHUNK):
        if batch := [found for found, _, _ in search.read(step, payloads=False)]:
            yield batch


def _erase_batch(
    cursor: CursorWrapper, *, topic: str, batch: list[Found], bulk: BulkRecord
) -> tuple[int, int]:
    """Delete messages. Return their number, and how many deliveries of them were in flight.

    The registrations of the topic's groups are locked, so that no claim is in progress or begins.
    """
    groups = sorted(garbage.starts(cursor, topic))
    for group in groups:
        offsets.lock_registration(cursor, group, topic)
    free = garbage.lock_unlocked(cursor, [one.offset for one in batch])
    messages = [(one.partition, one.offset) for one in batch if one.offset in free]
    if not messages:
        return 0, 0
    in_flight = sum(delivery_state.count_in_flight(cursor, group, topic, messages) for group in groups)
    garbage.delete(cursor, topic, groups, [offset for _, offset in messages])
    garbage.delete_empty_positions(cursor, topic, sorted({partition for partition, _ in messages}))
    bulk.batch(cursor, len(messages))
    return len(messages), in_flight
