"""Publish messages, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack

from asgiref.sync import sync_to_async
from django.db.backends.utils import CursorWrapper

from .. import conf, tracing
from ..exceptions import DuplicateMessage, NoTransaction
from ..messages import OutgoingMessage, Published
from ..policy import names
from ..policy.durations import Due, due_of
from ..policy.encoding import encode
from ..policy.ids import uuid7
from ..policy.requests import BOX_OFFSET_MAX, REPLY_TO, Box, check_headers
from ..protocol import events
from ..protocol.waking import commits
from ..store.connection import session
from ..store.log import NewRow
from ..store.schedule import ScheduledRow
from .storing import (
    check_groups,
    check_message_key,
    naming_unknown_group,
    store_many,
    store_now,
    store_scheduled,
)

OnDuplicate = Literal["ignore", "error", "replace"]


class TopicOptions(TypedDict, total=False):
    """The options of ``publish``, except ``kind``."""

    key: str | None
    id: str | None
    headers: Any
    delay: float | timedelta | None
    at: datetime | None
    group: str | None
    priority: int
    on_duplicate: OnDuplicate
    require_transaction: bool | None
    using: str | None


class PublishOptions(TopicOptions, total=False):
    """The options of ``publish``."""

    kind: str


@tracing.sending
def publish(
    topic: str,
    payload: Any,
    *,
    key: str | None = None,
    id: str | None = None,
    kind: str = "",
    headers: Any = None,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    group: str | None = None,
    priority: int = 0,
    on_duplicate: OnDuplicate = "ignore",
    require_transaction: bool | None = None,
    using: str | None = None,
) -> Published:
    """Publish one message to a topic, in the caller's transaction. It exists if and only if that transaction commits.

    ``payload``: a value that ``DjangoJSONEncoder`` encodes, or ``bytes``. ``kind``: a name for the payload's type.
    ``headers``: a mapping of JSON values. ``using``: a database alias, by default ``MQUEUE["DATABASE"]``.

    ``key``: messages of one key are one partition. A handler with ``strict=True`` gets them one at a time, in order;
    other handlers do not. A message without a key goes to a partition that a hash of its ``id`` selects. ``group``: the
    message is only for this consumer group, which must be registered.

    ``priority``: from -100 to 100. Workers claim messages with a higher priority first. Not together with ``key``. An
    ``id`` is unique among the messages of one priority.

    ``id``: by default a new UUIDv7. If the topic's partition already holds this ``id``, nothing is stored. Then
    ``created`` is False, or ``on_duplicate="error"`` raises ``DuplicateMessage``. With ``group``, the ``id`` is unique
    among the messages for that group.

    ``delay`` (seconds or a timedelta) or ``at`` (an aware datetime): schedule the message. It is not delivered before
    that time of the database's clock, and soon after it if a worker runs. Until then ``scheduled``, ``cancel`` and
    ``reschedule`` find it by its ``id``. ``on_duplicate="replace"``: if a message with this ``id`` is still scheduled,
    replace its payload, kind, headers and time. Then ``replaced`` is True.

    ``require_transaction``: True raises ``NoTransaction`` if no transaction is open. None: the setting
    ``REQUIRE_TRANSACTION``.

    Commits nothing itself. Runs one statement; three for a scheduled message with an ``id``, and four with ``group`` in
    a transaction. ``replace``, and an ``id`` or a ``group`` at REPEATABLE READ, may need more. Raises ``TypeError`` or
    ``ValueError`` for bad arguments before any SQL, and ``NotRegistered`` for an unknown ``group``.
    """
    if on_duplicate not in ("ignore", "error", "replace"):
        raise ValueError(f'on_duplicate must be "ignore", "error" or "replace", not {on_duplicate!r}')
    if on_duplicate == "replace" and id is None:
        raise ValueError('on_duplicate="replace" needs the id of the message to replace')
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    due = due_of(delay, at)
    outgoing = OutgoingMessage(
        payload, key=key, id=id, kind=kind, headers=headers, group=group, priority=priority
    )
    row = _row(topic, outgoing, conf.get("MAX_PAYLOAD_BYTES", topic))
    alias = conf.database(using)
    check_transaction(topic, alias, require_transaction)
    return _publish(topic, row, due, id is not None, on_duplicate, alias)


def check_transaction(topic: str, alias: str, required: bool | None = None) -> None:
    """Raise ``NoTransaction`` if a publish to the topic must be in a transaction, and the caller has none.

    ``required``: None means the setting. Runs no SQL.
    """
    if required is not None and not isinstance(required, bool):
        raise TypeError(f"require_transaction must be True, False or None, not {required!r}")
    if required is None:
        required = conf.get("REQUIRE_TRANSACTION", topic)
    if required and not session.in_own_transaction(alias):
        raise NoTransaction(topic, alias)


async def apublish(topic: str, payload: Any, **options: Unpack[PublishOptions]) -> Published:
    """Do the same as ``publish``, for asynchronous callers. It runs in the thread of Django's synchronous code.

    It commits at once, unless that thread is in a transaction. To publish together with other writes, or where the
    setting ``REQUIRE_TRANSACTION`` holds, wrap a function that uses ``transaction.atomic()`` in ``sync_to_async``.
    """
    return await sync_to_async(publish)(topic, payload, **options)


@tracing.sending
def publish_request(topic: str, message: OutgoingMessage, box: Box, using: str) -> Published:
    """Publish a request whose reply goes into ``box``. Raise ``DuplicateMessage``, or what ``publish`` raises."""
    row = _row(topic, message, conf.get("MAX_PAYLOAD_BYTES", topic), box)
    return _publish(topic, row, None, message.id is not None, "error", using)


def _publish(
    topic: str, row: NewRow, due: Due | None, may_exist: bool, on_duplicate: OnDuplicate, alias: str
) -> Published:
    """Store one row. ``may_exist``: another message may already have this id."""
    replace = on_duplicate == "replace"

    def store(cursor: CursorWrapper) -> Published:
        with naming_unknown_group(cursor, topic, [row]):
            if due is None:
                return store_now(cursor, topic, row, may_exist=may_exist, replace=replace)
            scheduled = ScheduledRow(row, due)
            return store_scheduled(cursor, topic, scheduled, may_exist=may_exist, replace=replace)

    several = replace or (due is not None and may_exist)
    with session.raises_not_migrated(alias):
        if several and row.group and session.in_transaction(alias):
            # Check first, so that the caller's transaction stays usable.
            session.run_statement(alias, lambda cursor: check_groups(cursor, topic, [row]))
        published = (
            session.run(alias, store) if several else session.run_statement(alias, store, latest=may_exist)
        )
    events.published(alias, topic, [row], [due], [published])
    if published.created or published.replaced:
        commits.wake_after_commit(alias, topic)
    if on_duplicate == "error" and not published.created:
        raise DuplicateMessage(published)
    return published


@tracing.sending
def publish_new(topic: str, messages: Sequence[OutgoingMessage], using: str) -> list[Published]:
    """Publish messages whose ids no other message has. Raise what ``publish_many`` raises."""
    if len(messages) > 1:
        return _publish_many(topic, messages, using, False, is_new=True)
    (message,) = messages
    row = _row(topic, message, conf.get("MAX_PAYLOAD_BYTES", topic))
    return [_publish(topic, row, due_of(message.delay, message.at), False, "ignore", using)]


@tracing.sending
def publish_once(topic: str, message: OutgoingMessage, partition: str, using: str) -> Published:
    """Publish a message into a chosen partition, unless its id is used there. Raise what ``publish`` raises."""
    row = _row(topic, message, conf.get("MAX_PAYLOAD_BYTES", topic))._replace(partition=partition)
    return _publish(topic, row, due_of(message.delay, message.at), True, "ignore", using)


@tracing.sending
def publish_many(
    topic: str,
    messages: Iterable[OutgoingMessage | Any],
    *,
    require_transaction: bool | None = None,
    using: str | None = None,
) -> list[Published]:
    """Publish payloads or ``OutgoingMessage`` values. Return a ``Published`` for each, in the same order.

    Stores all messages or none, in the caller's transaction or in a new one. One statement stores up to 500 messages or
    4 MiB. Given ids cost one more read, and so do groups. Messages with ``delay`` or ``at`` have separate statements,
    after the others. A duplicate of a message that is stored before it is not stored; its ``created`` is False.
    ``require_transaction``: as for ``publish``.

    Raises ``TypeError`` or ``ValueError`` for bad arguments before any SQL, and ``NotRegistered`` for an unknown group.
    """
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    single = (str, bytes, bytearray, memoryview, Mapping)
    if isinstance(messages, single) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise TypeError(f"messages must be an iterable of payloads or OutgoingMessage, not {kind}")
    return _publish_many(topic, messages, conf.database(using), require_transaction)


def _publish_many(
    topic: str,
    messages: Iterable[OutgoingMessage | Any],
    alias: str,
    require_transaction: bool | None,
    *,
    is_new: bool = False,
) -> list[Published]:
    """Store messages. ``is_new``: no other message has their ids."""
    limit = conf.get("MAX_PAYLOAD_BYTES", topic)
    rows: list[NewRow] = []
    dues: list[Due | None] = []
    may_exist: list[bool] = []
    for number, message in enumerate(messages):
        outgoing = message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
        try:
            dues.append(due_of(outgoing.delay, outgoing.at))
            rows.append(_row(topic, outgoing, limit))
        except (TypeError, ValueError) as error:
            raise type(error)(f"message {number}: {error}") from error
        may_exist.append(outgoing.id is not None and not is_new)
    check_transaction(topic, alias, require_transaction)
    if not rows:
        return []

    def store(cursor: CursorWrapper) -> list[Published]:
        return store_many(cursor, topic, rows, dues, may_exist)

    with session.raises_not_migrated(alias):
        if any(row.group for row in rows):
            # Check before the first INSERT, so that the caller's transaction stays usable.
            session.run_statement(alias, lambda cursor: check_groups(cursor, topic, rows))
        stored = session.run(alias, store)
    events.published(alias, topic, rows, dues, stored)
    if any(one.created for one in stored):
        commits.wake_after_commit(alias, topic)
    return stored


def check(topic: str, message: OutgoingMessage, *, is_request: bool = False) -> int:
    """Return the size of the stored payload in bytes. Raise what ``publish`` raises for bad arguments.

    ``is_request``: the headers must have room for the header that names the reply box.
    """
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    box = Box(BOX_OFFSET_MAX, uuid7(), topic, uuid7()) if is_request else None
    row = _row(topic, message, conf.get("MAX_PAYLOAD_BYTES", topic), box, is_sent=False)
    return len(row.content.body)


def _row(
    topic: str, message: OutgoingMessage, limit: int, box: Box | None = None, *, is_sent: bool = True
) -> NewRow:
    """Return the message as it is stored. ``limit``: maximum bytes of the payload. ``box``: takes a request's reply.

    ``is_sent``: False leaves the current span as it is.
    """
    check_headers(message.headers)
    id = message.id
    if id is None:
        id = uuid7() if box is None else box.request_id
    partition, id, group = check_message_key(topic, id, message.key, message.group, message.priority)
    carried = tracing.carried(message.headers) if is_sent else {}
    headers = {} if message.headers is None else message.headers
    if box is not None and isinstance(headers, Mapping):  # Otherwise, ``encode`` raises an error.
        headers = {**headers, REPLY_TO: str(box)}
    return NewRow(partition, id, encode(message.payload, message.kind, headers, limit, carried), group)
