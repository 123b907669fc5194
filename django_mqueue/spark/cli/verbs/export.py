"""The command ``export``: write topics to Parquet files, once, for other tools. The log does not change."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import datetime

from ....policy import names
from ...archives.places import check_place
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
        help="An empty or new folder: a path, or a URI such as s3a://bucket/folder.",
    )
    parser.add_argument(
        "--table", choices=TABLES, default="messages", help="The table to export (default messages)."
    )
    parser.add_argument(
        "--columns",
        metavar="A,B,…",
        help="Export only these columns, in this order (default: all except headers).",
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="Start at the first message published at or after this time; ISO 8601, in UTC unless it has an offset.",
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="End before the first message published at or after this time.",
    )
    parser.add_argument(
        "--targeted", action="store_true", help="Include messages that are for one group only."
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="Continue if messages are deleted during the export, instead of failing.",
    )
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="zstd", help="Compression of the files (default zstd)."
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the number of rows, files and bytes as JSON."
    )


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    options = job.options | _reading(given)
    columns = None if given.columns is None else [name.strip() for name in given.columns.split(",")]
    export_request(options, columns, given.compression)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...exports.export_run import export

    with job.counted("files") as told:

        def progress(done: int, total: int) -> None:
            told(done, total)
            if job.stopping.is_set() and done < total:
                raise Stopped("stopped before the end: the files written so far are deleted")

        found = export(
            spark, given.to, options=options, columns=columns, compression=given.compression, progress=progress
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
        raise BadArguments(f"--topic: {topic!r} has a comma in its name: export it alone")
    try:
        names.check_topic(topic, TOPIC_MAX)
    except (TypeError, ValueError) as error:
        raise BadArguments(f"--topic: {topic!r} cannot be a topic: {error}") from None


def _milliseconds(when: datetime) -> str:
    return str(int(when.timestamp() * 1000))


VERB = Verb(
    "export",
    "Write the messages of topics into Parquet files, for other tools. The log does not change.",
    arguments,
    run,
    light=True,
    answers=True,
)
