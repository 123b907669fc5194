"""The command ``report``: count what happened on topics; write tables, JSON, CSV and an HTML page."""

from __future__ import annotations

import itertools
import os
import shutil
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ... import private
from ...reports.requests import STEPS, report_request
from ..arguments import add_allow_gaps, add_as_of, add_times, add_topics
from ..verb import BadArguments, Job, Stopped, Verb

if TYPE_CHECKING:
    from ...reports import Report

WIDTH = 160
"""The width of the tables, in characters, if stdout is not a terminal."""


def arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_topics(parser)
    add("--from-archive", metavar="PATH", help="Include the content of this archive.")
    add_as_of(parser)
    add("--live", action=BooleanOptionalAction, default=True, help="Include the live log (default: yes).")
    add_times(parser, "Count from this time on", "Count up to this time, exclusive")
    add("--by", choices=tuple(STEPS), default="hour", help="The length of the time steps (default hour).")
    top = "The maximum errors for each group, and keys for each topic (default 10)."
    add("--top", type=int, default=10, metavar="N", help=top)
    add_allow_gaps(parser)
    add(
        "--json",
        metavar="FILE",
        help="Write the report as JSON; - writes it to stdout, instead of the tables.",
    )
    add("--csv", metavar="FOLDER", help="Write each table as a file into this folder.")
    add("--html", metavar="FILE", help="Write the report as an HTML page with charts.")


def run(job: Job) -> int:
    from ...reports.making import PARTS, build_report

    given = job.arguments
    request = report_request(
        given.topic, given.pattern, given.from_archive, given.live, given.since, given.until, given.by, given.top,
        job.options, not given.allow_gaps, given.as_of,
    )  # fmt: skip
    for option, name in (("--html", given.html), ("--csv", given.csv)):
        if name == "-":
            raise BadArguments(f"{option}: only --json can write to the standard output; give a name")
    for option, name in (("--json", given.json), ("--html", given.html)):
        if name not in (None, "-"):
            _check_file(option, name)
    if given.csv is not None:
        _check_folder("--csv", given.csv)
    parts = itertools.count(1)
    with job.progress("parts") as progress:

        def step() -> None:
            progress(next(parts), PARTS)
            if job.stopping.is_set():
                raise Stopped("stopped before the report was done: nothing was written")

        found = build_report(job.spark, request, step)
    _write(job, found)
    return 0


def _check_file(option: str, name: str) -> None:
    """Raise ``BadArguments`` if the file cannot be written. The counting may take an hour, so check this before it."""
    path = Path(name)
    folder = path.absolute().parent
    if path.is_symlink():
        raise BadArguments(f"{option}: {name} is a symbolic link; name a file")
    if path.is_dir():
        raise BadArguments(f"{option}: {name} is a folder; name a file")
    if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BadArguments(
            f"{option}: {name} cannot be written: check that its folder exists and that you may write to it"
        )


def _check_folder(option: str, name: str) -> None:
    """Raise ``BadArguments`` if the folder can neither be written to nor be created."""
    path = Path(name).absolute()
    existing = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not existing.is_dir():
        raise BadArguments(f"{option}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadArguments(f"{option}: {name} cannot be written: check that you may write to {existing}")


def _write(job: Job, found: Report) -> None:
    """Write all forms of the report, even if one fails, for example on a full disk. Then raise ``OSError``."""
    given = job.arguments
    writers: list[tuple[str | None, Callable[[], str]]] = [
        (given.json, lambda: _write_text(given.json, found.to_json() + "\n")),
        (given.csv, lambda: f"{given.csv}: {', '.join(found.to_csv(given.csv))} are written"),
        (given.html, lambda: _write_text(given.html, found.to_html())),
    ]
    failed = []
    for name, write in writers:
        if name in (None, "-"):
            continue
        try:
            job.say(write())
        except OSError as error:
            failed.append(f"{name} cannot be written: {error}")
    # Last, because the reader of a pipe may have ended.
    if given.json == "-":
        job.tell(found.to_json())
    else:
        job.tell(found.to_text(shutil.get_terminal_size((WIDTH, 0)).columns).rstrip("\n"))
    if failed:
        raise OSError("; ".join(failed))


def _write_text(path: str, text: str) -> str:
    with open(path, "w", encoding="utf-8", opener=private.opener) as file:
        file.write(text)
    return f"{path} is written"


VERB = Verb(
    "report",
    "Report what happened on topics: counts, times, errors, keys and lag, of the log, an archive, or both combined.",
    arguments,
    run,
    answers=True,
)
