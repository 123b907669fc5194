"""Choose the lanes of a run, and their order."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import CommandFailed, EnvironmentProblem
from example_project.environment.interpreters import newest_other, running
from tests.support.runner.beside import Beside
from tests.support.runner.lanes import ALL, INTERNAL, NEWEST_DJANGO, PUBLIC, QUICK, Lane, run_lane
from tests.support.runner.options import Options
from tests.support.runner.outcome import Outcome
from tests.support.runner.servers import Server, server
from tests.support.runner.static import static_checks

PROCESSES, MAIN_PROCESSES = 2, 3
"""The number of pytest processes in each lane, each with a private server. Tests wait more than they compute. The main
lane has the most tests."""

Work = Callable[[Path | None], Outcome]
"""A lane to run. Its argument is the file for its output, or None for the terminal."""


def outcomes_of(options: Options) -> list[Outcome]:
    """Run the requested parts: the checks, then the lanes."""
    if options.quick:
        main = Lane("quick", running(), folders=QUICK, processes=PROCESSES)
    elif options.everything:
        main = Lane("main", running(), folders=ALL, processes=MAIN_PROCESSES)
    else:
        main = Lane("chosen", running(), spark=options.spark)
    python = main.environment.ensure()
    outcomes: list[Outcome] = []
    servers: list[Server] = []
    for kind in _kinds(options):
        try:
            servers.append(server(kind, python))
        except EnvironmentProblem as problem:
            outcomes.append(_unavailable(main.title, kind, problem, options))
    if options.everything and not options.quick and servers:
        tracks = _tracks(main, servers, options)
    else:
        tracks = [[partial(run_lane, main, server, options) for server in servers]]
    beside = [Beside(track, number) for number, track in enumerate(tracks[1:], 1)]
    outcomes += static_checks(python) if options.everything else ()
    outcomes += [work(None) for work in tracks[0]]
    for track in beside:
        outcomes += track.outcomes()
    return outcomes


def _tracks(main: Lane, servers: list[Server], options: Options) -> list[list[Work]]:
    """Return the lanes of the whole suite, in tracks. The lanes of a track run in order, and the tracks in parallel.

    The first server runs all folders. The last server runs the folders that depend on the server. In a sample, the two
    share the slow tests. With ``--full``, the last server also runs all folders.
    """
    first, last = servers[0], servers[-1]
    spark = replace(main, name="spark", folders=(), spark=True, processes=PROCESSES)
    folders = ALL if options.full else INTERNAL
    internal = replace(main, name="second", folders=folders, once=False, processes=PROCESSES)
    if len(servers) > 1:
        main, internal = replace(main, half=0), replace(internal, half=1)
    one: list[Work] = [partial(run_lane, main, first, options)]
    two: list[Work] = [partial(_newest, last, internal.half, options)]
    three: list[Work] = [partial(run_lane, spark, first, options)]
    if len(servers) > 1:
        three.append(partial(run_lane, internal, last, options))
    if options.full:
        three.append(partial(run_lane, replace(spark, name="spark-oldest", old_spark=True), last, options))
    return [[*one, *two, *three]] if first.given else [one, two, three]


def _kinds(options: Options) -> list[str]:
    if os.environ.get("DATABASE_URL"):
        return ["DATABASE_URL"]
    return list(FLAVOURS) if options.server == "all" else [options.server]


def _newest(server: Server, half: int | None, options: Options, output: Path | None) -> Outcome:
    """Run the public folders with the newest Python and Django; with the current ones if no newer Python exists."""
    interpreter = newest_other(running())
    folders = ALL if options.full else PUBLIC
    if interpreter is None:
        lane = Lane("public", running(), folders=folders, once=False, processes=PROCESSES, half=half)
        note = f"no newer supported Python with venv and headers was found beside {running().full}"
        outcome = run_lane(lane, server, options, output)
        return replace(outcome, note=outcome.note or note)
    lane = Lane("newest", interpreter, NEWEST_DJANGO, folders, once=False, processes=PROCESSES, half=half)
    try:
        return run_lane(lane, server, options, output)
    except CommandFailed as problem:
        return Outcome(lane.title, server.name, False, failed=1, note=str(problem))


def _unavailable(what: str, kind: str, problem: EnvironmentProblem, options: Options) -> Outcome:
    """Report a server that cannot start. It is a failure, except for a MySQL that ``--server`` does not name.

    Debian bookworm has no MySQL.
    """
    ok = None if kind == "mysql" and options.server == "all" else False
    return Outcome(what, kind, ok, failed=int(ok is False), note=str(problem))
