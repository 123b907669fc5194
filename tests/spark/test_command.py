"""The command with Spark reaches the database, and shows the password nowhere."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_mqueue import publish
from django_mqueue.spark import cli
from django_mqueue.spark.cli.program import PROGRAM
from django_mqueue.spark.cli.program import main as run_program
from tests.support.processes import Worker, database_url
from tests.support.threads import Background
from tests.support.waiting import SPARK_PATIENCE

from .commands import NO_DJANGO, SMALL, arguments_of, command, started_by, wait_for_nothing_left
from .trying import VERBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Account:
    """A database account with a password, for the test database."""

    def __init__(self) -> None:
        self.name, self.password = f"spark_{secrets.token_hex(4)}", secrets.token_hex(12)

    def arguments(self, options: dict[str, str]) -> tuple[str, ...]:
        return arguments_of({**options, "user": self.name})

    def url(self, monkeypatch: pytest.MonkeyPatch) -> str:
        with monkeypatch.context() as patch:
            patch.setitem(connection.settings_dict, "USER", self.name)
            patch.setitem(connection.settings_dict, "PASSWORD", self.password)
            return database_url()


@pytest.fixture
def account(transactional_db: None) -> Iterator[Account]:
    made = Account()
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER '{made.name}'@'%' IDENTIFIED BY '{made.password}'")
        cursor.execute(f"GRANT ALL ON `{connection.settings_dict['NAME']}`.* TO '{made.name}'@'%'")
    yield made
    with connection.cursor() as cursor:
        cursor.execute(f"DROP USER '{made.name}'@'%'")


@contextmanager
def command_lines(worker: Worker) -> Iterator[set[str]]:
    """Yield the command lines of all its processes, collected while the block runs."""
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.2):
            seen.update(started_by(worker.pid).values())

    thread = Background(look).start()
    try:
        yield seen
    finally:
        stop.set()
        thread.result()


@pytest.mark.exhaustive
@pytest.mark.parametrize("entry", ["module", "manage.py"])
def test_the_database_is_reached_from_an_executor_and_the_password_is_nowhere(
    entry: str, account: Account, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the output, the command lines, and Spark's event log, which has its configuration."""
    publish("orders", 1)
    events = ("enabled=true", "compress=false", f"dir={tmp_path}")
    log = [word for each in events for word in ("--conf", f"spark.eventLog.{each}")]
    program: tuple[str, ...] = ("django_mqueue.spark",)
    if entry == "module":
        database = account.arguments(options)
        environment = {**NO_DJANGO, "DATABASE_URL": "", "MQUEUE_PASSWORD": account.password}
    else:
        program, database = ("django", "mqueue_spark"), ()
        environment = {"DATABASE_URL": account.url(monkeypatch)}
        monkeypatch.delenv("MQUEUE_PASSWORD", raising=False)
    with command(program, ("doctor", *database, *SMALL, *log), environment) as worker:
        with command_lines(worker) as lines:
            assert worker.wait(SPARK_PATIENCE) == 0
        wait_for_nothing_left(worker.pid)
        said, ran = worker.output(), "\n".join(lines)
    assert "ok  topics:        orders" in said
    assert f"ok  Spark:         {__import__('pyspark').__version__}, local[2]" in said
    assert f"ok  executor:      {__import__('socket').gethostname()}: Python" in said
    assert "Traceback" not in said
    assert "org.apache.spark.deploy.SparkSubmit" in ran
    assert "pyspark.daemon" in ran
    logged = "".join(path.read_text() for path in tmp_path.rglob("events*"))
    assert "SparkListenerEnvironmentUpdate" in logged
    assert account.password not in said + ran + logged


def test_an_error_of_an_executor_is_one_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The command uses the Spark session of this process, and the session stays usable."""
    assert run_program(["fail"], VERBS) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{PROGRAM} fail: the database is away, seen from an executor\n")
    assert spark.range(3).count() == 3


def test_under_spark_submit(account: Account, options: dict[str, str]) -> None:
    application = Path(cli.__file__).parents[1] / "__main__.py"
    spark = ("--master", "local[2]", "--driver-memory", "600m")
    environment = {**NO_DJANGO, "MQUEUE_PASSWORD": account.password, "PYSPARK_PYTHON": sys.executable}
    arguments = (*spark, str(application), "doctor", *account.arguments(options))
    with command(("tests.spark.submitting",), arguments, environment) as worker:
        assert worker.wait(SPARK_PATIENCE) == 0
        said = worker.output()
        wait_for_nothing_left(worker.pid)
    assert "local[2]" in said
    assert "ok  executor:" in said
    assert account.password not in said
