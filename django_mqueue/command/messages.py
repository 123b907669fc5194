"""Verbs that show messages: peek and find."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from datetime import timedelta
from shlex import quote
from typing import Any

from django.db import connections

from .. import conf, inspect
from ..browse import id_search, masking
from ..doctor.findings import command_line
from ..drawing import payload_texts
from ..policy import names
from ..policy.filters import PAYLOAD, filter_of
from ..policy.message_query import DEAD, SCHEDULED
from ..policy.names import scheduled_topic
from ..results import Inspected
from ..service.subscription import check_count
from ..stats.texts import listed
from ..tasks.job_ids import JobId
from .output import Output, Refused, as_text
from .selecting import add_filters, add_limit, check_known, filters_of
from .verbs import Options, Verb

FOUND_MAX = 1_000
"""The maximum of ``--limit`` of the verb find, whose payloads are all in memory."""
NAMED = 20
"""The maximum number of topics that a sentence names."""


def add_masks(parser: ArgumentParser) -> None:
    parser.add_argument("--unmask", action="store_true", help="show what the topic's MASK hides")


def masked_for(options: Options, message: Inspected) -> Inspected:
    """Return the message, masked unless ``--unmask`` is given."""
    return message if options["unmask"] else masking.masked(message)


def _payload_limit(options: Options, topics: Iterable[str]) -> int:
    """Return the number of bytes to read of each payload of a list.

    A payload can be masked only if it was read as a whole.
    """
    is_masked = not options["unmask"] and any(map(masking.has_mask, topics))
    return masking.MASKABLE_BYTES_IN_LIST if is_masked else payload_texts.HEAD_BYTES


def _add_peek(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--group", help="the status is for this group")
    add_filters(parser)
    add_limit(parser, default=20)
    parser.add_argument("--start", help="continue a listing: the value of next that it printed")
    parser.add_argument("--payload", action="store_true", help="print whole payloads and headers")
    parser.add_argument("--newest-first", action="store_true", help="the newest messages first")
    add_masks(parser)


def peek(options: Options, output: Output) -> None:
    topic, whole = options["topic"], options["payload"]
    filters = filters_of(options)
    content = {name: filters.pop(name) for name in [*filters] if name.startswith(PAYLOAD)}
    content |= filters.pop("filter", {})
    # A filter reads only headers and payload, which ``Message`` and ``Inspected`` both have.
    test: Any = filter_of(content or None)
    if test is not None:
        # A filter must not reveal masked data.
        filters["filter"] = lambda message: test(masked_for(options, message))
    limit: int | None = _payload_limit(options, [topic])
    if whole:
        limit = None if options["unmask"] else masking.MASKABLE_BYTES
    page = inspect.messages(
        topic, group=options["group"], limit=options["limit"], start=options["start"],
        newest_first=options["newest_first"], payload_limit=limit, using=options["database"], **filters,
    )  # fmt: skip
    messages = [masked_for(options, message) for message in page]
    rows = [_row(message, whole=whole and output.as_json) for message in messages]
    output.table("messages", rows, on_a_line="payload", wide=("kind", "attempts"))
    if whole and not output.as_json:
        for message in messages:
            output.say(f"\n{message.offset}: {message.id}")
            if message.headers:
                output.say(f"headers: {payload_texts.pretty(message.headers)}")
            output.say(payload_texts.whole(message))
    output.add_to_json(next=page.next)
    if page.next is not None:
        output.say(f"There may be more messages: use --start={quote(page.next)}")
    if not rows:
        check_known(options, output)


def _row(message: Inspected, *, whole: bool) -> dict[str, Any]:
    row = {
        "offset": message.offset if message.dead_letter is None else message.dead_letter, "key": message.key,
        "id": message.id, "kind": message.kind, "published": message.published_at,
    }  # fmt: skip
    if message.status is not None:
        row |= {"status": message.status, "attempts": message.attempts}
    if message.status == SCHEDULED:
        row["due"] = message.available_at
    if message.status == DEAD:
        row["group"] = message.group
    if message.errors:
        row["last_error"] = message.errors[-1].error.partition("\n")[0]
    if whole:
        payload = payload_texts.on_a_line(message) if payload_texts.stored(message) else message.payload
        return {**row, "headers": message.headers, "payload": payload}
    return {**row, "payload": payload_texts.on_a_line(message)}


def _add_find(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="an id of a message or a job, or an offset")
    parser.add_argument("--key", help="only messages with this key; without an id, its newest messages")
    add_limit(parser, default=20, most=FOUND_MAX)
    add_masks(parser)


def find(options: Options, output: Output) -> None:
    id, key, alias = options["id"], options["key"], options["database"]
    if id is None and key is None:
        raise Refused("give an id, an offset, or --key")
    if id is not None:
        names.check_name("id", id, names.ID_MAX)
    if key is not None:
        names.check_name("key", key, names.KEY_MAX)
    check_count("limit", options["limit"], FOUND_MAX)
    found = id_search.find(
        alias, id=id, key=key, partitions=job_partitions(id), limit=options["limit"],
        payload_limit=_payload_limit(options, ["", *conf.topics()]),
    )  # fmt: skip
    output.table(
        "messages",
        [_found_row(options, one) for one in found.messages],
        on_a_line="payload",
        wide=("kind", "group", "published"),
    )
    output.add_to_json(topics_searched=found.topics)
    if found.messages:
        first = found.messages[0]
        why = command_line(alias, "mqueue", "why", first.stored_in, str(first.row_offset))
        output.say(f"See why: {why}")
        return
    possibilities = list(_possibilities(alias, found, id, key))
    output.add_to_json(possibilities=possibilities)
    for number, text in enumerate(possibilities, 1):
        output.say(f"{number}. {text}")
    name = "id" if key else "id or offset"  # An offset is not searched together with a key.
    what = " and ".join(filter(None, [id and f"{name} {id!r}", key and f"key {key!r}"]))
    output.problem(f"no message with {what} was found in {len(found.topics)} topics of database {alias!r}")


def job_partitions(id: str | None) -> list[tuple[str, str]]:
    """Return the partitions of a job: its id names the queue and the partition."""
    job = None if id is None else JobId.parse(id)
    return (
        [] if job is None else [(topic, job.partition) for topic in (job.topic, scheduled_topic(job.topic))]
    )


def _found_row(options: Options, one: id_search.FoundMessage) -> dict[str, Any]:
    message = masked_for(options, one.message)
    where = {DEAD: "dead letter", SCHEDULED: "scheduled"}.get(message.status or "", "log")
    return {
        "topic": one.stored_in, "offset": one.row_offset, "where": where, "key": message.key, "id": message.id,
        "kind": message.kind, "published": message.published_at, "group": message.group or message.target,
        "payload": payload_texts.on_a_line(message),
    }  # fmt: skip


def _possibilities(alias: str, found: id_search.FindResult, id: str | None, key: str | None) -> Iterator[str]:
    """Yield sentences that say why a message may be missing from the result."""
    kept = [f"{topic} {as_text(timedelta(milliseconds=conf.retention_ms(topic)))}" for topic in found.topics]
    yield (
        "It was deleted, by an operator or because all groups have finished it and the retention is over: "
        f"{listed(kept, NAMED) or 'there are no topics'}."
    )
    is_publishing = id_search.is_publishing(alias, found.topics)
    if is_publishing is None:
        yield (
            "It is not committed yet, or it was never committed, for example because its transaction rolled back."
            " Whether a transaction publishes now is unknown: this account may only read."
        )
    elif is_publishing:
        yield "It is not committed yet: a transaction that publishes is open now."
    else:
        yield (
            "It was never committed, for example because its transaction rolled back: no transaction publishes to the"
            " searched topics now. An open transaction that schedules it cannot be seen."
        )
    yield f"It is in another database: this search read {alias!r} ({_server(alias)})."
    if id is not None and key is None:
        if found.partial:
            yield (
                f"It has a key that was not searched in one of these topics: {listed(found.partial, NAMED)}. Give --key"
                " to search one key of each topic."
            )
        yield (
            "Its retry is parked, and the message itself is deleted: list parked retries with mqueue peek TOPIC"
            " --status scheduled."
        )
    yield (
        "Its id or key differs, for example in case: they are compared byte by byte. Replies to requests are not"
        " searched."
    )


def _server(alias: str) -> str:
    settings = connections[alias].settings_dict
    return f"{settings['NAME']} on {settings['HOST'] or 'localhost'}"


VERBS = [
    Verb("peek", "list messages of a topic", peek, _add_peek),
    Verb("find", "find messages in all topics, by id, key or offset", find, _add_find),
]
