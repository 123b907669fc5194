"""The command's arguments and its error messages. No Spark here."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_mqueue import publish
from django_mqueue.spark.cli import ending, program
from django_mqueue.spark.cli.arguments import parser_of
from django_mqueue.spark.cli.output import Output
from django_mqueue.spark.cli.verb import BadArguments, Job
from django_mqueue.spark.cli.verbs import VERBS
from django_mqueue.spark.cli.verbs.doctor import check_process
from django_mqueue.spark.connecting import PASSWORD, connecting
from django_mqueue.spark.errors import ArchiveError, NoConnection, OptionError
from django_mqueue.spark.launching import session
from tests.support.waiting import SPARK_PATIENCE

from .commands import arguments_of
from .verbs import failing, main, verb

SECRET = "not to be told"


def test_each_verb_is_known_by_a_name_of_its_own() -> None:
    names = [each.name for each in VERBS]
    assert "doctor" in names
    assert len(set(names)) == len(names)


def test_help_needs_neither_django_nor_pyspark(tmp_path: Path) -> None:
    """Run the command as a module, and by the file's path as spark-submit does."""
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import runpy; sys.argv = ['x', *sys.argv[2:]]\n"
        "runpy.run_module('django_mqueue.spark', run_name='__main__')"
    )
    alone = {k: v for k, v in os.environ.items() if k not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}
    path = Path(program.__file__).parents[1] / "__main__.py"
    for command in ([sys.executable, "-c", code, "", "--help"], [sys.executable, str(path), "--help"]):
        said = subprocess.run(
            command,
            env=alone,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=SPARK_PATIENCE,
        )
        assert said.returncode == 0, said.stderr
        assert "doctor" in said.stdout
        assert said.stderr == ""


