"""``verify``: whether an archive is what its manifests say."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..archiving.calls import verify
from ..archiving.layout import by_arrow
from ..archiving.places import check_place
from .verbs import Job, Stopped, Verb

if TYPE_CHECKING:
    from ..archiving.checking import Verified

SHOWN = 10
"""Files of a topic that are told with why they are kept."""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="PATH", help="The archive's folder.")
    parser.add_argument("--topic", action="append", help="Only this topic; as often as needed.")
    parser.add_argument(
        "--clean", action="store_true", help="Delete files that have belonged to nothing for an hour."
    )
    parser.add_argument("--json", action="store_true", help="What was found, as JSON.")


def run(job: Job) -> int:
    """1 if anything is wrong."""
    given = job.arguments
    check_place(given.to)
    with job.counted("files") as progress:
        found = verify(
            job.spark,
            given.to,
            topics=given.topic,
            clean=given.clean,
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
        raise Stopped("stopped before the end: not all was read")
    return 0


def _tell(job: Job, found: Verified) -> None:
    orphans = f"; {len(found.orphans):,} files belong to nothing" if found.orphans else ""
    deleted = f", {found.deleted:,} of them deleted" if found.deleted else ""
    kept = f", {len(found.kept):,} kept for what is in them" if found.kept else ""
    job.tell(
        f"{found.topic}: {'NOT whole' if found.problems else 'whole'}, {found.rows:,} rows in {found.files:,} files of"
        f" {found.bytes / 1_048_576:,.1f} MiB{orphans}{deleted}{kept}"
    )
    for problem in found.problems:
        job.tell(f"  {problem}")
    for kept_for in found.kept[:SHOWN]:
        job.tell(f"  {kept_for}")
    if len(found.kept) > SHOWN:
        job.tell(f"  and {len(found.kept) - SHOWN:,} more, which --json tells")


VERB = Verb(
    "verify",
    "Read an archive and say whether it is what its manifests tell.",
    arguments,
    run,
    light=lambda arguments: by_arrow(arguments.to),
    answers=True,
)
