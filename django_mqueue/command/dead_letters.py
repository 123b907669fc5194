"""Verbs for dead letters: redrive and purge."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from .. import conf
from ..service import redrive as services
from ..service.actions import Author, record
from ..store.connection import session
from .output import Output
from .selecting import add_limit, value
from .verbs import Options, Verb, confirm, moment


def _add(parser: ArgumentParser) -> None:
    parser.add_argument("topic", help="the original topic, without the suffix of dead letters")
    parser.add_argument("--group", help="only dead letters of this group")
    parser.add_argument("--id", action="append", help="only the message with this id; may be repeated")
    parser.add_argument("--error", help="only this exception, for example ValueError")
    parser.add_argument("--failed-after", type=moment, help="only those that failed at this time or later")
    parser.add_argument("--failed-before", type=moment, help="only those that failed before this time")
    parser.add_argument(
        "--where", action="append", type=value, default=[], metavar="PATH=VALUE",
        help="only messages whose payload has this value, for example customer.id=7; may be repeated",
    )  # fmt: skip
    add_limit(parser)


def _add_redrive(parser: ArgumentParser) -> None:
    _add(parser)
    parser.add_argument("--rate", type=float, help="maximum number of messages a second (default: no limit)")


def _selection(options: Options) -> dict[str, Any]:
    found = {name: options[name] for name in ("error", "failed_after", "failed_before") if options[name]}
    found |= {f"payload__{path.replace('.', '__')}": given for path, given in options["where"]}
    return {
        "group": options["group"], "ids": options["id"], "filter": found or None, "limit": options["limit"],
        "using": options["database"],
    }  # fmt: skip


def redrive(options: Options, output: Output) -> None:
    _run(options, output, "redrive", rate=options["rate"])


def purge(options: Options, output: Output) -> None:
    _run(options, output, "purge")


def _run(options: Options, output: Output, verb: str, **more: Any) -> None:
    topic, arguments = options["topic"], {**_selection(options), **more}
    work = services.redrive if verb == "redrive" else services.purge
    total = work(topic, dry_run=True, **arguments)
    if total and not options["dry_run"]:
        if verb == "purge":
            confirm(options, f"Delete {total} dead letters of topic {topic!r}?")
        author = Author(options["by"], options["why"])
        shown = {name: options[name] for name in ("id", "error", "limit") if options[name]}
        session.run(
            conf.database(options["database"]),
            lambda cursor: record(cursor, author, verb, topic, options["group"] or "", found=total, **shown),
        )
        total = work(topic, **arguments)
    output.values(topic=topic, dead_letters=total)
    done = {"redrive": "redriven", "purge": "purged"}[verb]
    output.say(f"{'Would be' if options['dry_run'] else 'Were'} {done}: {total} dead letters.")


VERBS = [
    Verb("redrive", "send dead letters back to their groups", redrive, _add_redrive, changes=True),
    Verb("purge", "delete dead letters", purge, _add, changes=True, deletes=True),
]
