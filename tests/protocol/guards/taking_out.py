"""Run tests against a copy of the package that lacks a guard, in a process and a database of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from example_project.environment.lineage import die_with_parent
from tests.support.needing_spark import all_need_spark
from tests.support.processes import ROOT, database_url

from .mutations.mutation import Mutation

COPIED = ("django_mqueue", "tests", "example_project", "pyproject.toml")
NEEDLESS = [word for name in ("cacheprovider", "faker", "hypothesispytest") for word in ("-p", f"no:{name}")]
"""Plugins that do nothing in a short run. Loading them takes a third of its time."""
PATIENCE, BESIDE_SPARK = 30, 10
"""Seconds to wait for a condition: few, because some of these tests wait for something that never happens.

On a slow machine, a short wait could end before the event, and the test would fail although the guard is not needed.
Tests that need Spark wait ten times as long for Spark itself, and must end within ``TEST_SECONDS``.
"""
WHOLE_PATIENCE = 60
"""Seconds to wait for a condition if no guard is removed."""
TEST_SECONDS = 300
RUN_SECONDS = 800

NO_MUTATION = frozenset({
    "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "UnboundLocalError",
    "AttributeError", "TypeError", "ProgrammingError",
})  # fmt: skip
"""Errors of a program that the edit broke. Without a guard, it must still run, and give wrong results."""


AROUND = "before or after the test"
"""Marks the errors of fixtures, which prove nothing about a guard."""


@dataclass(frozen=True)
class Failure:
    test: str
    error: str
    text: str


@dataclass(frozen=True)
class Run:
    """The result of a run: pytest's exit code, the path of the tested package, the failures and the output."""

    code: int
    package: Path
    passed: tuple[str, ...]
    failures: tuple[Failure, ...]
    output: str


def copy_of_the_project(place: Path) -> Path:
    """Copy everything that tests need, so that the worker processes that they start also run the copy.

    The copy includes compiled modules, which saves each process a second. Python compiles an edited file again.
    """
    unwanted = shutil.ignore_patterns("*.pyc.*", "proof", ".*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=unwanted)
        else:
            shutil.copy2(source, place / name)
    return place


@contextmanager
def taken_out(mutation: Mutation, place: Path) -> Iterator[None]:
    """Edit the copy, and restore it at the end. Fail if a text to be replaced is not in its file exactly once."""
    originals: dict[Path, str] = {}
    try:
        for edit in mutation.edits:
            file = place / "django_mqueue" / edit.file
            text = file.read_text(encoding="utf-8")
            originals.setdefault(file, text)
            assert text.count(edit.old) == 1, (
                f"{mutation.guard}: {edit.file} holds {edit.old!r} {text.count(edit.old)} times"
            )
            file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        yield
    finally:
        for file, text in originals.items():
            file.write_text(text, encoding="utf-8")


def needs_spark(test: str) -> bool:
    """Return True if a test that a mutation names runs in the lane for Spark."""
    return all_need_spark(ROOT / "tests" / test.partition("::")[0])


def run_tests(place: Path, mutation: Mutation, url: str) -> Run:
    """Run pytest in the copy.

    The next run uses the same test database, unless this mutation changes the tables.
    """
    if mutation.changes_tables:
        url = f"{url.partition('?')[0]}_tables?{url.partition('?')[2]}"
    patience = BESIDE_SPARK if any(map(needs_spark, mutation.tests)) else PATIENCE
    report = place / "report.json"
    report.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", *NEEDLESS, "-p", "tests.protocol.guards.witness", "--tb=short",
        f"--timeout={TEST_SECONDS}", "--create-db" if mutation.changes_tables else "--reuse-db",
        *(f"tests/{test}" for test in mutation.tests),
    ]  # fmt: skip
    with (
        (place / "output").open("w+", encoding="utf-8") as output,
        # In its usual place, pytest would first delete the directories of earlier runs. That can take minutes.
        TemporaryDirectory(prefix="mqueue-guard-", ignore_cleanup_errors=True) as temporary,
    ):
        process = subprocess.Popen(
            [*command, f"--basetemp={temporary}/tests"],
            cwd=place,
            env={
                **os.environ,
                "DATABASE_URL": url,
                "GUARDS_REPORT": str(report),
                "PYTHONFAULTHANDLER": "1",
                "MQUEUE_TEST_PATIENCE": str(patience if mutation.edits else WHOLE_PATIENCE),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        try:
            process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # It writes the stacks of its threads into the output.
            process.wait(WHOLE_PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    ended = report.exists() and process.returncode >= 0
    assert ended, f"pytest did not come to its end:\n{text}"
    told = json.loads(report.read_text(encoding="utf-8"))
    failures = tuple(Failure(**failure) for failure in told["failures"])
    return Run(process.returncode, Path(told["package"]), tuple(told["passed"]), failures, text)


def database_url_of(name: str) -> str:
    """Return the URL of another database on this run's server."""
    return urlunsplit(urlsplit(database_url())._replace(path=f"/{name}"))