@pytest.mark.parametrize(
    ("words", "light"),
    [
        (("archive", "--topic", "orders", "--to", "archive"), True),
        (("compact", "--to", "s3a://bucket/archive"), True),
        (("verify", "--to", "archive"), True),
        (("report", "--topic", "orders"), False),
        (("doctor",), True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_java_is_started_for_little_where_no_rows_pass_through_it(
    words: tuple[str, ...], light: bool
) -> None:
    arguments = parser_of("mqueue", VERBS).parse_args(words)
    assert arguments.light is light


def test_arguments_become_options_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    seen: list[Job] = []

    def run(job: Job) -> int:
        seen.append(job)
        return 7

    code = main(
        "--host", "db", "--port", "3307", "--user", "archive", "--database", "shop", "--ssl-ca", "/ca.pem",
        "--ssl-mode", "VERIFY_CA", "--ssl-cert", "/me.pem", "--ssl-key", "/key.pem", "--defaults-group", "shop",
        "--password-file", "/run/secrets/db", "--dead-letter-suffix", "_dead", "--many", "5", run=run,
    )  # fmt: skip
    assert code == 7
    (job,) = seen
    assert job.options == {
        "host": "db", "port": "3307", "user": "archive", "database": "shop", "sslCa": "/ca.pem",
        "sslMode": "VERIFY_CA", "sslCert": "/me.pem", "sslKey": "/key.pem", "defaultsGroup": "shop",
        "passwordFile": "/run/secrets/db", "deadLetterSuffix": "_dead",
    }  # fmt: skip
    assert job.arguments.many == 5
    assert not job.stopping.is_set()
    assert SECRET not in repr(vars(job.arguments))


TELLING = (
    "spark.executorEnv.MQUEUE_PASSWORD",
    "spark.executorEnv.DATABASE_URL",
    "spark.kubernetes.driverEnv.MQUEUE_PASSWORD",
    "spark.yarn.appMasterEnv.DATABASE_URL",
)
"""Settings of Spark that would contain the password."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--password", SECRET), "the password cannot be an argument"),
        ((f"--password={SECRET}",), "the password cannot be an argument"),
        (("--passwor", "x"), "unrecognized arguments"),
        (("--host", "db"), "option 'database' is missing"),
        (("--host", "db", "--database", "shop", "--port", "70000"), "must be a number from 1 to 65535"),
        (("--ssl-mode", "yes"), "invalid choice: 'yes'"),
        (("--connection-hook", "shop.secrets"), "must be like package.module:function"),
        (("--dead-letter-suffix", "of the dead"), "must be 1 to 14 printable characters without blanks"),
        (("--memory", "much"), "--memory: must be a number followed by m or g, such as 900m or 4g"),
        (("--memory", "400m"), "--memory: must be at least 500m, or Spark cannot start"),
        (("--master", "sc://db"), "--master: must be local[N], spark://HOST:PORT, k8s://… or yarn, not 'sc://db'"),
        (("--remote", "local"), "--remote: must be like sc://HOST:15002"),
        (("--conf", "spark.executor.memory"), "--conf: must be like spark.executor.memory=2g"),
        *((("--conf", f"{key}={SECRET}"), f"Let the cluster set {key.rpartition('.')[2]}") for key in TELLING),
        (("--remote", "sc://db", "--master", "local[2]"), "the Spark Connect server sets its own master"),
        (("--many", "x"), "invalid int value"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Job] = []

    def run(job: Job) -> int:
        ran.append(job)
        return 0

    assert main(*arguments, run=run) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert SECRET not in out + err
    assert not ran


@pytest.mark.parametrize(
    ("variable", "arguments"), [("PYSPARK_GATEWAY_PORT", ()), ("UNUSED", ("--master", "local[2]"))]
)
def test_a_remote_of_the_environment_is_named(
    variable: str,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://db")
    monkeypatch.setenv(variable, "1")
    assert main(*arguments, run=lambda job: 0) == 2
    assert "--remote (from the environment's SPARK_REMOTE)" in capsys.readouterr().err


def test_an_empty_remote_of_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service file or a compose file can set a variable to nothing."""
    monkeypatch.setenv("SPARK_REMOTE", "")
    assert main() == 0


@pytest.mark.parametrize("error", [ConnectionRefusedError(), ArchiveError("a task failed")])
def test_the_end_of_java_is_the_cause_also_of_other_errors(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of an archive or an export replace the error of the lost connection by their own."""
    java = subprocess.Popen(["true"])
    monkeypatch.setattr(ending, "_java", lambda: java)
    assert not ending.is_caused_by_java_end(ArchiveError("another reason"))
    if isinstance(error, ArchiveError):
        error.__cause__ = ConnectionRefusedError()
    assert ending.is_caused_by_java_end(error)


@pytest.mark.parametrize("name", ["MQUEUE_PASSWORD", "DATABASE_URL"])
@pytest.mark.parametrize("whose", ["driver", "executor"])
def test_the_name_of_a_secret_is_none(whose: str, name: str) -> None:
    """This setting names a Kubernetes secret, not the password itself."""
    seen: list[Job] = []

    def run(job: Job) -> int:
        seen.append(job)
        return 0

    setting = (f"spark.kubernetes.{whose}.secretKeyRef.{name}", "mqueue:password")
    assert main("--conf", "=".join(setting), run=run) == 0
    assert seen[0].arguments.conf == [setting]


@pytest.mark.parametrize("key", TELLING)
def test_a_session_is_not_given_the_password_either(key: str) -> None:
    with pytest.raises(OptionError, match=r"Spark stores and shows its configuration") as refused:
        session(config={"spark.executor.memory": "1g", key: SECRET})
    assert SECRET not in str(refused.value)


ARCHIVE, BACKFILL = ("archive", "--topic", "orders"), ("backfill", "--from", "/srv/archive")
REPLAY, REPORT = ("replay", "--topic", "orders"), ("report", "--topic", "orders")
ERASE = ("erase", "--topic", "orders")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*ARCHIVE, "--to", "x", "--batch-rows", "0"), "--batch-rows: must be a whole number of at least 1, not '0'"),
        ((*ARCHIVE, "--to", "x", "--group", ""), "group must not be empty"),
        ((*ARCHIVE, "--to", "x", "--history-after", "-1"), "history_after is -1.0, but must be seconds"),
        ((*ARCHIVE, "--to", ""), "the location is empty"),
        ((*ARCHIVE, "--to", f"s3://me:{SECRET}@bucket/x"), "the location must not contain keys"),
        ((*ARCHIVE, "--topic", "", "--to", "x"), "'' cannot be a topic"),
        (("archive", "--pattern", "(", "--to", "x"), "must be a Python regular expression"),
        (("compact", "--to", "x", "--mib", "0"), "--mib: must be a whole number of at least 1"),
        (("compact", "--to", ""), "the location is empty"),
        (("verify", "--to", f"s3://me:{SECRET}@bucket/x"), "the location must not contain keys"),
        ((*ERASE, "--to", "", "--key", "ada"), "the location is empty"),
        ((*ERASE, "--to", "x"), "one of the arguments --key --where is required"),
        ((*ERASE, "--to", "x", "--key", "ada", "--where", "true"), "not allowed with argument --key"),
        ((*ERASE, "--to", "x", "--key", "ada", "--keep-hours", "-1"), "keep_hours is -1.0, but must be from 0"),
        ((*REPLAY, "--name", "x", "--as-of", "3"), "as_of is 3, but only an archive has earlier states"),
        ((*REPORT, "--top", "0"), "top must be a whole number from 1"),
        ((*REPORT, "--from-archive", f"s3://me:{SECRET}@bucket/x"), "the location must not contain keys"),
        ((*REPLAY, "--name", ""), "name must not be empty"),
        (("replay", "--topic", "", "--to", "x", "--name", "x"), "topic must not be empty"),
        ((*REPLAY, "--name", "x", "--group", ""), "group must not be empty"),
        ((*REPLAY, "--name", "x", "--to", "orders_dlq"), "reserved for dead letters"),
        ((*REPLAY, "--name", "x", "--from", ""), "the location is empty"),
        ((*REPLAY, "--name", "x", "--since", "2026-01-02", "--until", "2026-01-01"), "must be later than since"),
        ((*REPLAY, "--name", "x", "--key", ""), "key must not be empty"),
        ((*REPLAY, "--name", "x", "--where", " "), "where is empty, but must be an SQL condition"),
        ((*BACKFILL, "--topic", "orders", "--group", ""), "group must not be empty"),
        ((*BACKFILL, "--topic", "orders_dlq", "--group", "new"), "reserved for dead letters"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_each_verbs_bad_arguments_are_refused_before_spark_starts(
    words: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(ours: program.Run) -> Any:
        raise AssertionError("Spark was to be started")

    monkeypatch.setattr(program.Run, "start", start)
    try:
        code: object = program.main([*words, "--host", "db", "--database", "shop"])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert code == 2
    assert named in err
    assert SECRET not in out + err


def test_what_spark_submit_decides_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert main("--master", "local[2]") == 2
    assert "--master: spark-submit has already started Spark" in capsys.readouterr().err


def run_doctor(*arguments: str) -> list[dict[str, object]]:
    out = io.StringIO()
    call_command("mqueue_spark", "doctor", "--no-spark", "--json", *arguments, stdout=out)
    found = json.loads(out.getvalue())
    assert isinstance(found, list)
    return found


@pytest.mark.spark
def test_the_doctor_names_the_server_and_the_topics(transactional_db: None) -> None:
    publish("orders", 1)
    found = {finding["what"]: finding for finding in run_doctor()}
    assert found["database"]["ok"] is True
    assert str(connection.settings_dict["NAME"]) in str(found["database"]["found"])
    assert ("MariaDB" if connection.mysql_is_mariadb else "MySQL") in str(found["database"]["found"])  # type: ignore[attr-defined]
    assert "orders" in str(found["topics"]["found"])


def test_the_doctor_of_a_server_that_is_away(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = program.main(
        ["doctor", "--no-spark", "--host", "127.0.0.1", "--port", "1", "--database", "shop"], VERBS
    )
    out, err = capsys.readouterr()
    assert code == 1
    assert (
        "NO  database:      database 'shop' at 127.0.0.1:1 as 'the current user' cannot be reached from here"
        in out
    )
    assert "Traceback" not in out + err


@pytest.fixture
def may_not_read(transactional_db: None) -> Iterator[tuple[str, str]]:
    """Return name and password of an account that may only insert."""
    name, password = f"spark_{secrets.token_hex(4)}", secrets.token_hex(12)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY '{password}'")
        cursor.execute(f"GRANT INSERT ON `{connection.settings_dict['NAME']}`.* TO '{name}'@'%'")
    yield name, password
    with connection.cursor() as cursor:
        cursor.execute(f"DROP USER '{name}'@'%'")


@pytest.mark.spark
@pytest.mark.parametrize("json_too", [False, True], ids=["lines", "json"])
def test_the_doctor_of_an_account_that_may_read_nothing(
    json_too: bool,
    may_not_read: tuple[str, str],
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The missing privilege is one finding. The doctor reports the others as well."""
    name, password = may_not_read
    monkeypatch.setenv(PASSWORD, password)
    more = ["--json"] if json_too else []
    assert program.main(["doctor", "--no-spark", *arguments_of({**options, "user": name}), *more]) == 1
    out, err = capsys.readouterr()
    assert (err, "Traceback" in out) == ("", False)
    if json_too:
        found = {each["what"]: each for each in json.loads(out)}
        assert (found["database"]["ok"], found["topics"]["ok"]) == (True, False)
        assert "SELECT command denied" in found["topics"]["found"]
    else:
        assert "ok  database: " in out
        assert "NO  topics:        the database: SELECT command denied to user" in out
    how = connecting({key.lower(): value for key, value in {**options, "user": name}.items()})
    assert "SELECT command denied" in str(check_process(how)["problem"])


def test_djangos_settings_say_where_the_database_is_but_not_the_password(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has the password while the command runs: Spark's local processes inherit it."""
    seen: list[tuple[Job, str | None]] = []

    def run(job: Job) -> int:
        seen.append((job, os.environ.get(PASSWORD)))
        return 0

    monkeypatch.delenv(PASSWORD, raising=False)
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", SECRET)
    monkeypatch.setattr("django_mqueue.management.commands.mqueue_spark.VERBS", [verb(run)])
    call_command("mqueue_spark", "try", "--password-file", "/run/secrets/db")
    ((job, password),) = seen
    assert job.options["database"] == connection.settings_dict["NAME"]
    assert job.options["passwordFile"] == "/run/secrets/db"
    assert SECRET not in repr(job.options) + repr(vars(job.arguments))
    assert password == SECRET
    assert PASSWORD not in os.environ


@pytest.mark.parametrize(
    ("error", "code"),
    [(NoConnection("it is away"), 1), (BadArguments("it is away"), 2)],
    ids=["error", "arguments"],
)
def test_an_error_of_the_management_command(
    db: None, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setattr("django_mqueue.management.commands.mqueue_spark.VERBS", [verb(failing(error))])
    with pytest.raises(CommandError, match=r"^it is away$") as raised:
        call_command("mqueue_spark", "try")
    assert raised.value.returncode == code


def test_an_alias_that_there_is_not() -> None:
    with pytest.raises(CommandError, match="--database 'elsewhere' is no entry of DATABASES"):
        call_command("mqueue_spark", "doctor", "--no-spark", "--database", "elsewhere")
    with (
        override_settings(MQUEUE={"DATABASE": "elsewhere"}),
        pytest.raises(CommandError, match=r"MQUEUE\['DATABASE'\] 'elsewhere' is no entry of DATABASES"),
    ):
        call_command("mqueue_spark", "doctor", "--no-spark")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, None),
        ({"DLQ_SUFFIX": "_dead"}, "_dead"),
        ({"TOPICS": {"old": {"DLQ_SUFFIX": "_late"}}}, '{"": "_dlq", "old": "_late"}'),
    ],
    ids=["as it is by default", "another", "several"],
)
def test_dead_letters_are_where_the_settings_say(
    db: None, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], told: str | None
) -> None:
    """Spark's processes may have no settings, so the command passes the suffix as an option."""
    seen: list[dict[str, str]] = []

    def run(job: Job) -> int:
        seen.append(job.options)
        return 0

    monkeypatch.setattr("django_mqueue.management.commands.mqueue_spark.VERBS", [verb(run)])
    with override_settings(MQUEUE=settings):
        call_command("mqueue_spark", "try")
    assert [options.get("deadLetterSuffix") for options in seen] == [told]


def test_a_job_needs_no_command() -> None:
    """The verbs' own tests run jobs without the command."""
    asked: list[str] = []

    def start() -> Any:
        asked.append("started")
        return "a session"

    job = Job(Namespace(), {}, start, Output(), threading.Event())
    assert asked == []
    assert job.spark == job.spark == "a session"
    assert asked == ["started"]
