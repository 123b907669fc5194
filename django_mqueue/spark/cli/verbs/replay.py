"""The command ``replay``: store messages of an archive, and of the log above it, again as copies.

Without ``--yes`` nothing changes.
"""

from __future__ import annotations

import argparse
import json
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ....drawing.printing import on_a_line
from ...archives.places import check_as_of
from ...replays.choice import MessageFilter, check_replay
from ..arguments import AS_OF, checked, moment, state
from ..verb import Job, Verb

if TYPE_CHECKING:
    from ...replays.preview import Preview


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, help="Whose messages.")
    add_source(parser, required=False)
    parser.add_argument(
        "--live",
        action="store_true",
        help="Include what the log holds above the archive; without --from, read only the log.",
    )
    parser.add_argument("--as-of", type=state, metavar="STATE", help=AS_OF)
    parser.add_argument(
        "--to", metavar="TOPIC", help="The topic that receives the copies (default: the same topic)."
    )
    parser.add_argument("--group", help="The only group that receives the copies (default: all groups).")
    parser.add_argument(
        "--name",
        required=True,
        help="The name of this replay. A run with the same name continues it, and stores nothing twice.",
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="Only messages published at or after this time; ISO 8601, in UTC unless it has an offset.",
    )
    parser.add_argument(
        "--until", type=moment, metavar="TIME", help="Only messages published before this time."
    )
    parser.add_argument(
        "--key", action="append", default=[], help="Only messages of this key; can be repeated."
    )
    parser.add_argument(
        "--kind", action="append", default=[], help="Only messages of this kind; can be repeated."
    )
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help='Only messages that match this Spark SQL condition over the columns of format("mqueue") and value, the'
        " payload as text.",
    )
    parser.add_argument(
        "--targeted",
        action="store_true",
        help="Include messages that were for one group only (the group of --group, if given).",
    )
    add_doing(parser)


def add_source(parser: ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--from", dest="source", metavar="PATH", required=required, help="The archive.")


def add_doing(parser: ArgumentParser) -> None:
    parser.add_argument("--rate", type=_rate, metavar="N", help="Store at most N messages per second.")
    parser.add_argument(
        "--allow-gap",
        action="store_true",
        help="Continue where messages between archive and log may be deleted, instead of failing.",
    )
    parser.add_argument(
        "--yes", action="store_true", help="Store the messages; without this option, nothing is changed."
    )
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.")


def run(job: Job) -> int:
    from ...replays.originals import guard_of_replay
    from ...replays.preview import Preview
    from ...replays.replay_run import replay

    given = job.arguments
    ways: dict[str, Any] = {
        "source": given.source,
        "as_of": given.as_of,
        "live": given.live,
        "to": given.to,
        "group": given.group,
        "since": given.since,
        "until": given.until,
        "keys": given.key,
        "kinds": given.kind,
        "where": given.where,
        "targeted": given.targeted,
        "rate": given.rate,
        "fail_on_data_loss": not given.allow_gap,
        "options": job.options,
    }
    choice = MessageFilter(
        given.since, given.until, given.key, given.kind, given.where, given.targeted, given.group or ""
    )
    with checked():
        to = given.topic if given.to is None else given.to
        check_as_of(given.as_of, given.source, live=given.live)
        check_replay(given.topic, given.name, choice, given.source, to, given.group, given.rate, job.options)
    with checked(), job.progress(None, "messages") as bar:
        watch = Watch(bar)
        found = replay(
            job.spark,
            given.topic,
            given.name,
            **ways,
            dry_run=not given.yes,
            stopping=job.stopping,
            watch=watch,
        )
    if isinstance(found, Preview):
        tell_preview(job, found)
        return 0
    if given.json:
        job.tell(json.dumps(asdict(found)))
    elif found.before:
        job.tell(
            f"replay {found.name!r} was already finished: {found.total:,} messages in topic {found.to!r}"
        )
    else:
        job.tell(f"{found.stored:,} messages stored in topic {found.to!r}, {found.total:,} in all")
    if not found.finished:
        job.say(f"stopped before the end: run it again as {found.name!r} to continue")
        if given.live or given.source is None:
            guard = guard_of_replay(found.name, given.topic, found.to)
            job.say(f"group {guard!r} holds back deletion from topic {given.topic!r} until then")
    return 0


class Watch:
    """Updates a progress bar from the total number of stored messages."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._seen = bar, 0

    def __call__(self, total: int) -> None:
        self._bar.update(max(total - self._seen, 0))
        self._seen = max(total, self._seen)


def tell_preview(job: Job, found: Preview) -> None:
    if job.arguments.json:
        job.tell(json.dumps(_plain(asdict(found)), ensure_ascii=False))
        return
    groups = on_a_line(", ".join(found.groups)) or "no group yet"
    job.tell(
        f"{found.total:,} messages of topic {found.topic!r} would be stored in {found.to!r}, for {groups}"
    )
    if found.stored:
        job.tell(f"  {found.stored:,} of them are stored already")
    if found.first and found.last:
        job.tell(f"  first  offset {found.first.offset}, {found.first.published_at:%Y-%m-%d %H:%M:%S} UTC")
        job.tell(f"  last   offset {found.last.offset}, {found.last.published_at:%Y-%m-%d %H:%M:%S} UTC")
    for title, counts in (
        ("kind", {kind or "(none)": count for kind, count in found.kinds.items()}),
        ("key (most messages first)", {key or "(none)": count for key, count in found.keys.items()}),
        ("hour (UTC)", {f"{hour:%Y-%m-%d %H:00}": count for hour, count in found.hours.items()}),
    ):
        if counts:
            job.tell(f"by {title}:")
            for name, count in counts.items():
                job.tell(f"  {count:>12,}  {on_a_line(name)}")
    if found.sample:
        job.tell("the first of them:")
        for one in found.sample:
            told = f"offset {one['offset']}, key {one['key']!r}, kind {one['kind']!r}, id {one['id']}: {one['payload']}"
            job.tell(f"  {on_a_line(told)}")
    job.tell("nothing was changed: add --yes to store the messages")


def _rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < 1_000_000_000:
        raise argparse.ArgumentTypeError(f"must be a number above 0, of messages a second, not {text!r}")
    return found


def _plain(value: Any) -> Any:
    """Return the value with times as text, also in the keys of mappings."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value


VERB = Verb(
    "replay",
    "Store messages of an archive again: for all groups or one, selected by time, key, kind or a condition.",
    arguments,
    run,
)
