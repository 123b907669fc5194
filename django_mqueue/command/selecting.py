"""Options that select messages, options as arguments of services, and the check for unknown topics."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from typing import Any

from ..policy.filters import PAYLOAD, payload_path
from ..stats import topic_list
from .output import Output, Refused
from .verbs import Options, parse_time, positive_int

FILTERS = ("status", "key", "id", "offset", "kind", "after", "before")


def value(text: str) -> tuple[str, Any]:
    """Return the path, or the name of a header, and its value. The value is JSON, or else a text."""
    path, equals, given = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise ArgumentTypeError(f"must have the form NAME=VALUE, such as customer.id=7, not {text!r}")
    try:
        return path, json.loads(given)
    except ValueError:
        return path, given


def add_filters(parser: ArgumentParser, *leave_out: str) -> None:
    """Add the options that select messages."""
    helps: dict[str, tuple[str, dict[str, Any]]] = {
        "status": ("only messages with this status", {}),
        "key": ("only messages with this key", {}),
        "id": ("only messages with this id", {}),
        "offset": ("only the message at this offset", {"type": positive_int}),
        "kind": ("only messages of this kind; may be repeated", {"action": "append"}),
        "after": (
            "only messages since this time (ISO 8601, UTC unless it has a zone)",
            {"type": parse_time},
        ),
        "before": ("only messages published before this time", {"type": parse_time}),
    }
    for name, (text, options) in helps.items():
        if name not in leave_out:
            parser.add_argument(f"--{name}", help=text, **options)
    add_where(parser)
    parser.add_argument(
        "--header", action="append", type=value, default=[], metavar="NAME=VALUE",
        help="only messages with this header; may be repeated",
    )  # fmt: skip


def add_where(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--where", action="append", type=value, default=[], metavar="PATH=VALUE",
        help="only messages whose payload has this value, for example customer.id=7; may be repeated",
    )  # fmt: skip


def add_limit(
    parser: ArgumentParser, what: str = "messages", default: int | None = None, most: int | None = None
) -> None:
    text = "default: no limit" if default is None else f"default {default}"
    if most is not None:
        text += f", up to {most}"
    help = f"maximum number of {what} ({text})"
    parser.add_argument("--limit", type=positive_int, default=default, metavar="N", help=help)


def filters_of(options: Options) -> dict[str, Any]:
    """Return the options that select messages, as arguments for the functions of ``inspect``."""
    found = {name: options[name] for name in FILTERS if options.get(name) is not None}
    found |= payload_filters(options)
    if options["header"]:
        found["filter"] = unique("--header", options["header"])
    return found


def payload_filters(options: Options) -> dict[str, Any]:
    """Return the filters of the option ``--where``."""
    dotted = [
        (payload_path(path).removeprefix(PAYLOAD).replace("__", "."), given)
        for path, given in options["where"]
    ]
    return {payload_path(path): given for path, given in unique("--where", dotted).items()}


def unique(option: str, given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raise ``Refused`` if a name has two values."""
    found = dict(given)
    if len(found) < len(given):
        twice = next(name for name in found if sum(name == other for other, _ in given) > 1)
        raise Refused(f"{option} gives {twice!r} twice: give each name once")
    return found


def author_of(options: Options) -> dict[str, Any]:
    """Return the arguments ``by``, ``why`` and ``using`` of a service."""
    return {"by": options["by"], "why": options["why"], "using": options["database"]}


def check_known(options: Options, output: Output) -> None:
    """Report a problem if the topic is unknown. Call it when nothing was found: the name may be mistyped."""
    if problem := unknown_topic(options["database"], options["topic"]):
        output.problem(problem)


def unknown_topic(alias: str, topic: str) -> str | None:
    """Return a text with similar names if no such topic exists, else None."""
    similar = topic_list.similar_to_missing(alias, topic)
    if similar is None:
        return None
    near = f". Similar names: {', '.join(similar)}" if similar else ""
    return f"topic {topic!r} is unknown: it has no message and no group{near}"
