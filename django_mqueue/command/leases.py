"""Verbs about the leases of a group, and about the actions of operators: leases and actions."""

from __future__ import annotations

from argparse import ArgumentParser
from shlex import quote

from ..policy import names
from ..service import actions as recorded
from ..service.registration import check_group
from ..service.subscription import check_count
from ..stats.groups import group_progress
from .output import Output
from .selecting import add_limit
from .verbs import Options, Verb


def _add_leases(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--expired", action="store_true", help="only expired leases")
    parser.add_argument("--subscriber", metavar="NAME", help="only leases of the subscriber with this name")
    parser.add_argument("--partition", help="only this key, or this partition")
    parser.add_argument("--after", default="", metavar="PARTITION", help="only partitions after this name")
    add_limit(parser, "partitions", 50, group_progress.PAGE_MAX)


def leases(options: Options, output: Output) -> None:
    found = group_progress.partitions(
        options["topic"], options["group"], subscriber=options["subscriber"], partition=options["partition"],
        expired=options["expired"], after=options["after"], limit=options["limit"], using=options["database"],
    )  # fmt: skip
    rows = [
        {
            "partition": one.partition, "lag": one.lag, "in_flight": one.in_flight, "done_up_to": one.acked,
            "lease": one.lease, "subscriber": one.owner, "since": one.leased_at, "renewed_ago": one.age,
            "holder": one.holder,
        }
        for one in found.partitions
    ]  # fmt: skip
    output.table("leases", rows, wide=("holder",))
    if (
        not rows
        and options["partition"] is not None
        and options["subscriber"] is None
        and not options["expired"]
    ):
        output.problem(
            f"partition {options['partition']!r} is unknown: topic {options['topic']!r} has no message of it, and"
            f" group {options['group']!r} has no position or lease there"
        )
    output.add_to_json(next=found.next)
    if found.next is not None:
        output.say(f"There are more partitions: use --after={quote(found.next)}")


def _add_actions(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("group", nargs="?", help="only actions on this group, or on all groups of the topic")
    add_limit(parser, "actions", 20, recorded.READ)


def actions(options: Options, output: Output) -> None:
    names.check_topic(options["topic"])
    check_count("limit", options["limit"], recorded.READ)
    if options["group"] is not None:
        check_group(options["group"])
    found = recorded.recent(
        options["topic"], options["group"], limit=options["limit"], using=options["database"]
    )
    rows = [
        {
            "at": one.at, "action": one.action, "group": one.group, "by": one.by, "why": one.why,
            "details": one.details,
        }
        for one in found
    ]  # fmt: skip
    output.table("actions", rows, wide=("details",))
    if options["group"] is not None and len(found) < options["limit"]:
        output.say(f"Of the topic's actions, the newest {recorded.READ} were searched.")


VERBS = [
    Verb("leases", "list the partitions of a group, with their leases and lag", leases, _add_leases),
    Verb("actions", "list what operators did to a topic and its groups, newest first", actions, _add_actions),
]
