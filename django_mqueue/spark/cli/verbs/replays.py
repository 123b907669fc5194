"""The commands ``replay`` and ``backfill``: store copies of messages of an archive, and of the log above it.

Without ``--yes`` they only show what they would store.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....printing import on_a_line
from ...archives.locations import check_as_of
from ...replays.message_filter import MessageFilter, check_backfill, check_replay
from ..arguments import add_allow_gaps, add_as_of, add_json, add_times, checked
from ..verb import Job, Verb

if TYPE_CHECKING:
    from ...replays.preview import Preview


def replay_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, help="The messages' topic.")
    add("--from", dest="source", metavar="PATH", help="The archive.")
    live = "Include what the log holds above the archive; without --from, read only the log."
    add("--live", action="store_true", help=live)
    add_as_of(parser)
    add("--to", metavar="TOPIC", help="The topic that receives the copies (default: the same topic).")
    add("--group", help="The only group that receives the copies (default: all groups).")
    name = "The name of this replay. A run with the same name continues it, and stores nothing twice."
    add("--name", required=True, help=name)
    add_times(
        parser,
        "Only messages published at or after this time",
        "Only messages published before this time",
    )
    add("--key", action="append", default=[], help="Only messages of this key; can be repeated.")
    add("--kind", action="append", default=[], help="Only messages of this kind; can be repeated.")
    where = (
        'Only messages that match this Spark SQL condition over the columns of format("mqueue") and value, the payload'
        " as text."
    )
    add("--where", metavar="CONDITION", help=where)
    targeted = "Include messages that were for one group only (the group of --group, if given)."
    add("--targeted", action="store_true", help=targeted)
    _add_storing(parser)


def _add_storing(parser: ArgumentParser) -> None:
    parser.add_argument("--rate", type=_rate, metavar="N", help="Store at most N messages per second.")
    add_allow_gaps(parser, "--allow-gap")
    yes = "Store the messages; without this option, nothing is changed."
    parser.add_argument("--yes", action="store_true", help=yes)
    add_json(parser)


def _rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < 1_000_000_000:
        raise ArgumentTypeError(f"must be a number above 0, of messages a second, not {text!r}")
    return found


def run_replay(job: Job) -> int:
    from ...replays.originals import guard_of_replay
    from ...replays.preview import Preview
    from ...replays.replay_run import replay

    given = job.arguments
    choice = MessageFilter(
        given.since, given.until, given.key, given.kind, given.where, given.targeted, given.group or ""
    )
    with checked():
        to = given.topic if given.to is None else given.to
        check_as_of(given.as_of, given.source, live=given.live)
        check_replay(given.topic, given.name, choice, given.source, to, given.group, given.rate, job.options)
    with checked(), job.progress("messages") as progress:
        found = replay(
            job.spark, given.topic, given.name, source=given.source, as_of=given.as_of, live=given.live,
            to=given.to, group=given.group, since=given.since, until=given.until, keys=given.key,
            kinds=given.kind, where=given.where, targeted=given.targeted, rate=given.rate,
            fail_on_data_loss=not given.allow_gap, options=job.options, dry_run=not given.yes,
            stopping=job.stopping, watch=progress,
        )  # fmt: skip
    if isinstance(found, Preview):
        job.answer(found, _preview_lines(found))
        return 0
    if found.before:
        line = f"replay {found.name!r} was already finished: {found.total:,} messages in topic {found.to!r}"
    else:
        line = f"{found.stored:,} messages stored in topic {found.to!r}, {found.total:,} in all"
    job.answer(found, [line])
    if not found.finished:
        job.say(f"stopped before the end: run it again as {found.name!r} to continue")
        if given.live or given.source is None:
            guard = guard_of_replay(found.name, given.topic, found.to)
            job.say(f"group {guard!r} holds back deletion from topic {given.topic!r} until then")
    return 0


def backfill_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, help="The messages' topic.")
    add("--group", required=True, help="The new group; it must not be registered yet.")
    add("--from", dest="source", metavar="PATH", required=True, help="The archive.")
    paused = "Leave the group paused at the end; resume it yourself."
    add("--keep-paused", action="store_true", help=paused)
    _add_storing(parser)


def run_backfill(job: Job) -> int:
    from ...replays.backfills import backfill
    from ...replays.preview import Preview

    given = job.arguments
    with checked():
        check_backfill(given.topic, given.group, given.source, given.rate, job.options)
    with checked(), job.progress("messages") as progress:
        found = backfill(
            job.spark, given.topic, given.group, source=given.source, rate=given.rate,
            resume=not given.keep_paused, fail_on_data_loss=not given.allow_gap, options=job.options,
            dry_run=not given.yes, stopping=job.stopping, watch=progress, say=job.say,
        )  # fmt: skip
    if isinstance(found, Preview):
        job.answer(found, _preview_lines(found))
        return 0
    lines = []
    if found.before:
        lines = [f"group {found.group!r} already received the past messages of topic {found.topic!r}"]
    elif found.finished:
        state = "paused" if given.keep_paused else "resumed"
        lines = [f"{found.stored:,} messages stored for group {found.group!r}, which is {state}"]
    job.answer(found, lines)
    if not found.finished:
        job.say(f"stopped before the end: group {found.group!r} stays paused; run it again to continue")
    return 0


def _preview_lines(found: Preview) -> Iterator[str]:
    groups = on_a_line(", ".join(found.groups)) or "no group yet"
    yield f"{found.total:,} messages of topic {found.topic!r} would be stored in {found.to!r}, for {groups}"
    if found.stored:
        yield f"  {found.stored:,} of them are stored already"
    if found.first and found.last:
        for title, one in (("first", found.first), ("last ", found.last)):
            yield f"  {title}  offset {one.offset}, {one.published_at:%Y-%m-%d %H:%M:%S} UTC"
    for title, counts in (
        ("kind", {kind or "(none)": count for kind, count in found.kinds.items()}),
        ("key (most messages first)", {key or "(none)": count for key, count in found.keys.items()}),
        ("hour (UTC)", {f"{hour:%Y-%m-%d %H:00}": count for hour, count in found.hours.items()}),
    ):
        if counts:
            yield f"by {title}:"
            for name, count in counts.items():
                yield f"  {count:>12,}  {on_a_line(name)}"
    if found.sample:
        yield "the first of them:"
        for row in found.sample:
            line = f"offset {row['offset']}, key {row['key']!r}, kind {row['kind']!r}, id {row['id']}: {row['payload']}"
            yield f"  {on_a_line(line)}"
    yield "nothing was changed: add --yes to store the messages"


VERBS = REPLAY, BACKFILL = (
    Verb(
        "replay",
        "Store messages of an archive again: for all groups or one, selected by time, key, kind or a condition.",
        replay_arguments,
        run_replay,
    ),
    Verb(
        "backfill",
        "Give a new group the past messages of a topic from an archive, then the messages of the log, without gap or"
        " overlap.",
        backfill_arguments,
        run_backfill,
    ),
)
