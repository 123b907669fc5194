"""Publish: messages into the log, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from .. import conf, tracing
from ..exceptions import DuplicateMessage, NotRegistered
from ..messages import OutgoingMessage, Published
from ..policy import names
from ..policy.encoding import encode
from ..policy.ids import uuid7
from ..store import log, offsets, session
from ..store.dialect import DUPLICATE_ENTRY, NULL
from . import telling

ROWS_PER_STATEMENT = 500
BYTES_PER_STATEMENT = 4 * 1_048_576


@tracing.sending
def publish(
    topic: str,
    payload: Any,
    *,
    key: str | None = None,
    id: str | None = None,
    kind: str = "",
    headers: Any = None,
    group: str | None = None,
    on_duplicate: Literal["ignore", "error"] = "ignore",
    using: str | None = None,
) -> Published:
    """Publish one message to a topic, in the caller's transaction: it exists exactly when that commits.

    ``payload`` is whatever ``DjangoJSONEncoder`` encodes, or ``bytes``. Messages of one ``key`` are consumed in
    order; without one the message is spread over the topic's partitions by a hash of its ``id``. An ``id`` that
    the topic's partition holds already stores nothing: ``created`` is False then, or ``DuplicateMessage`` is
    raised with ``on_duplicate="error"``. ``kind`` names the payload's type and ``headers`` is a mapping of JSON
    values; both travel with it. ``group``: the message is for that consumer group alone, which must be registered; its
    ``id`` is then unique among those for that group. ``using`` is a database alias, by default ``MQUEUE["DATABASE"]``.

    One statement, no commit. Raises ``TypeError`` or ``ValueError`` for bad arguments before any SQL, and
    ``NotRegistered`` for an unknown ``group``.
    """
    if on_duplicate not in ("ignore", "error"):
        raise ValueError(f'on_duplicate must be "ignore" or "error", not {on_duplicate!r}')
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    row = _row(topic, OutgoingMessage(payload, key=key, id=id, kind=kind, headers=headers, group=group))

    def store(cursor: CursorWrapper) -> tuple[int, bool]:
        with _known_groups(cursor, topic, [row]):
            if id is None:
                return log.insert(cursor, topic, [row]), True
            return log.insert_once(cursor, topic, row)

    alias = conf.database(using)
    with session.explained(alias):
        offset, created = session.single(alias, store)
    published = _published(topic, row, offset, created)
    telling.published(alias, topic, [row], [published])
    if not created and on_duplicate == "error":
        raise DuplicateMessage(published)
    return published


@tracing.sending_many
def publish_many(
    topic: str, messages: Iterable[OutgoingMessage | Any], *, using: str | None = None
) -> list[Published]:
    """Publish payloads or ``OutgoingMessage`` values: what became of each, in the same order.

    All or nothing, in the caller's transaction or, outside one, in one of its own. One statement for each 500
    messages or 4 MiB, and one read more where ids are given, or groups. Messages that are duplicates, of the log's or
    of one another, are not stored again and say so. All arguments are checked before any SQL.
    """
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    if isinstance(messages, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(
        messages, Iterable
    ):
        raise TypeError(
            f"messages must be an iterable of payloads or OutgoingMessage, not {type(messages).__name__}"
        )
    rows, given = [], []
    for place, message in enumerate(messages):
        outgoing = message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
        try:
            rows.append(_row(topic, outgoing))
        except (TypeError, ValueError) as error:
            raise type(error)(f"message {place}: {error}") from error
        given.append(outgoing.id is not None)
    if not rows:
        return []

    def store(cursor: CursorWrapper) -> list[Published]:
        return _store(cursor, topic, rows, given)

    alias = conf.database(using)
    with session.explained(alias):
        if any(row.group for row in rows):
            # Before anything is stored: the caller's transaction can go on then.
            session.single(alias, lambda cursor: _check_groups(cursor, topic, rows))
        stored = session.run(alias, store)
    telling.published(alias, topic, rows, stored)
    return stored


def check(topic: str, message: OutgoingMessage) -> None:
    """Raise what ``publish`` would raise for bad arguments."""
    _row(names.check_publish_topic(topic, conf.dead_letter_suffixes()), message)


def _row(topic: str, message: OutgoingMessage) -> log.NewRow:
    if message.key is not None:
        names.check_name("key", message.key, names.KEY_MAX)
    message_id = uuid7() if message.id is None else names.check_name("id", message.id, names.ID_MAX)
    limit, carried = conf.get("MAX_PAYLOAD_BYTES", topic), tracing.carried(message.headers)
    content = encode(message.payload, message.kind, message.headers, limit, carried)
    partition = message.key
    if partition is None:
        partition = names.spread_partition(message_id, conf.get("SPREAD", topic))
    group = "" if message.group is None else names.check_name("group", message.group, names.GROUP_MAX)
    return log.NewRow(partition, message_id, content, group)


@contextmanager
def _known_groups(cursor: CursorWrapper, topic: str, rows: Sequence[log.NewRow]) -> Iterator[None]:
    """Say which group it is that is not registered."""
    try:
        yield
    except IntegrityError as error:
        if session.error_code(error) == NULL:
            _check_groups(cursor, topic, rows)
        raise


def _check_groups(cursor: CursorWrapper, topic: str, rows: Sequence[log.NewRow]) -> None:
    groups = {row.group for row in rows if row.group}
    if groups and (unknown := groups - offsets.registered_among(cursor, topic, groups)):
        raise NotRegistered(topic, min(unknown))


def _published(topic: str, row: log.NewRow, offset: int, created: bool) -> Published:
    return Published(offset, row.id, topic, names.key_of(row.partition), created)


def _store(cursor: CursorWrapper, topic: str, rows: list[log.NewRow], given: list[bool]) -> list[Published]:
    results: dict[tuple[str, str, str], Published] = {}
    answers = []
    for chunk in _chunks(rows, given):
        keys = [row.place for row, was_given in chunk if was_given]
        fresh: dict[tuple[str, str, str], log.NewRow] = {}
        for row, _ in chunk:
            if row.place not in results:
                fresh.setdefault(row.place, row)
        there = log.existing(cursor, topic, [key for key in dict.fromkeys(keys) if key in fresh])
        stored = _insert_rest(cursor, topic, fresh, there, keys)
        for row, _ in chunk:
            key = row.place
            if key in results:
                answers.append(_published(topic, row, results[key].offset, False))
                continue
            offset = stored.get(key)
            results[key] = _published(
                topic, row, there[key] if offset is None else offset, offset is not None
            )
            answers.append(results[key])
    return answers


def _insert_rest(
    cursor: CursorWrapper,
    topic: str,
    fresh: dict[tuple[str, str, str], log.NewRow],
    there: dict[tuple[str, str, str], int],
    given: list[tuple[str, str, str]],
) -> dict[tuple[str, str, str], int]:
    """Insert what is not there; a publisher that stored one of the ids meanwhile is waited for and believed."""
    while True:
        missing = [key for key in fresh if key not in there]
        if not missing:
            return {}
        try:
            with _known_groups(cursor, topic, list(fresh.values())):
                first = log.insert(cursor, topic, [fresh[key] for key in missing])
        except IntegrityError as error:
            if session.error_code(error) != DUPLICATE_ENTRY or not given:
                raise
            asked = [key for key in dict.fromkeys(given) if key in fresh]
            there.update(log.existing(cursor, topic, asked, locking=True))
            continue
        return {key: first + place for place, key in enumerate(missing)}


def _chunks(rows: list[log.NewRow], given: list[bool]) -> Iterable[list[tuple[log.NewRow, bool]]]:
    chunk: list[tuple[log.NewRow, bool]] = []
    size = 0
    for row, was_given in zip(rows, given, strict=True):
        weight = len(row.content.body) + len(row.content.metadata)
        if chunk and (len(chunk) == ROWS_PER_STATEMENT or size + weight > BYTES_PER_STATEMENT):
            yield chunk
            chunk, size = [], 0
        chunk.append((row, was_given))
        size += weight
    if chunk:
        yield chunk
