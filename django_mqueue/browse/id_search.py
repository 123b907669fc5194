"""Find messages in all topics by id, key or offset. The cost does not depend on the length of the log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError

from .. import conf
from ..policy.batching import batches
from ..policy.names import ACTIONS_TOPIC, OPERATIONS_TOPIC, REPLIES_SUFFIX, SCHEDULED_SUFFIX, spread_partition
from ..results import Inspected
from ..service import message_views
from ..stats.topic_list import dead_letters_of
from ..store import dead_letters, gates
from ..store.connection import errors, session
from ..store.parked_retries import PARKED
from ..store.queries import one_message, skip_scan
from ..store.queries import search as store
from ..store.queries.search import Hit, TopicPartition

PARTITIONS_MAX, PARTITIONS_OF_ALL = 1_000, 50_000
"""Maximum partitions that a search by id without a key reads: of each topic, and of all topics together. A search in
one topic reads up to ``PARTITIONS_OF_ALL``."""
PARTITIONS_MIN = 64
RETRIES = 10
"""Maximum parked retries of one message that are found in each topic."""
LOOKS, BETWEEN_LOOKS = 4, 0.05
"""How often ``is_publishing`` looks at the slots that were locked, and the seconds between two looks."""
AFTER_PARKED = chr(ord(PARKED) + 1)


@dataclass(frozen=True)
class FoundMessage:
    """A message that was found. ``stored_in``: the topic of its row. ``row_offset``: the offset of its row.

    For a dead letter, ``message.offset`` is the offset of the original message.
    """

    message: Inspected
    stored_in: str
    row_offset: int


@dataclass(frozen=True)
class FindResult:
    """The result of a search in all topics.

    ``topics``: the topics that were searched, without derived topics. ``partial``: topics with more partitions than
    were searched: a message with a key may be missing from the result.
    """

    messages: list[FoundMessage]
    topics: list[str]
    partial: list[str]


def find(
    using: str,
    *,
    id: str | None = None,
    key: str | None = None,
    topic: str | None = None,
    partitions: Iterable[TopicPartition] = (),
    limit: int,
    payload_limit: int,
) -> FindResult:
    """Return up to ``limit`` messages of all topics with an id, a key, or both; newest first.

    If the id is a number, the result also contains the message at this offset. The search reads the log, scheduled
    messages and dead letters. ``topic``: search only this topic. ``partitions``: other partitions that may have the id.
    """
    with session.raises_not_migrated(using):
        stored = [
            name
            for name in skip_scan.topics_in_log(using)
            if name not in (ACTIONS_TOPIC, OPERATIONS_TOPIC) and not name.endswith(REPLIES_SUFFIX)
        ]
        if topic is not None:
            derived = {topic, topic + SCHEDULED_SUFFIX, conf.dead_letter_topic(topic)}
            stored = [name for name in stored if name in derived]
        dead = [name for name in stored if dead_letters_of(name) is not None]
        others = [name for name in stored if name not in dead]
        partial: list[str] = []
        if id is None:
            hits = store.newest_of_key(using, stored, key or "", limit)
        else:
            known, partial = _partitions(
                using, others, id, key, PARTITIONS_MAX if topic is None else PARTITIONS_OF_ALL
            )
            hits = store.by_id(using, [*known, *partitions], id) + _copies(using, id, key, others, dead)
            if key is None and id.isdecimal() and id.isascii() and len(id) < 19:
                hits += _at_offset(using, int(id), set(stored))
        found: list[FoundMessage] = []
        for some in batches(sorted(set(hits), reverse=True), limit * 2):
            found += [one for one in _read(using, some, payload_limit) if key in (None, one.message.key)]
            if len(found) >= limit:
                break
    searched = sorted({conf.original_topic(name) for name in stored})
    return FindResult(found[:limit], searched, partial)


def _partitions(
    using: str, topics: Sequence[str], id: str, key: str | None, most: int
) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions in which the id may be, and the topics of which not all partitions are returned.

    ``most``: the maximum number of partitions of each topic. The partition of a message without a key follows from its
    id, and from ``SPREAD`` at the time of its publish.
    """
    if key is not None:
        return [(topic, key) for topic in topics], []
    limit = max(PARTITIONS_MIN, min(most, PARTITIONS_OF_ALL // max(len(topics), 1)))
    names = skip_scan.first_partitions(using, topics, limit + 1)
    found, partial = [], []
    for topic in topics:
        found += [(topic, name) for name in dict.fromkeys([_spread(topic, id), *names[topic][:limit]])]
        if len(names[topic]) > limit:
            partial.append(topic)
    return found, partial


def _spread(topic: str, id: str) -> str:
    """Return the partition of a message without a key and priority."""
    return spread_partition(id, conf.get("SPREAD", topic.removesuffix(SCHEDULED_SUFFIX)))


def _copies(using: str, id: str, key: str | None, topics: Sequence[str], dead: Sequence[str]) -> list[Hit]:
    """Return the rows that were made from a message with this id: redriven messages, retries and dead letters."""
    hits = store.by_original_id(using, topics, id)
    retries = [
        (topic, _spread(topic, id) if key is None else key)
        for topic in topics
        if topic.endswith(SCHEDULED_SUFFIX)
    ]
    hits += store.by_longer_id(using, retries, id + PARKED, id + AFTER_PARKED, RETRIES)
    groups = [(topic, group) for topic in dead for group in dead_letters.groups(using, topic)]
    return hits + store.dead_letters(using, groups, id)


def _at_offset(using: str, offset: int, topics: set[str]) -> list[Hit]:
    found = one_message.origin(using, offset)
    return [(offset, found[0])] if found is not None and found[0] in topics else []


def _read(using: str, hits: Sequence[Hit], payload_limit: int) -> list[FoundMessage]:
    rows = message_views.read(using, [offset for offset, _ in hits], payload_limit)
    found = []
    for offset, stored_in in hits:
        if offset in rows:
            row, body = rows[offset]
            location, topic = message_views.location_of(row, stored_in)
            message = message_views.decode(row, body, topic=topic, location=location)
            found.append(FoundMessage(message, stored_in, offset))
    return found


def is_publishing(using: str, topics: Iterable[str]) -> bool | None:
    """Return whether an open transaction has published to the log of these topics, or of topics with the same gates.

    It does not find scheduled messages, which use no gate. For a moment, it locks the slots that are free. None: this
    account or this server does not allow that.
    """
    busy = {slot for gate in {gates.gate_of(topic) for topic in topics} for slot in gates.slots(gate)}
    looks = 0
    try:
        while busy and looks < LOOKS:  # Workers lock these slots for some milliseconds.
            time.sleep(BETWEEN_LOOKS if looks else 0)
            looks += 1
            busy -= session.run(using, partial(gates.free_slots, candidates=busy))
        return bool(busy)
    except DatabaseError as error:
        if errors.is_denied(error) or errors.is_read_only(error):
            return None
        raise
