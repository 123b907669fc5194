"""What is run, in which order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import CommandFailed, EnvironmentProblem
from example_project.environment.interpreters import newest_other, running
from example_project.environment.processes import run, with_database
from example_project.environment.server import private_server
from tests.support.runner.beside import Beside
from tests.support.runner.lanes import NEWEST_DJANGO, OLDEST_DJANGO, Combination, run_lane
from tests.support.runner.options import Options
from tests.support.runner.outcome import Outcome
from tests.support.runner.static import static_checks

_VERSION = "from tests.servers import version_of_run; print(version_of_run())"


Lane = Callable[[Path | None], Outcome]
"""Called with the file that takes its output, if that is not the terminal."""


def outcomes_of(options: Options) -> list[Outcome]:
    """Run what was asked for: the checks, then the oldest combination on each server.

    When that is everything, the servers are at work side by side, because most tests wait more than they compute, each
    with one lane at a time. On the first server follow what is to run once, and what needs Spark; on the last one the
    newest combination. With ``--full`` the last one also runs what needs Spark, with the oldest.
    """
    oldest = Combination(running(), OLDEST_DJANGO, options.quick, narrow=options.quick)
    python = oldest.environment.ensure()
    outcomes = list(static_checks(python)) if options.everything else []
    whole = options.everything and not options.quick
    lane = (
        replace(oldest, once="without")
        if whole
        else replace(oldest, spark=options.spark or options.long, long=options.long)
    )
    with ExitStack() as stack:
        servers: list[tuple[str, str]] = []
        for kind in _kinds(options):
            try:
                servers.append(stack.enter_context(_server(kind, python)))
            except EnvironmentProblem as problem:
                outcomes.append(_unavailable(oldest.name, kind, problem, options))
        tracks: list[list[Lane]] = [[partial(run_lane, lane, url, name, options)] for url, name in servers]
        if whole and servers:
            (first, first_name), (last, last_name) = servers[0], servers[-1]
            tracks[0].append(partial(run_lane, replace(oldest, once="alone"), first, first_name, options))
            tracks[-1].append(partial(_newest, last, last_name, options))
            spark = replace(oldest, spark=True, once="with")
            tracks[0].append(partial(run_lane, spark, first, first_name, options))
            if options.full:
                spark = replace(oldest, spark=True, old_spark=True, once="without")
                tracks[-1].append(partial(run_lane, spark, last, last_name, options))
        others = [each for track in tracks[1:] for each in track]
        beside = Beside(others) if whole and others else None
        outcomes += [each(None) for track in (tracks[:1] if beside else tracks) for each in track]
        if beside:
            outcomes += beside.outcomes()
    return outcomes


def _kinds(options: Options) -> list[str]:
    if os.environ.get("DATABASE_URL"):
        return ["DATABASE_URL"]
    return list(FLAVOURS) if options.server == "all" else [options.server]


@contextmanager
def _server(kind: str, python: Path) -> Iterator[tuple[str, str]]:
    """Its URL, and its name with the version."""
    if kind == "DATABASE_URL":
        url = os.environ[kind]
        yield url, f"given: {_version(url, python)}"
        return
    with private_server(FLAVOURS[kind]()) as server:
        yield server.url(), f"{kind} {server.version}"


def _version(url: str, python: Path) -> str:
    code = f"import django; django.setup(); {_VERSION}"
    return run(
        [python, "-c", code], env={**with_database(url), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    ).strip()


def _newest(url: str, server: str, options: Options, output: Path | None) -> Outcome:
    interpreter = newest_other(running())
    if interpreter is None:
        note = f"no newer supported Python with venv and headers was found beside {running().full}"
        return Outcome(f"newest Python, Django {NEWEST_DJANGO}, quick", server, None, note=note)
    newest = Combination(interpreter, NEWEST_DJANGO, quick=True)
    try:
        return run_lane(newest, url, server, options, output)
    except CommandFailed as problem:
        return Outcome(newest.name, server, False, failed=1, note=str(problem))


def _unavailable(what: str, kind: str, problem: EnvironmentProblem, options: Options) -> Outcome:
    """A missing MySQL is no failure, only said loudly: bookworm has none. A missing MariaDB is one, and so is
    a MySQL that was asked for by name."""
    ok = None if kind == "mysql" and options.server == "all" else False
    return Outcome(what, kind, ok, failed=int(ok is False), note=str(problem))
