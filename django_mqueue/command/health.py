"""The verb ``health``, for probes of containers: exit status 1 if a worker or the database does not answer."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import Error

from ..store.connection import session
from ..store.queries import group_summaries
from .output import Output
from .verbs import Options, Verb, parse_duration

MAX_AGE = 30
"""The default of ``--max-age``, in seconds."""


class Check(NamedTuple):
    """A check, with the reason if it failed. ``age``: seconds since the last sign of life."""

    check: str
    reason: str = ""
    age: float | None = None

    @property
    def row(self) -> dict[str, Any]:
        age = None if self.age is None else round(self.age, 3)
        return {"check": self.check, "healthy": not self.reason, "age": age, "reason": self.reason}


def _add_health(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--liveness-file", metavar="PATH", help="the file of runconsumer --liveness-file; reads no database"
    )
    parser.add_argument(
        "--worker", action="append", default=[], metavar="NAME",
        help="the name of a worker whose heartbeats must be fresh; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--max-age", type=parse_duration, default=parse_duration(str(MAX_AGE)), metavar="DURATION",
        help=f"the maximum age of the file, and of a heartbeat (default {MAX_AGE} s)",
    )  # fmt: skip


def health(options: Options, output: Output) -> None:
    """Check the file and the workers that are given. Without both options, check only the database."""
    path, names, most = options["liveness_file"], options["worker"], options["max_age"].total_seconds()
    checks = [] if path is None else [_of_file(path, most)]
    if names or path is None:
        checks += _of_database(options["database"], names, most)
    output.table("checks", [one.row for one in checks])
    for one in checks:
        if one.reason:
            output.problem(f"{one.check}: {one.reason}")


def _of_file(path: str, most: float) -> Check:
    name = f"file {path}"
    try:
        age = max(time.time() - os.stat(path).st_mtime, 0)
    except OSError as error:
        reason = (
            ". The worker has not started, or has stopped" if isinstance(error, FileNotFoundError) else ""
        )
        return Check(name, f"cannot be read: {error.strerror}{reason}")
    return Check(name, _too_old("touched", age, most), age)


def _of_database(using: str, names: list[str], most: float) -> Iterator[Check]:
    try:
        with session.raises_not_migrated(using):
            # Without names, any statement shows that the database answers.
            ages = {name: group_summaries.last_heartbeat(using, name) for name in names or [""]}
    except Error as error:
        yield Check(f"database {using}", f"does not answer: {error}")
        return
    yield Check(f"database {using}")
    for name in dict.fromkeys(names):
        if (ms := ages[name]) is None:
            yield Check(f"worker {name}", "has no heartbeat. It has not started, or has left its groups")
        else:
            age = max(ms, 0) / 1000
            yield Check(f"worker {name}", _too_old("heartbeat", age, most), age)


def _too_old(what: str, age: float, most: float) -> str:
    return f"{what} {age:.1f} s ago, more than {most:g} s" if age > most else ""


VERBS = [Verb("health", "check a worker or the database, for probes of containers", health, _add_health)]
