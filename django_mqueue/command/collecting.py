"""The verb gc."""

from __future__ import annotations

from argparse import ArgumentParser

from django.db import DatabaseError

from ..inspect import holds, topic_figures
from ..policy import names
from ..protocol.retention.garbage_collection import Collector
from ..stats import topic_list
from ..store.connection import errors
from .output import Output
from .selecting import unknown_topic
from .verbs import Options, Verb


def _add(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")


def collect(options: Options, output: Output) -> None:
    """Delete the messages that every group is done with and whose retention is over."""
    using = options["database"]
    topics = list(map(names.check_topic, options["topics"]))
    rows = []
    for topic in topics or sorted(topic_list.known_topics(using)):
        if topics and (problem := unknown_topic(using, topic)):
            output.problem(problem)
            continue
        collector = Collector(using, topic)
        try:
            if not options["dry_run"]:
                collector.collect_all()
        except DatabaseError as error:
            if not errors.is_lock_wait(error):
                raise
            output.problem(f"topic {topic!r} stays locked: mqueue blockers names the transaction")
        kept = topic_figures([topic], using=using)[topic].kept
        first = next(iter(holds(topic, using=using)), None)
        rows.append(
            {
                "topic": topic, **({} if options["dry_run"] else {"deleted": collector.deleted}), "kept": kept,
                "because": first.reason if first else None, "group": first.group if first else None,
                "oldest": first.published_at if first else None,
            }
        )  # fmt: skip
    output.table("topics", rows)


VERBS = [
    Verb(
        "gc",
        "delete messages that all groups have finished and whose retention is over, as workers do; show what is kept",
        collect, _add, changes=True, recorded=False,
    )
]  # fmt: skip
