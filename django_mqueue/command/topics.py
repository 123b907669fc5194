"""Verbs that list topics and the groups of a topic: topics and groups."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import timedelta
from shlex import quote
from typing import Any

from .. import conf
from ..policy.batching import batches
from ..stats import alarms, numbers
from ..stats.results import Hold, TopicFigures
from ..stats.summaries import blockers_of, over_retention
from ..store.connection import session
from .output import Output, Refused
from .selecting import add_limit
from .status import UNCACHED, alarm_rows, read_status, show_groups
from .verbs import Options, Verb

NOT_BLOCKED = {
    "retention": "Kept until the retention is over",
    "collecting": "The workers of the topic delete it soon",
}
"""The texts of retention blockers that are no alarm."""


def _add_topics(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--containing", default="", metavar="TEXT", help="only topics whose names contain this text"
    )
    parser.add_argument("--after", default="", metavar="TOPIC", help="only topics after this name")
    add_limit(parser, "topics", 100, numbers.TOPICS_MAX)


@session.cached_queries()
def topics(options: Options, output: Output) -> None:
    using = options["database"]
    page = numbers.topics(
        after=options["after"], containing=options["containing"], limit=options["limit"], using=using
    )
    figures: dict[str, TopicFigures] = {}
    for some in batches(page.topics, numbers.PAIRS_MAX):
        figures |= numbers.topic_figures([known.topic for known in some], using=using)
    rows = [
        {
            "topic": known.topic, "groups": len(known.groups), "kept": figures[known.topic].kept,
            "scheduled": figures[known.topic].scheduled, "dead": figures[known.topic].dead,
            "oldest_published": figures[known.topic].oldest_published_at,
            "last_published": figures[known.topic].newest_published_at,
            "retention": timedelta(milliseconds=conf.retention_ms(known.topic)),
        }
        for known in page.topics
    ]  # fmt: skip
    output.table("topics", rows)
    with_groups = [known.topic for known in page.topics if known.groups]
    overdue = {name: over_retention(figures[name]) for name in with_groups}
    blockers = blockers_of(with_groups, overdue, UNCACHED, using)
    _blockers(output, (one for found in blockers.values() for one in found))
    if (late := sum(one > timedelta() for one in overdue.values())) > len(blockers):
        output.say(
            f"Of {late} topics past their retention, the {len(blockers)} most overdue were examined for blockers."
        )
    output.add_to_json(next=page.next)
    if page.next is not None:
        output.say(f"There are more topics: use --after={quote(page.next)}")


def _blockers(output: Output, blockers: Iterable[Hold]) -> None:
    rows = [
        {
            "topic": one.topic, "group": one.group,
            "text": alarm.text if (alarm := alarms.of_blocker(one)) else NOT_BLOCKED[one.reason],
            "key": one.key, "offset": one.offset,
            "published": one.published_at, "since": one.since, "reason": one.reason,
        }
        for one in blockers
    ]  # fmt: skip
    output.table("retention_blockers", rows, wide=("reason", "since", "published"))


def _add_groups(parser: ArgumentParser) -> None:
    parser.add_argument("topic")


@session.cached_queries()
def groups(options: Options, output: Output) -> None:
    topic, using = options["topic"], options["database"]
    snapshot = read_status(using, [topic])
    if snapshot.unknown:
        raise Refused(f"{snapshot.unknown[0]}. List the topics: mqueue topics")
    show_groups(snapshot, output)
    members: list[dict[str, Any]] = []
    for row in snapshot.topics:
        for group in row.known.groups:
            members += [
                {
                    "group": group, "subscriber": one.name, "status": one.status, "heartbeat": one.heartbeat_at,
                    "left": one.left_at, "partitions": one.partitions, "in_flight": one.in_flight,
                    "busy_since": one.busy_since,
                }
                for one in numbers.subscribers(topic, group, using=using)
            ]  # fmt: skip
    output.table("subscribers", members, wide=("left", "partitions"))
    _blockers(output, numbers.holds(topic, using=using))
    output.table("alarms", alarm_rows(snapshot.topics))


VERBS = [
    Verb("topics", "list topics, with their figures and retention blockers", topics, _add_topics),
    Verb(
        "groups",
        "list the groups of a topic, with their subscribers and retention blockers",
        groups,
        _add_groups,
    ),
]
