"""What is run, in which order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import CommandFailed, EnvironmentProblem
from example_project.environment.interpreters import newest_other, running
from example_project.environment.processes import run, with_database
from example_project.environment.server import private_server
from tests.runner.beside import Beside
from tests.runner.lanes import NEWEST_DJANGO, OLDEST_DJANGO, Combination, run_lane
from tests.runner.options import Options
from tests.runner.outcome import Outcome
from tests.runner.static import static_checks

_VERSION = "from tests.servers import version_of_run; print(version_of_run())"


def outcomes_of(options: Options) -> list[Outcome]:
    """Run what was asked for: the checks, then the oldest combination on each server.

    What is to run once, and the newest combination, run on the first server while the second one is at work: most tests
    wait more than they compute.
    """
    oldest = Combination(running(), OLDEST_DJANGO, options.quick, narrow=options.quick)
    python = oldest.environment.ensure()
    outcomes = list(static_checks(python)) if options.everything else []
    whole = options.everything and not options.quick
    with ExitStack() as stack:
        beside: Beside | None = None
        for kind in _kinds(options):
            try:
                url, name = stack.enter_context(_server(kind, python))
                lane = replace(oldest, once="without") if whole else oldest
                outcomes.append(run_lane(lane, url, name, options))
                if whole and beside is None:
                    once = replace(oldest, once="alone")
                    lanes = [
                        partial(run_lane, once, url, name, options),
                        partial(_newest, url, name, options),
                    ]
                    beside = Beside(lanes)
            except EnvironmentProblem as problem:
                outcomes.append(_unavailable(oldest.name, kind, problem, options))
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


def _newest(url: str, server: str, options: Options, output: Path) -> Outcome:
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
