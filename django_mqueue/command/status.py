"""Verbs that show the state of topics and groups: status and top."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import Error
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..policy import names
from ..policy.batching import batches
from ..printing import on_a_line
from ..service import actions
from ..stats import numbers, topic_list
from ..stats.results import Figure, KnownTopic, Rates, Series, total
from ..stats.summaries import RECENT, Ages, GroupRow, TopicRow, recently, topic_rows, with_rates
from ..store.connection import session
from .output import Output, Refused, as_text
from .selecting import unknown_topic
from .verbs import Options, Verb, parse_duration, positive_int

PART_MAX = numbers.PAIRS_MAX // 2
"""The maximum number of topics, and of groups, in one read. Both together must not exceed ``PAIRS_MAX``."""
UNCACHED = Ages()
RATE_SPAN = timedelta(minutes=RECENT)


def _add_status(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument(
        "--no-rates", action="store_true", help="leave out the rates, which are the slowest to read"
    )
    parser.add_argument(
        "--fail-if-older-than",
        type=parse_duration,
        metavar="DURATION",
        help="exit status 1 if a group's oldest open message is older: seconds, or a number with s, m, h or d",
    )
    parser.add_argument(
        "--fail-if-more-than", type=_limit, metavar="N", help="exit status 1 if the lag of a group is above N"
    )
    parser.add_argument(
        "--fail-if-dead", type=_limit, metavar="N", help="exit status 1 if a topic has N or more dead letters"
    )
    parser.add_argument("--fail-on-alarm", action="store_true", help="exit status 1 if there is an alarm")


def _limit(text: str) -> int:
    value = positive_int(text)
    if value >= numbers.EXACT_MAX:
        raise ArgumentTypeError(
            f"must be below {numbers.EXACT_MAX}, not {value}: messages are counted only up to that. Give a lower"
            " number, or use --fail-if-older-than"
        )
    return value


@dataclass(frozen=True)
class StatusSnapshot:
    """The state of some topics. ``paused``: rows with the records of pauses. ``unknown``: for each topic that does not
    exist, a text that says so."""

    topics: list[TopicRow]
    paused: list[dict[str, Any]]
    unknown: list[str]


@session.cached_queries()
def read_status(
    alias: str, wanted: Sequence[str], count_limit: int | None = None, *, rates: bool = True
) -> StatusSnapshot:
    """Read the state of the wanted topics; of all topics if ``wanted`` is empty."""
    for topic in wanted:
        names.check_topic(topic)
    with session.raises_not_migrated(alias):
        every = topic_list.known_topics(alias)
        unknown = []
        for topic in sorted({*wanted} - {*every}):
            if problem := unknown_topic(alias, topic):
                unknown.append(problem)
            else:  # A derived topic without a group.
                every[topic] = topic_list.topic(alias, topic)
    known = [every[topic] for topic in sorted(set(wanted) or every) if topic in every]
    rows: dict[str, TopicRow] = {}
    for some in _parts(known):
        found = topic_rows(some, UNCACHED, count_limit=count_limit, using=alias)
        for row in with_rates(found, UNCACHED, span=RATE_SPAN, using=alias) if rates else found:
            topic, first = row.known.topic, rows.get(row.known.topic)
            groups = [*(first.groups if first else ()), *row.groups]
            rows[topic] = replace(first or row, known=every[topic], groups=groups)
    return StatusSnapshot([*rows.values()], _paused(alias, [*rows.values()]), unknown)


def _parts(topics: Sequence[KnownTopic]) -> Iterator[list[KnownTopic]]:
    """Yield parts of up to ``PART_MAX`` topics and groups each. A topic with more groups is in several parts."""
    part: list[KnownTopic] = []
    groups = 0
    for known in topics:
        for some in batches(known.groups, PART_MAX) if known.groups else [()]:
            is_full = len(part) == PART_MAX or groups + len(some) > PART_MAX
            if part and (is_full or part[-1].topic == known.topic):
                yield part
                part, groups = [], 0
            part.append(replace(known, groups=tuple(some)))
            groups += len(some)
    if part:
        yield part


def _paused(alias: str, rows: Sequence[TopicRow]) -> list[dict[str, Any]]:
    """Return a row for each paused group. An old pause has no details: few actions are read."""
    found = []
    for row in rows:
        paused = [one.figures.group for one in row.groups if one.figures.paused]
        recent = actions.recent(row.known.topic, limit=actions.READ, using=alias) if paused else []
        for group in paused:
            pause = actions.last_pause(recent, group)
            unread = f"not among the newest {actions.READ} actions"
            at, by, why = (pause.at, pause.by, pause.why) if pause else (None, unread, "")
            found.append({"topic": row.known.topic, "group": group, "since": at, "by": by, "why": why})
    return found


def lag(row: GroupRow) -> Figure:
    """Return the number of messages that a group has not finished."""
    return total([row.figures.pending, row.figures.in_flight, row.figures.waiting])


def per_minute(rates: Rates | None, series: Series | None) -> float | None:
    return None if rates is None or series is None else round(recently(rates, series), 1)


def topic_row(row: TopicRow) -> dict[str, Any]:
    rates = row.rates
    return {
        "topic": row.known.topic,
        "groups": len(row.known.groups),
        "kept": row.figures.kept,
        "scheduled": row.figures.scheduled,
        "dead": row.figures.dead,
        "published_a_minute": per_minute(rates, rates.published if rates else None),
        "last_published": row.figures.newest_published_at,
    }


def group_row(row: GroupRow) -> dict[str, Any]:
    one, rates = row.figures, row.rates
    return {
        "topic": one.topic, "group": one.group, "lag": lag(row), "pending": one.pending, "in_flight": one.in_flight,
        "waiting": one.waiting, "scheduled": one.scheduled, "dead": one.dead, "oldest": one.oldest_age,
        "finished_a_minute": per_minute(rates, rates.finished if rates else None), "workers": one.workers,
        "paused": one.paused,
    }  # fmt: skip


def alarm_rows(rows: Sequence[TopicRow]) -> list[dict[str, Any]]:
    """Return the alarms, bad ones first."""
    found = []
    for row in rows:
        topic = row.known.topic
        found += [(one.is_bad, topic, "", one.text) for one in row.alarms]
        found += [
            (one.is_bad, topic, group.figures.group, one.text) for group in row.groups for one in group.alarms
        ]
    return [
        {"level": "alarm" if is_bad else "note", "topic": topic, "group": group, "text": text}
        for is_bad, topic, group, text in sorted(found, key=lambda alarm: not alarm[0])
    ]


def show(snapshot: StatusSnapshot, output: Output, *, alarms_first: bool = False) -> None:
    rows = snapshot.topics
    if alarms_first:
        output.table("alarms", alarm_rows(rows))
    output.table("topics", [topic_row(row) for row in rows])
    show_groups(snapshot, output)
    if not alarms_first:
        output.table("alarms", alarm_rows(rows))
    for problem in snapshot.unknown:
        output.problem(problem)


def show_groups(snapshot: StatusSnapshot, output: Output) -> None:
    groups = [group_row(one) for row in snapshot.topics for one in row.groups]
    output.table("groups", groups, wide=("paused", "scheduled", "dead"))
    output.table("paused", snapshot.paused, title="Paused groups")


def status(options: Options, output: Output) -> None:
    limits = [limit for name in ("more_than", "dead") if (limit := options[f"fail_if_{name}"]) is not None]
    count_limit = min(max(1_000, *(limit + 1 for limit in limits)), numbers.EXACT_MAX) if limits else None
    snapshot = read_status(options["database"], options["topics"], count_limit, rates=not options["no_rates"])
    show(snapshot, output)
    for problem in _problems(options, snapshot.topics):
        output.problem(problem)


def _problems(options: Options, rows: Sequence[TopicRow]) -> Iterator[str]:
    """Yield the reasons for exit status 1 that the options ask for."""
    oldest, most, dead = (options[f"fail_if_{name}"] for name in ("older_than", "more_than", "dead"))
    for row in rows:
        for group in row.groups:
            one = group.figures
            where, found = f"{one.topic}: group {one.group}", lag(group)
            if oldest is not None and one.oldest_age is not None and one.oldest_age > oldest:
                age, limit = as_text(one.oldest_age), as_text(oldest)
                yield f"{where}: its oldest open message is {age} old, which is over {limit}"
            if most is not None and found.value > most:
                yield f"{where}: its lag is {as_text(found)}, which is over {most}"
        if dead is not None and row.figures.dead.value >= dead:
            number = as_text(row.figures.dead)
            yield f"{row.known.topic}: it has {number} dead letters, which is not below {dead}"
    if options["fail_on_alarm"]:
        for alarm in alarm_rows(rows):
            if alarm["level"] == "alarm":
                group_name = f": group {alarm['group']}" if alarm["group"] else ""
                yield f"{alarm['topic']}{group_name}: {alarm['text']}"


def _add_top(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument(
        "--interval", type=parse_duration, default=timedelta(seconds=2), metavar="DURATION",
        help="the time between two frames (default 2 seconds)",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=positive_int, metavar="N", help="end after N frames (default: at Ctrl-C)"
    )


def _frames(options: Options) -> Iterator[str]:
    """Yield frames as text. If the database does not answer, a frame shows the error and the previous figures."""
    alias, interval, last = options["database"], options["interval"], ""
    lost_at: str | None = None
    while True:
        clock = f"{datetime.now(UTC):%H:%M:%S} UTC"
        try:
            snapshot = read_status(alias, options["topics"])
        except Error as error:
            session.discard(alias)
            lost_at = lost_at or clock
            note = f"The database has not answered since {lost_at}: {on_a_line(str(error))}"
        else:
            lines: list[str] = []
            output = Output(lines.append)
            show(snapshot, output, alarms_first=True)  # The end may not fit on the screen.
            last = "\n".join([f"At {clock}, every {as_text(interval)}:", *lines, *output.problems])
            note = (
                f"The database answers again. It did not answer from {lost_at} to {clock}." if lost_at else ""
            )
            lost_at = None
        yield "\n".join(filter(None, [note, last]))


def top(options: Options, output: Output) -> None:
    if options["json"]:
        raise Refused("top prints no JSON: use mqueue status --json")
    try:
        if options.get("stdout") is None and sys.stdout.isatty():
            with Live(console=Console(), screen=True, auto_refresh=False) as live:
                _refresh(
                    options,
                    lambda frame: live.update(Text(frame, no_wrap=True, overflow="crop"), refresh=True),
                )
        else:
            _refresh(options, output.write)
    except KeyboardInterrupt:
        return


def _refresh(options: Options, draw: Callable[[str], object]) -> None:
    for number, frame in enumerate(_frames(options), 1):
        draw(frame)
        if number == options["count"]:
            return
        time.sleep(options["interval"].total_seconds())


VERBS = [
    Verb("status", "show topics and groups; exit status 1 if a given limit is exceeded", status, _add_status),
    Verb("top", "show the status, and refresh it until Ctrl-C", top, _add_top),
]
