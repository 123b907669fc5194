"""The command ``compact``: join the small files of an archive into larger files."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict

from ...archives.api import compact
from ...archives.places import check_place
from ..arguments import whole
from ..verb import Job, Verb

MIB = 1_048_576


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="PATH", help="The archive's folder.")
    parser.add_argument("--topic", action="append", help="Only this topic; as often as needed.")
    parser.add_argument(
        "--mib",
        type=whole,
        default=1024,
        metavar="N",
        help="Files together have at most so much (default 1024).",
    )
    parser.add_argument("--json", action="store_true", help="What was done, as JSON.")


def run(job: Job) -> int:
    given = job.arguments
    check_place(given.to)
    with job.counted("files") as progress:
        done = compact(
            job.spark,
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
                f"{each.topic}: {each.files:,} files are {each.files_now:,}, with {each.rows:,} rows"
                if each.files
                else f"{each.topic}: nothing to put together"
            )
    if job.stopping.is_set():
        job.say("stopped before the end: what was put together stays so")
    return 0


VERB = Verb(
    "compact",
    "Put the small files of an archive together.",
    arguments,
    run,
    light=True,
)
