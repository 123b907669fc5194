"""The command ``export``: write topics to Parquet files, once, for other tools. The log does not change."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import datetime

from ....policy import names
from ...archives.places import check_place
from ...exports.api import export
from ...exports.requests import COMPRESSIONS, export_request
from ...reader.options import TOPIC_MAX
from ..arguments import moment
from ..topic_arguments import add_topics
from ..verb import BadArguments, Job, Stopped, Verb

TABLES = ("messages", "dead_letters", "deliveries")


def arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="PATH",
        help="A folder that is empty or not there yet: a path, or a URI as s3a://bucket/folder.",
    )
    parser.add_argument(
        "--table", choices=TABLES, default="messages", help="What of the topics (default messages)."
    )
    parser.add_argument(
        "--columns",
        metavar="A,B,…",
        help="Only these columns, in this order (default: all but headers).",
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="From the first message on that was published then or later; ISO 8601, in UTC unless it says.",
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="Up to before the first message that was published then or later.",
    )
    parser.add_argument("--targeted", action="store_true", help="Also messages that are for one group alone.")
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="Go on where messages are deleted meanwhile; an error without it.",
    )
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="zstd", help="Of the files (default zstd)."
    )
    parser.add_argument("--json", action="store_true", help="How much there is now, as JSON.")


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    options = job.options | _reading(given)
    columns = None if given.columns is None else [name.strip() for name in given.columns.split(",")]
    export_request(options, columns, given.compression)
    with job.counted("files") as told:

        def progress(done: int, total: int) -> None:
            told(done, total)
            if job.stopping.is_set() and done < total:
                raise Stopped("stopped before the end: what was written is deleted")

        found = export(
            job.spark, given.to, options=options, columns=columns, compression=given.compression, progress=progress
        )  # fmt: skip
    if given.json:
        job.tell(json.dumps(asdict(found), indent=2))
    else:
        job.tell(
            f"{found.rows:,} rows in {found.files:,} file{'' if found.files == 1 else 's'} of"
            f" {found.bytes / 1_048_576:,.1f} MiB in {given.to}"
        )
    return 0


def _reading(given: Namespace) -> dict[str, str]:
    """Return the arguments as options of ``format("mqueue")``."""
    found = {"table": given.table}
    if given.pattern is not None:
        found["subscribePattern"] = given.pattern
    elif len(given.topic) == 1:
        found["topic"] = given.topic[0]
    else:
        for name in given.topic:
            _check(name)
        found["subscribe"] = ",".join(given.topic)
    for name, when in (("startingTimestamp", given.since), ("endingTimestamp", given.until)):
        if when is not None:
            found[name] = _milliseconds(when)
    if given.targeted:
        found["includeTargeted"] = "true"
    if given.allow_gaps:
        found["failOnDataLoss"] = "false"
    return found


def _check(topic: str) -> None:
    """Raise ``BadArguments`` if a topic cannot be one of several.

    ``format("mqueue")`` takes several topics as one text, separated by commas.
    """
    if "," in topic:
        raise BadArguments(f"--topic: {topic!r} has a comma in its name: give it alone")
    try:
        names.check_topic(topic, TOPIC_MAX)
    except (TypeError, ValueError) as error:
        raise BadArguments(f"--topic: {topic!r} cannot be one: {error}") from None


def _milliseconds(when: datetime) -> str:
    return str(int(when.timestamp() * 1000))


VERB = Verb(
    "export",
    "Write what topics hold into Parquet files, for other tools; the log stays as it is.",
    arguments,
    run,
    light=True,
    answers=True,
)
