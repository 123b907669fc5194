"""The command ``compact``: join the small files of an archive into larger files."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict

from ...archives.places import check_place
from ..arguments import whole
from ..verb import Job, Verb

MIB = 1_048_576


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="PATH", help="The archive's folder.")
    parser.add_argument("--topic", action="append", help="Compact only this topic; can be repeated.")
    parser.add_argument(
        "--mib",
        type=whole,
        default=1024,
        metavar="N",
        help="Maximum size of a combined file in MiB (default 1024).",
    )
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.")


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.rewriting import compact

    with job.counted("files") as progress:
        done = compact(
            spark,
            given.to,
            topics=given.topic,
            bytes=given.mib * MIB,
            stopping=job.stopping,
            progress=progress,
        )
    if given.json:
        job.tell(json.dumps([asdict(each) for each in done], indent=2))
    else:
        for each in done:
            job.tell(
                f"{each.topic}: {each.files:,} files were combined into {each.files_now:,}, with {each.rows:,} rows"
                if each.files
                else f"{each.topic}: nothing to combine"
            )
    if job.stopping.is_set():
        job.say("stopped before the end: files that are already combined stay combined")
    return 0


VERB = Verb(
    "compact",
    "Combine the small files of an archive into larger ones.",
    arguments,
    run,
    light=True,
)
