"""The command ``export``: write topics to Parquet files, once, for other tools. The log does not change."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...archives.locations import check_location
from ...archives.requests import TABLES, check_topics
from ...exports.requests import COMPRESSIONS, export_request
from ..arguments import add_allow_gaps, add_json, add_times, add_topics
from ..verb import BadArguments, Job, Stopped, Verb


def arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_topics(parser)
    location = "An empty or new folder: a path, or a URI such as s3a://bucket/folder."
    add("--to", required=True, metavar="PATH", help=location)
    add("--table", choices=sorted(TABLES), default="messages", help="The table to export (default messages).")
    columns = "Export only these columns, in this order (default: all except headers)."
    add("--columns", metavar="A,B,…", help=columns)
    add_times(
        parser,
        "Start at the first message published at or after this time",
        "End before the first message published at or after this time",
    )
    add("--targeted", action="store_true", help="Include messages that are for one group only.")
    add_allow_gaps(parser)
    compression = "Compression of the files (default zstd)."
    add("--compression", choices=COMPRESSIONS, default="zstd", help=compression)
    add_json(parser)


def run(job: Job) -> int:
    given = job.arguments
    check_location(given.to)
    options = job.options | _reading(given)
    columns = None if given.columns is None else [name.strip() for name in given.columns.split(",")]
    export_request(options, columns, given.compression)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...exports.export_run import export

    with job.progress("offset ranges") as show:

        def progress(done: int, total: int) -> None:
            show(done, total)
            if job.stopping.is_set() and done < total:
                raise Stopped("stopped before the end: the files written so far are deleted")

        found = export(
            spark, given.to, options=options, columns=columns, compression=given.compression, progress=progress
        )  # fmt: skip
    files = f"{found.files:,} file{'' if found.files == 1 else 's'} of {found.bytes / 1_048_576:,.1f} MiB"
    job.answer(found, [f"{found.rows:,} rows in {files} in {given.to}"])
    return 0


def _reading(given: Namespace) -> dict[str, str]:
    """Return the arguments as options of ``format("mqueue")``."""
    found = {"table": given.table}
    if given.pattern is not None:
        found["subscribePattern"] = given.pattern
    elif len(given.topic) == 1:
        found["topic"] = given.topic[0]
    else:
        if name := next((name for name in given.topic if "," in name), None):
            raise BadArguments(f"--topic: {name!r} has a comma in its name: export it alone")
        found["subscribe"] = ",".join(check_topics(given.topic))
    for name, when in (("startingTimestamp", given.since), ("endingTimestamp", given.until)):
        if when is not None:
            found[name] = str(int(when.timestamp() * 1000))
    if given.targeted:
        found["includeTargeted"] = "true"
    if given.allow_gaps:
        found["failOnDataLoss"] = "false"
    return found


VERB = Verb(
    "export",
    "Write the messages of topics into Parquet files, for other tools. The log does not change.",
    arguments,
    run,
    light=True,
    answers=True,
)
