"""The command ``doctor``: report what Spark finds on this machine and on its executors.

It also checks that the driver and the executors reach the database.
"""

from __future__ import annotations

import platform
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import ERROR
from django.db import DatabaseError, InterfaceError, connections

from ....checks import server_problems
from ....exceptions import MQueueError
from ...collecting import collect_all
from ...connecting import ConnectionParameters, connected, connecting
from ...explaining import explained
from ...java import find_java
from ...launching import check_pyspark, submitted
from ...sql import bulk
from ..arguments import add_json
from ..verb import Job, Stopped, Verb

if TYPE_CHECKING:
    import pyarrow as pa

TOPICS_SHOWN = 20
VERSION = str(import_module("django_mqueue").__version__)


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``ok``: whether it passed; None: it is information, not an error."""

    what: str
    ok: bool | None
    found: str


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--no-spark", action="store_true", help="Do not start Spark, and check no executor.")
    add_json(parser)


def run(job: Job) -> int:
    """Make all checks, even after one has failed. Return 1 if any check failed, otherwise 0."""
    found = []
    for finding in _findings(job, connecting(job.options)):
        found.append(finding)
        if not job.arguments.json:
            mark = {True: "ok", False: "NO", None: "--"}[finding.ok]
            job.tell(f"{mark}  {finding.what + ':':<14} {finding.found}")
        if job.stopping.is_set():
            break
    job.answer(found, ())
    if any(finding.ok is False for finding in found):
        return 1
    if job.stopping.is_set():
        raise Stopped("stopped before the end: some checks did not run")
    return 0


def _findings(job: Job, parameters: ConnectionParameters) -> Iterator[Finding]:
    yield Finding("Python", True, f"{platform.python_version()} at {sys.executable}, django_mqueue {VERSION}")
    yield _checked("PySpark", _pyspark)
    if not job.arguments.remote and not submitted():
        yield _checked("Java", _java)
    yield from _database("database", parameters)
    if not job.arguments.no_spark:
        yield from _spark(job, parameters)


def _checked(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, check())
    except MQueueError as error:
        return Finding(what, False, str(error))


def _pyspark() -> str:
    check_pyspark()
    return f"{import_module('pyspark').__version__}, PyArrow {import_module('pyarrow').__version__}"


def _java() -> str:
    java = find_java()
    return f"{java.version} by {java.source} at {java.home}"


def _database(what: str, parameters: ConnectionParameters) -> Iterator[Finding]:
    subject = what
    try:
        with connected(parameters) as using:
            yield Finding(what, True, f"{parameters.where()}: {_server(using)}")
            for problem in server_problems(using) if settings.configured else ():  # reads the settings
                ok = False if problem.level >= ERROR else None
                yield Finding(what, ok, str(problem.msg).replace(repr(using), "it"))
            subject = "topics"
            topics = sorted(bulk.topics(using))
            more = f" and {len(topics) - TOPICS_SHOWN} more" if len(topics) > TOPICS_SHOWN else ""
            yield Finding("topics", True, (", ".join(topics[:TOPICS_SHOWN]) or "none yet") + more)
    except MQueueError as error:
        yield Finding(what, False, str(error))
    except (DatabaseError, InterfaceError) as error:  # For example, the account lacks a privilege.
        yield Finding(subject, False, str(explained(error)))


def _server(using: str) -> str:
    connection: Any = connections[using]
    name = "MariaDB" if connection.mysql_is_mariadb else "MySQL"
    return f"{name} {'.'.join(map(str, connection.mysql_version))}"


def _spark(job: Job, parameters: ConnectionParameters) -> Iterator[Finding]:
    what, hint = "Spark", ""
    try:
        spark = job.spark
        master = "Spark Connect" if job.arguments.remote else spark.sparkContext.master
        yield Finding(what, True, f"{spark.version}, {master}")
        what = "executor"
        for row in executors(spark, parameters):
            problem = row["problem"]
            prefix = f"{row['host']}: Python {row['python']} at {row['executable']}, django_mqueue {row['package']}, "
            yield Finding(what, problem is None, prefix + (problem or f"reaches {row['server']}"))
            if row["package"] != VERSION:
                other = f"{row['host']}: install django_mqueue {VERSION} there, as here"
                yield Finding(what, False, other)
    except Stopped:
        return
    except Exception as error:
        if (line := explained(error)) is None:
            raise
        if "No module named 'django_mqueue'" in line or "No module named 'MySQLdb'" in line:
            hint = ": install this package with its extra spark for the executors' Python (PYSPARK_PYTHON selects it)"
        yield Finding(what, False, f"{line}{hint}")


def executors(spark: Any, parameters: ConnectionParameters, tasks: int = 4) -> list[Mapping[str, Any]]:
    """Run a few tasks on executors. Return one result for each different host, interpreter and problem."""
    names = ("host", "executable", "python", "package", "server", "problem")

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        schema = pa.schema([(name, pa.string()) for name in names])
        yield pa.RecordBatch.from_pylist([check_process(parameters)], schema=schema)

    schema = ", ".join(f"{name} STRING" for name in names)
    rows = collect_all(spark.range(0, tasks, 1, tasks).mapInArrow(check, schema))
    found = {(row["host"], row["executable"], row["problem"]): row.asDict() for row in rows}
    return [found[key] for key in sorted(found, key=str)]


def check_process(parameters: ConnectionParameters) -> dict[str, str | None]:
    """Return the findings of this process."""
    server = problem = None
    try:
        with connected(parameters) as using:
            bulk.topics(using)
            server = _server(using)
    except (MQueueError, DatabaseError, InterfaceError) as error:
        problem = str(explained(error))
    return {
        "host": socket.gethostname(), "executable": sys.executable, "python": platform.python_version(),
        "package": VERSION, "server": server, "problem": problem,
    }  # fmt: skip


VERB = Verb(
    "doctor",
    "Check Java, PySpark, the database and its topics, here and on executors.",
    arguments,
    run,
    light=True,
    answers=True,
)
