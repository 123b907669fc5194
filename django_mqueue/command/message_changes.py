"""Verbs that change messages: redeliver, hold, unhold, delay, hurry, remove, erase, redrive, purge."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from .. import inspect
from ..policy import durations
from ..service import redrive as services
from ..service.actions import Author, BulkRecord
from ..store.queries.group_rows import now_ms
from .output import Output, Refused
from .selecting import (
    add_filters,
    add_limit,
    add_where,
    author_of,
    check_known,
    filters_of,
    payload_filters,
    unknown_topic,
)
from .verbs import Options, Verb, confirm, parse_duration, parse_time


def _add(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", help="the group for which the messages change")
    which.add_argument("--all-groups", action="store_true", help="for every group of the topic")
    _add_selection(parser)


def _add_selection(parser: ArgumentParser, *leave_out: str) -> None:
    add_filters(parser, *leave_out)
    add_limit(parser)
    parser.add_argument("--all", action="store_true", help="all messages: required without a filter")


def _add_redeliver(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--group", required=True, help="the group that gets the messages again")
    _add_selection(parser, "status")


def _add_delay(parser: ArgumentParser) -> None:
    _add(parser)
    until = parser.add_mutually_exclusive_group(required=True)
    until.add_argument("--until", type=parse_time, help="ISO 8601, UTC unless it has a zone")
    until.add_argument(
        "--for", dest="duration", type=parse_duration, metavar="TIME", help="from now, such as 30m or 2h"
    )


def _changes(change: Callable[..., int], done: str) -> Callable[[Options, Output], None]:
    """Return the ``run`` of a verb. ``done``: a word for the messages in the output, such as ``"held"``."""

    def run(options: Options, output: Output) -> None:
        filters = filters_of(options)
        if not filters and not options["all"]:
            raise Refused("no filter is given: select messages by --key, --id, --status …, or give --all")
        arguments = {"group": options["group"], "limit": options["limit"], **filters}
        asks = not options.get("yes", True)
        total = 1
        if options["dry_run"] or asks:
            total = change(options["topic"], dry_run=True, using=options["database"], **arguments)
        if total and not options["dry_run"]:
            if asks:
                confirm(options, f"{total} messages of topic {options['topic']!r} will be {done}.")
            total = change(options["topic"], **arguments, **author_of(options))
        output.values(topic=options["topic"], group=options["group"], messages=total)
        if not total:
            check_known(options, output)
        if options["dry_run"]:
            output.say(f"Dry run: these would be {done}.")

    return run


def delay(options: Options, output: Output) -> None:
    until = options["until"]
    if until is None:
        until = durations.moment(now_ms(options["database"])) + options["duration"]
    output.values(until=until)

    def change(topic: str, **arguments: Any) -> int:
        return inspect.delay(topic, until, **arguments)

    _changes(change, "delayed")(options, output)


def _add_erase(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--topic", help="only this topic, with its scheduled messages and dead letters (default: all)"
    )
    add_filters(parser, "status", "offset", "kind", "after", "before")


def erase(options: Options, output: Output) -> None:
    arguments = {"topic": options["topic"], **filters_of(options)}
    if options["dry_run"] or not options["yes"]:
        found = inspect.erase(**arguments, dry_run=True, using=options["database"])
        if options["dry_run"]:
            rows = [{"topic": one.topic, "messages": one.found} for one in found]
            output.table("found", rows, empty="no messages")
        elif not found:
            output.table("erased", [], empty="no messages")
        if not found:
            _say_unknown(options, output)
        if options["dry_run"] or not found:
            return
        total = sum(one.found for one in found)
        confirm(
            options,
            f"Delete {total} messages of {len(found)} topics, also those that groups have not handled yet?",
        )
    done = inspect.erase(**arguments, **author_of(options))
    columns = ("topic", "found", "deleted", "in_flight", "left")
    rows = [{name: getattr(one, name) for name in columns} for one in done]
    output.table("erased", rows, empty="no messages")
    left = sum(one.left for one in done)
    if not done:
        _say_unknown(options, output)
    if left:
        output.problem(
            f"{left} messages are left: other transactions have locked them, or they were published or moved meanwhile."
            " Run this again; mqueue blockers names the transactions"
        )
    else:
        output.say(
            "A second search found no message. Archives, the records of operators' actions, and what handlers have"
            " stored are not erased."
        )


def _say_unknown(options: Options, output: Output) -> None:
    """Print a note if the topic is unknown. It is no ``problem``: an earlier call may have deleted the last message."""
    if options["topic"] is not None and (text := unknown_topic(options["database"], options["topic"])):
        output.say(f"The {text}.")
        output.add_to_json(note=text)


def _add_dead_letters(parser: ArgumentParser) -> None:
    parser.add_argument("topic", help="the original topic, without the suffix of dead letters")
    parser.add_argument("--group", help="only dead letters of this group")
    parser.add_argument(
        "--id", action="append", help="only dead letters of messages with this id; may be repeated"
    )
    parser.add_argument("--key", help="only dead letters of messages with this key")
    parser.add_argument("--error", help="only this exception, for example ValueError")
    parser.add_argument(
        "--failed-after", type=parse_time, help="only those that failed at this time or later"
    )
    parser.add_argument("--failed-before", type=parse_time, help="only those that failed before this time")
    add_where(parser)
    add_limit(parser)


def _add_redrive(parser: ArgumentParser) -> None:
    _add_dead_letters(parser)
    parser.add_argument("--rate", type=float, help="maximum number of messages a second (default: no limit)")


def redrive_or_purge(options: Options, output: Output) -> None:
    """Redrive or purge dead letters: the name of the verb says which."""
    verb, topic, group = options["subcommand"], options["topic"], options["group"]
    ids, key, limit = options["id"], options["key"], options["limit"]
    names = ("error", "failed_after", "failed_before")
    filters = {name: options[name] for name in names if options[name] is not None}
    paths = payload_filters(options)
    selection = services.selection(
        topic, group, {**filters, **paths} or None, options["database"], redrives=verb == "redrive"
    )
    if key is not None:
        fits = selection.fits
        selection.fits = lambda dead_letter: dead_letter.key == key and fits(dead_letter)
    asks = not options.get("yes", True)
    total = 1
    if options["dry_run"] or asks:
        total = selection.run(ids, limit, dry_run=True)
    if total and not options["dry_run"]:
        if asks:
            confirm(options, f"Delete {total} dead letters of topic {topic!r}?")
        selection.record = BulkRecord(
            Author(options["by"], options["why"]), verb, topic, group or "", limit=limit, id=ids, key=key,
            filters={**{name: str(given) for name, given in filters.items()}, **dict.fromkeys(paths, "…")} or None,
        )  # fmt: skip
        total = selection.run(ids, limit, dry_run=False, rate=options.get("rate"))
    output.values(topic=topic, dead_letters=total)
    if not total:
        check_known(options, output)
        if verb == "redrive":
            output.say("A dead letter is redriven only while its group is registered: see mqueue subscribe.")
    if options["dry_run"]:
        output.say(f"Dry run: these would be {'redriven' if verb == 'redrive' else 'purged'}.")


VERBS = [
    Verb(
        "redeliver", "deliver messages again that a group is done with",
        _changes(inspect.redeliver, "delivered again"), _add_redeliver, changes=True,
    ),
    Verb("hold", "hold messages until unhold", _changes(inspect.hold, "held"), _add, changes=True),
    Verb("unhold", "deliver messages that are held", _changes(inspect.unhold, "no longer held"), _add, changes=True),
    Verb("delay", "set the time from which messages are delivered", delay, _add_delay, changes=True),
    Verb(
        "hurry", "deliver messages now, before all others of their keys",
        _changes(inspect.send_to_front, "sent to the front"), _add, changes=True,
    ),
    Verb(
        "remove", "remove messages from a group, so that they are not delivered to it",
        _changes(inspect.remove, "removed"), _add, changes=True, deletes=True,
    ),
    Verb("erase", "delete matching messages", erase, _add_erase, changes=True, deletes=True),
    Verb("redrive", "send dead letters back to their groups", redrive_or_purge, _add_redrive, changes=True),
    Verb("purge", "delete dead letters", redrive_or_purge, _add_dead_letters, changes=True, deletes=True),
]  # fmt: skip
