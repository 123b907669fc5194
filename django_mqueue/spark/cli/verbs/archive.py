"""The command ``archive``: copy topics into Delta tables, and let the log delete the archived messages."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...archives.places import check_place
from ...archives.requests import BATCH_ROWS, HISTORY_AFTER, archive_request
from ..arguments import whole
from ..topic_arguments import add_topics
from ..verb import Job, Verb

if TYPE_CHECKING:
    from ...archives.archive_run import Archived


def arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="PATH",
        help="The archive's folder: a path, or a URI such as s3://bucket/folder.",
    )
    parser.add_argument(
        "--group",
        default="archive",
        help="The archive's consumer group; deletion waits for it (default archive).",
    )
    parser.add_argument(
        "--batch-rows",
        type=whole,
        default=BATCH_ROWS,
        metavar="N",
        help=f"Maximum number of messages in a batch (default {BATCH_ROWS:,}). A run after a kill repeats at most"
        " one batch.",
    )
    parser.add_argument(
        "--history-after",
        type=float,
        default=HISTORY_AFTER,
        metavar="SECONDS",
        help="Maximum wait for groups that are not done with a message. Its delivery history is then archived as"
        f" it is (default {HISTORY_AFTER:.0f}).",
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="Continue where messages may be missing, instead of failing.",
    )
    parser.add_argument(
        "--moved",
        action="store_true",
        help="Confirm that the database has moved to another server and replaces the original.",
    )
    parser.add_argument("--json", action="store_true", help="Print what was added, as JSON.")


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    archive_request(
        job.options, given.topic, given.pattern, given.group, given.batch_rows, given.history_after,
        strict=not given.allow_gaps,
    )  # fmt: skip
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.archive_run import archive

    with job.counted("offsets") as progress:
        found = archive(
            spark,
            given.topic,
            given.to,
            options=job.options,
            pattern=given.pattern,
            group=given.group,
            batch_rows=given.batch_rows,
            history_after=given.history_after,
            fail_on_data_loss=not given.allow_gaps,
            moved=given.moved,
            stopping=job.stopping,
            progress=progress,
        )
    if given.json:
        job.tell(json.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            job.tell(_line(each))
    if job.stopping.is_set():
        job.say(
            "stopped before the end: everything added so far is complete, and the next run continues after it"
        )
    return 0


def _line(done: Archived) -> str:
    rows: dict[Any, int] = done.rows
    if not done.batches:
        return f"{done.topic}: nothing new, up to offset {done.upto['messages']:,}"
    waiting = done.upto["messages"] - done.position
    return (
        f"{done.topic}: {rows['messages']:,} messages, {rows['dead_letters']:,} dead letters,"
        f" {rows['deliveries']:,} deliveries in {done.files:,} files of {done.bytes / 1_048_576:,.1f} MiB;"
        f" up to offset {done.upto['messages']:,}"
        + (f", may be deleted up to {done.position:,}: groups are not done with the rest" if waiting else "")
    )


VERB = Verb(
    "archive",
    "Add messages of topics to an archive. The log may delete them afterwards.",
    arguments,
    run,
    light=True,
)
