"""The command ``verify``: compare an archive's files with its tables."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import TYPE_CHECKING

from ...archives.places import check_place
from ...archives.requests import KEEP_HOURS, check_clean, check_keep
from ..verb import Job, Stopped, Verb

if TYPE_CHECKING:
    from ...archives.verifying import Verified


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="PATH", help="The archive's folder.")
    parser.add_argument("--topic", action="append", help="Verify only this topic; can be repeated.")
    parser.add_argument(
        "--clean",
        action="store_true",
        help="Delete files that no table refers to, if they are old enough. Not with --topic.",
    )
    add_keep_hours(parser)
    parser.add_argument(
        "--log",
        action="store_true",
        help="Also compare with the messages that the log still holds; needs the database.",
    )
    parser.add_argument("--json", action="store_true", help="Print the findings as JSON.")


def add_keep_hours(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--keep-hours",
        type=float,
        default=KEEP_HOURS,
        metavar="N",
        help="Keep files that were in use during this many hours, because they may still be read (default"
        f" {KEEP_HOURS:.0f}).",
    )


def run(job: Job) -> int:
    """Run the command. Return 1 if the archive has a problem, otherwise 0. Raises ``Stopped`` if it was interrupted."""
    given = job.arguments
    check_place(given.to)
    check_keep(given.keep_hours)
    check_clean(given.clean, given.topic)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.verifying import verify

    with job.counted("files") as progress:
        found = verify(
            spark,
            given.to,
            topics=given.topic,
            clean=given.clean,
            keep_hours=given.keep_hours,
            log=job.options if given.log else None,
            stopping=job.stopping,
            progress=progress,
        )
    if given.json:
        job.tell(json.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            _tell(job, each)
    if any(each.problems for each in found):
        return 1
    if job.stopping.is_set():
        raise Stopped("stopped before the end: some files were not read")
    return 0


def _tell(job: Job, found: Verified) -> None:
    erased = f", {found.erased:,} erased" if found.erased else ""
    unused = f"; {len(found.unused):,} files are not in use" if found.unused else ""
    deleted = f", {found.deleted:,} of them deleted" if found.deleted else ""
    job.tell(
        f"{found.topic}: {'NOT whole' if found.problems else 'whole'}, {found.rows:,} rows{erased} in {found.files:,}"
        f" files of {found.bytes / 1_048_576:,.1f} MiB{unused}{deleted}"
    )
    for problem in found.problems:
        job.tell(f"  {problem}")


VERB = Verb(
    "verify",
    "Read an archive and check that its files match its tables.",
    arguments,
    run,
    light=True,
    answers=True,
)
