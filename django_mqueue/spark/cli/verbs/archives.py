"""The commands ``archive``, ``compact``, ``verify`` and ``erase``: fill, check and change an archive."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from ....command.verbs import positive_int
from ...archives.locations import check_location
from ...archives.requests import (
    BATCH_ROWS,
    HISTORY_AFTER,
    KEEP_HOURS,
    archive_request,
    check_clean,
    check_keep,
)  # fmt: skip
from ..arguments import add_allow_gaps, add_json, add_topics
from ..verb import Job, Stopped, Verb

if TYPE_CHECKING:
    from ...archives.archive_run import Archived
    from ...archives.verifying import Verified

MIB = 1_048_576


def add_location(parser: ArgumentParser) -> None:
    help_text = "The archive's folder: a path, or a URI such as s3://bucket/folder."
    parser.add_argument("--to", required=True, metavar="PATH", help=help_text)


def add_keep_hours(parser: ArgumentParser) -> None:
    keep = (
        f"Keep files that were in use in the last N hours: they may still be read (default {KEEP_HOURS:.0f})."
    )
    parser.add_argument("--keep-hours", type=float, default=KEEP_HOURS, metavar="N", help=keep)


def archive_arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    add_location(parser)
    group = "The archive's consumer group; deletion waits for it (default archive)."
    parser.add_argument("--group", default="archive", help=group)
    rows = f"Maximum number of messages in a batch (default {BATCH_ROWS:,}). After a kill, at most one batch repeats."
    parser.add_argument("--batch-rows", type=positive_int, default=BATCH_ROWS, metavar="N", help=rows)
    wait = (
        "Maximum wait for groups that are not done with a message. Its delivery history is then archived as it is"
        f" (default {HISTORY_AFTER:.0f})."
    )
    parser.add_argument("--history-after", type=float, default=HISTORY_AFTER, metavar="SECONDS", help=wait)
    add_allow_gaps(parser)
    moved = "Confirm that the database has moved to another server and replaces the original."
    parser.add_argument("--moved", action="store_true", help=moved)
    add_json(parser)


def run_archive(job: Job) -> int:
    given = job.arguments
    check_location(given.to)
    archive_request(
        job.options, given.topic, given.pattern, given.group, given.batch_rows, given.history_after,
        strict=not given.allow_gaps,
    )  # fmt: skip
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.archive_run import archive

    with job.progress("offsets") as progress:
        found = archive(
            spark, given.topic, given.to, options=job.options, pattern=given.pattern, group=given.group,
            batch_rows=given.batch_rows, history_after=given.history_after,
            fail_on_data_loss=not given.allow_gaps, moved=given.moved, stopping=job.stopping, progress=progress,
        )  # fmt: skip
    job.answer(found, map(_archived, found))
    if job.stopping.is_set():
        job.say(
            "stopped before the end: everything added so far is complete, and the next run continues after it"
        )
    return 0


def _archived(done: Archived) -> str:
    rows: dict[Any, int] = done.rows
    if not done.batches:
        return f"{done.topic}: nothing new, up to offset {done.upto['messages']:,}"
    waiting = done.upto["messages"] - done.position
    return (
        f"{done.topic}: {rows['messages']:,} messages, {rows['dead_letters']:,} dead letters,"
        f" {rows['deliveries']:,} deliveries in {done.files:,} files of {done.bytes / MIB:,.1f} MiB;"
        f" up to offset {done.upto['messages']:,}"
        + (f", may be deleted up to {done.position:,}: groups are not done with the rest" if waiting else "")
    )


def compact_arguments(parser: ArgumentParser) -> None:
    add_location(parser)
    parser.add_argument("--topic", action="append", help="Compact only this topic; can be repeated.")
    size = "Maximum size of a combined file in MiB (default 1024)."
    parser.add_argument("--mib", type=positive_int, default=1024, metavar="N", help=size)
    add_json(parser)


def run_compact(job: Job) -> int:
    given = job.arguments
    check_location(given.to)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.rewriting import compact

    with job.progress("files") as progress:
        done = compact(
            spark, given.to, topics=given.topic, bytes=given.mib * MIB, stopping=job.stopping,
            progress=progress,
        )  # fmt: skip
    lines = (
        f"{each.topic}: {each.files:,} files were combined into {each.files_now:,}, with {each.rows:,} rows"
        if each.files
        else f"{each.topic}: nothing to combine"
        for each in done
    )
    job.answer(done, lines)
    if job.stopping.is_set():
        job.say("stopped before the end: files that are already combined stay combined")
    return 0


def verify_arguments(parser: ArgumentParser) -> None:
    add_location(parser)
    parser.add_argument("--topic", action="append", help="Verify only this topic; can be repeated.")
    clean = "Delete files that no table refers to, if they are old enough. Not with --topic."
    parser.add_argument("--clean", action="store_true", help=clean)
    add_keep_hours(parser)
    log = "Also compare with the messages that the log still holds; needs the database."
    parser.add_argument("--log", action="store_true", help=log)
    add_json(parser)


def run_verify(job: Job) -> int:
    """Run the command. Return 1 if the archive has a problem, otherwise 0. Raises ``Stopped`` if it was interrupted."""
    given = job.arguments
    check_location(given.to)
    check_keep(given.keep_hours)
    check_clean(given.clean, given.topic)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.verifying import verify

    with job.progress("files") as progress:
        found = verify(
            spark, given.to, topics=given.topic, clean=given.clean, keep_hours=given.keep_hours,
            log=job.options if given.log else None, stopping=job.stopping, progress=progress,
        )  # fmt: skip
    job.answer(found, (line for each in found for line in _verified(each)))
    if any(each.problems for each in found):
        return 1
    if job.stopping.is_set():
        raise Stopped("stopped before the end: some files were not read")
    return 0


def _verified(found: Verified) -> list[str]:
    erased = f", {found.erased:,} erased" if found.erased else ""
    unused = f"; {len(found.unused):,} files are not in use" if found.unused else ""
    deleted = f", {found.deleted:,} of them deleted" if found.deleted else ""
    return [
        f"{found.topic}: {'NOT whole' if found.problems else 'whole'}, {found.rows:,} rows{erased} in {found.files:,}"
        f" files of {found.bytes / MIB:,.1f} MiB{unused}{deleted}",
        *(f"  {problem}" for problem in found.problems),
    ]


def erase_arguments(parser: ArgumentParser) -> None:
    add_location(parser)
    parser.add_argument("--topic", required=True, help="The messages' topic.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--key", help="Erase the messages of this key.")
    where = "Erase the messages that match this Spark SQL condition over their columns."
    which.add_argument("--where", metavar="SQL", help=where)
    add_keep_hours(parser)
    add_json(parser)


def run_erase(job: Job) -> int:
    given = job.arguments
    check_location(given.to)
    check_keep(given.keep_hours)
    spark = job.spark  # Raises ``NoSpark``. The next import needs PySpark.
    from ...archives.rewriting import erase

    done = erase(spark, given.to, given.topic, key=given.key, where=given.where, keep_hours=given.keep_hours)
    rows = done.rows
    lines = [
        f"{done.topic}: {rows['messages']:,} messages, {rows['dead_letters']:,} dead letters, {rows['deliveries']:,}"
        f" deliveries erased; {done.files:,} files rewritten"
    ]
    if done.files and given.keep_hours:
        lines.append(
            f"the old files stay for {given.keep_hours:g} hours: after that, verify --clean deletes them"
        )
    job.answer(done, lines)
    return 0


VERBS = ARCHIVE, COMPACT, VERIFY, ERASE = (
    Verb(
        "archive", "Add messages of topics to an archive. The log may delete them afterwards.",
        archive_arguments, run_archive, light=True,
    ),
    Verb(
        "compact", "Combine the small files of an archive into larger ones.", compact_arguments, run_compact,
        light=True,
    ),
    Verb(
        "verify", "Read an archive and check that its files match its tables.", verify_arguments, run_verify,
        light=True, answers=True,
    ),
    Verb(
        "erase", "Erase messages from an archive, with their dead letters and deliveries.", erase_arguments,
        run_erase, answers=True,
    ),
)  # fmt: skip
