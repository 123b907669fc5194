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
from tests.support.runner.lanes import ALL, INTERNAL, NEWEST_DJANGO, PUBLIC, QUICK, Lane, run_lane
from tests.support.runner.options import Options
from tests.support.runner.outcome import Outcome
from tests.support.runner.static import static_checks

_VERSION = "from tests.servers import version_of_run; print(version_of_run())"

Work = Callable[[Path | None], Outcome]
"""A lane to run. Called with the file that takes its output, if that is not the terminal."""


def outcomes_of(options: Options) -> list[Outcome]:
    """Run what was asked for: the checks, then the lanes."""
    main = Lane("quick", running(), folders=QUICK) if options.quick else Lane("main", running(), folders=ALL)
    main = main if options.everything else replace(main, name="chosen", folders=(), spark=options.spark)
    python = main.environment.ensure()
    outcomes = list(static_checks(python)) if options.everything else []
    with ExitStack() as stack:
        servers: list[tuple[str, str]] = []
        for kind in _kinds(options):
            try:
                servers.append(stack.enter_context(_server(kind, python)))
            except EnvironmentProblem as problem:
                outcomes.append(_unavailable(main.title, kind, problem, options))
        if options.everything and not options.quick and servers:
            tracks = _tracks(main, servers, options)
        else:
            tracks = [[partial(run_lane, main, url, name, options) for url, name in servers]]
        beside = [Beside(track, number) for number, track in enumerate(tracks[1:], 1)]
        outcomes += [work(None) for work in tracks[0]]
        for track in beside:
            outcomes += track.outcomes()
    return outcomes


def _tracks(main: Lane, servers: list[tuple[str, str]], options: Options) -> list[list[Work]]:
    """The lanes of the whole suite. Those of a track follow each other; two tracks run side by side.

    The first server runs all folders, the last one what depends on the server. With ``--full`` nothing is left out.
    """
    first, last = servers[0], servers[-1]
    spark = replace(main, name="spark", folders=(), spark=True)
    internal = replace(main, name="second", folders=ALL if options.full else INTERNAL, once=False)
    one: list[Work] = [partial(run_lane, main, *first, options)]
    two: list[Work] = [partial(_newest, *last, options), partial(run_lane, internal, *last, options)]
    three: list[Work] = [partial(run_lane, spark, *first, options)]
    if options.full:
        three.append(partial(run_lane, replace(spark, name="spark-oldest", old_spark=True), *last, options))
    return [[*one, *three], two] if len(servers) > 1 else [[*one, two[0], *three]]


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
    """Run what users meet with the newest Python and Django. Without them, with those that run this, and say so."""
    interpreter = newest_other(running())
    folders = ALL if options.full else PUBLIC
    if interpreter is None:
        lane = Lane("second public", running(), folders=folders, once=False)
        outcome = run_lane(lane, url, server, options, output)
        note = f"no newer supported Python with venv and headers was found beside {running().full}"
        return replace(outcome, note=outcome.note or note)
    lane = Lane("newest", interpreter, NEWEST_DJANGO, folders, once=False)
    try:
        return run_lane(lane, url, server, options, output)
    except CommandFailed as problem:
        return Outcome(lane.title, server, False, failed=1, note=str(problem))


def _unavailable(what: str, kind: str, problem: EnvironmentProblem, options: Options) -> Outcome:
    """A missing MySQL is no failure, only said loudly: bookworm has none. A missing MariaDB is one, and so is
    a MySQL that was asked for by name."""
    ok = None if kind == "mysql" and options.server == "all" else False
    return Outcome(what, kind, ok, failed=int(ok is False), note=str(problem))
