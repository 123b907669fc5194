"""The command ``report``: count what happened on topics; write tables, JSON, CSV and an HTML page."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import TYPE_CHECKING

from ... import private
from ...errors import OptionError
from ...reports.requests import STEPS, ReportRequest, report_request
from ..arguments import AS_OF, moment, state
from ..verb import BadArguments, Job, Stopped, Verb

if TYPE_CHECKING:
    from ...reports import Report

WIDTH = 160
"""The width of the tables, in characters, if stdout is not a terminal."""


def arguments(parser: ArgumentParser) -> None:
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", action="append", metavar="NAME", help="A topic; can be repeated.")
    topics.add_argument("--pattern", metavar="REGEX", help="All topics whose whole name matches.")
    parser.add_argument("--from-archive", metavar="PATH", help="Include the content of this archive.")
    parser.add_argument("--as-of", type=state, metavar="STATE", help=AS_OF)
    parser.add_argument(
        "--live", action=BooleanOptionalAction, default=True, help="Include the live log (default: yes)."
    )
    form = "YYYY-MM-DD[THH:MM[:SS]][+HH:MM]"
    parser.add_argument("--since", type=moment, metavar=form, help="Count from this time on (UTC).")
    parser.add_argument("--until", type=moment, metavar=form, help="Count up to this time, exclusive.")
    parser.add_argument(
        "--by", choices=tuple(STEPS), default="hour", help="The length of the time steps (default hour)."
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="The number of errors to list for each group, and of keys (default 10).",
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="Continue where messages between archive and log may be deleted, instead of failing.",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="Write the report as JSON; - writes it to stdout, instead of the tables.",
    )
    parser.add_argument("--csv", metavar="FOLDER", help="Write each table as a file into this folder.")
    parser.add_argument("--html", metavar="FILE", help="Write the report as an HTML page with charts.")


def run(job: Job) -> int:
    from ...reports.making import PARTS, build_report

    asked = _asked(job)
    _check_places(job)
    with job.progress(PARTS, "parts") as progress:

        def step() -> None:
            progress.update(1)
            if job.stopping.is_set():
                raise Stopped("stopped before the report was done: nothing was written")

        found = build_report(job.spark, asked, step)
    _write(job, found)
    return 0


def _asked(job: Job) -> ReportRequest:
    given = job.arguments
    try:
        return report_request(
            given.topic, given.pattern, given.from_archive, given.live, given.since, given.until, given.by, given.top,
            job.options if given.live else {}, not given.allow_gaps, given.as_of,
        )  # fmt: skip
    except OptionError as error:
        raise BadArguments(str(error)) from error


def _check_places(job: Job) -> None:
    """Raise ``BadArguments`` if a file or folder cannot be written: now, not after an hour of counting."""
    given = job.arguments
    for option, name in (("--json", given.json), ("--html", given.html)):
        if name in (None, "-"):
            continue
        path = Path(name)
        folder = path.absolute().parent
        if path.is_dir():
            raise BadArguments(f"{option}: {name} is a folder; name a file")
        if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
            raise BadArguments(
                f"{option}: {name} cannot be written: check that its folder exists and that you may write to it"
            )
    if given.csv is not None:
        _check_folder("--csv", given.csv)


def _check_folder(option: str, name: str) -> None:
    """Raise ``BadArguments`` if the folder can neither be written to nor be created."""
    path = Path(name).absolute()
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise BadArguments(f"{option}: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadArguments(f"{option}: {name} cannot be written: check that you may write to {there}")


def _write(job: Job, found: Report) -> None:
    """Write all forms of the report that can be written, then raise ``OSError`` for the others.

    A disk may be full by now. The other forms must not be lost because of that.
    """
    given = job.arguments
    if given.json == "-":
        job.tell(found.to_json())
    else:
        job.tell(found.to_text(shutil.get_terminal_size((WIDTH, 0)).columns).rstrip("\n"))

    def as_json() -> str:
        _write_text(given.json, found.to_json() + "\n")
        return f"{given.json} is written"

    def as_csv() -> str:
        return f"{given.csv}: {', '.join(found.to_csv(given.csv))} are written"

    def as_html() -> str:
        _write_text(given.html, found.to_html())
        return f"{given.html} is written"

    failed = []
    json = None if given.json == "-" else given.json
    for name, write in ((json, as_json), (given.csv, as_csv), (given.html, as_html)):
        if name is None:
            continue
        try:
            job.say(write())
        except OSError as error:
            failed.append(f"{name} cannot be written: {error}")
    if failed:
        raise OSError("; ".join(failed))


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private.overwrite) as file:
        file.write(text)


VERB = Verb(
    "report",
    "Report what happened on topics: counts, times, errors, keys and lag, of the log, an archive, or both combined.",
    arguments,
    run,
    answers=True,
)
