"""The verb publish."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.db import transaction

from ..messages import OutgoingMessage
from ..service import publish as publishing
from ..service.actions import Author, record
from ..store.connection import session
from .output import Output, Refused
from .selecting import unique, value
from .verbs import Options, Verb, parse_duration, parse_time


def _add(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("payload", help="JSON, or - to read it from the standard input")
    parser.add_argument("--lines", action="store_true", help="with -: each line is a message")
    parser.add_argument("--bytes", action="store_true", help="the payload is bytes, not JSON")
    parser.add_argument("--key", help="messages of a key are one partition; strict handlers keep its order")
    parser.add_argument("--id", help="not with --lines; a second message with this id is not stored")
    parser.add_argument("--kind", default="", help="a name for the payload's type")
    parser.add_argument(
        "--header", action="append", type=value, default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument("--group", help="only for this group")
    parser.add_argument("--priority", type=int, default=0, help="from -100 to 100; not with --key")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", type=parse_duration, help="deliver after this time, such as 30m")
    when.add_argument(
        "--at", type=parse_time, help="deliver at this time: ISO 8601, UTC unless it has a zone"
    )


def publish(options: Options, output: Output) -> None:
    if options["lines"] and (options["id"] or options["payload"] != "-"):
        raise Refused("--lines reads messages from the standard input: give - as the payload, and no --id")
    given = _stdin(options) if options["payload"] == "-" else options["payload"]
    # Not splitlines: JSON may contain other line separators.
    lines = given.split("\n") if options["lines"] else [given]
    messages = {}
    for number, text in enumerate(lines, 1):
        if text.strip() or not options["lines"]:
            place = f"line {number}" if options["lines"] else "the payload"
            messages[place] = _message(options, place, text)
    topic, using = options["topic"], options["database"]
    sizes = [_checked_size(topic, place, message) for place, message in messages.items()]
    if options["dry_run"]:
        output.values(topic=topic, messages=len(sizes), bytes=sum(sizes))
        return
    author = Author(options["by"], options["why"])
    with transaction.atomic(using=using):
        published = publishing.publish_many(topic, messages.values(), using=using)
        if stored := sum(one.created for one in published):
            note = partial(record, author=author, action="publish", topic=topic, messages=stored)
            session.run(using, note)
    output.table(
        "published",
        [{"offset": one.offset, "id": one.id, "key": one.key, "created": one.created} for one in published],
    )


def _stdin(options: Options) -> str:
    """Return the standard input. Bytes that are not UTF-8 become surrogates, which ``_message`` encodes again."""
    if options["bytes"]:
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    return sys.stdin.read()


def _checked_size(topic: str, place: str, message: OutgoingMessage) -> int:
    """Return the size of the payload in bytes. Raise ``Refused`` with the ``place`` of a message that is not valid."""
    try:
        return publishing.check(topic, message)
    except (TypeError, ValueError) as error:
        raise Refused(f"{place}: {error}") from error


def _message(options: Options, place: str, text: str) -> OutgoingMessage:
    payload: Any = text.encode(errors="surrogateescape") if options["bytes"] else None
    if not options["bytes"]:
        try:
            payload = json.loads(text)
        except ValueError as error:
            raise Refused(
                f"{place} is not JSON: {error}. Write texts as '\"text\"', or give --bytes"
            ) from error
    return OutgoingMessage(
        payload, key=options["key"], id=options["id"], kind=options["kind"],
        headers=unique("--header", options["header"]), delay=options["delay"], at=options["at"],
        group=options["group"], priority=options["priority"],
    )  # fmt: skip


VERBS = [Verb("publish", "publish messages", publish, _add, changes=True)]
