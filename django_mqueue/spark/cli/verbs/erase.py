"""The command ``erase``: remove messages from an archive permanently."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict

from ...archives.places import check_place
from ...archives.requests import check_keep
from ..verb import Job, Verb
from .verify import add_keep_hours


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="PATH", help="The archive's folder.")
    parser.add_argument("--topic", required=True, help="Whose messages.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--key", help="Erase the messages of this key.")
    which.add_argument(
        "--where",
        metavar="SQL",
        help="Erase the messages that match this Spark SQL condition over their columns.",
    )
    add_keep_hours(parser)
    parser.add_argument("--json", action="store_true", help="Print what was erased, as JSON.")


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    check_keep(given.keep_hours)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.rewriting import erase

    done = erase(spark, given.to, given.topic, key=given.key, where=given.where, keep_hours=given.keep_hours)
    if given.json:
        job.tell(json.dumps(asdict(done), indent=2))
        return 0
    rows = done.rows
    job.tell(
        f"{done.topic}: {rows['messages']:,} messages, {rows['dead_letters']:,} dead letters, {rows['deliveries']:,}"
        f" deliveries erased; {done.files:,} files rewritten"
    )
    if done.files and given.keep_hours:
        job.tell(
            f"the old files stay for {given.keep_hours:g} hours: after that, verify --clean deletes them"
        )
    return 0


VERB = Verb(
    "erase",
    "Erase messages from an archive, with their dead letters and deliveries.",
    arguments,
    run,
)
