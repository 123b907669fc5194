"""Connect without Django's settings, and read the password where it is needed. No Spark here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections
from django.test import override_settings
from django.utils.connection import ConnectionDoesNotExist
from pytest_django import DjangoDbBlocker

from django_mqueue import publish
from django_mqueue.policy.encoding import encode
from django_mqueue.protocol import settling
from django_mqueue.spark.connecting import ConnectionParameters, RetryingConnection, connected, connecting
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.launching import settings_options
from django_mqueue.spark.sql import detached
from django_mqueue.store import log
from django_mqueue.store.connection import session
from django_mqueue.store.log import NewRow
from tests.own_server import own_server_of_kind
from tests.servers import kind_of_run
from tests.support.waiting import SPARK_PATIENCE

ALONE = """
import json, os, sys
from django_mqueue.spark.connecting import connected
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.reader.planning import batch
from django_mqueue.spark.streams.query import Query

options = read_options(json.loads(sys.argv[1]))
with connected(options.connecting) as using:
    print(sum(each.rows for each in batch(using, options)))
query = Query(read_options({**json.loads(sys.argv[1]), "group": "archive"}, streaming=True))
begun = query.initial()
query.done(query.latest(begun, None))
query.stop()
try:
    with connected(read_options({"topic": "orders"}).connecting):
        pass
except NoConnection as error:
    print(error)
from django.conf import settings
print(settings.configured)
"""


def lower(options: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def test_nothing_of_djangos_settings_is_needed(options: dict[str, str]) -> None:
    """Warnings are errors, because Django warns about queries before its apps are ready."""
    publish("orders", 1)
    environment = {k: v for k, v in os.environ.items() if k not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, json.dumps({**options, "topic": "orders"})],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE,
    )
    assert said.returncode == 0, said.stderr
    count, problem, configured = said.stdout.splitlines()
    assert count == "1"
    assert "no database was named" in problem
    assert configured == "False"


def test_a_password_is_read_from_a_file(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQUEUE_PASSWORD", "wrong")
    secret = tmp_path / "secret"
    secret.write_text(str(connection.settings_dict["PASSWORD"]) + "\n")
    with connected(connecting({**lower(options), "passwordfile": str(secret)})) as using:
        assert session.fetch(using, "SELECT 1") == [(1,)]
    with (
        pytest.raises(NoConnection, match=r"passwordFile.*cannot be read here"),
        connected(connecting({**lower(options), "passwordfile": str(tmp_path / "none")})),
    ):
        pass


def hook() -> dict[str, str]:
    return {"password": str(connection.settings_dict["PASSWORD"])}


def broken_hook() -> dict[str, str]:
    raise KeyError("vault")


def test_a_function_may_know_the_password(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQUEUE_PASSWORD", "wrong")
    with connected(connecting({**lower(options), "connectionhook": f"{__name__}:hook"})) as using:
        assert session.fetch(using, "SELECT 1") == [(1,)]
    with (
        pytest.raises(NoConnection, match="broken_hook failed here: KeyError"),
        connected(connecting({**lower(options), "connectionhook": f"{__name__}:broken_hook"})),
    ):
        pass


@pytest.mark.django_db(transaction=True)
def test_without_options_it_is_djangos_database() -> None:
    with connected(ConnectionParameters()) as using:
        found = session.fetch(using, "SELECT DATABASE()")
        assert using != "default"
    assert found == [(connection.settings_dict["NAME"],)]
    with pytest.raises(ConnectionDoesNotExist):
        connections[using]


def test_a_wrong_account_is_told_where_its_password_is_looked_for(options: dict[str, str]) -> None:
    wrong = {**lower(options), "user": "nobody_of_this_name"}
    with pytest.raises(NoConnection, match="passwordFile") as caught, connected(connecting(wrong)):
        pass
    assert "nobody_of_this_name" in str(caught.value)


def test_tables_that_are_not_there_are_explained(options: dict[str, str]) -> None:
    other = {**lower(options), "database": "mysql"}
    with (
        pytest.raises(NoConnection, match=r"holds no tables of the queue: run manage\.py migrate"),
        connected(connecting(other)) as using,
    ):
        settling.Settler(using, "orders").advance()


def test_a_retrying_connection_also_explains_missing_tables(options: dict[str, str]) -> None:
    line = RetryingConnection(connecting({**lower(options), "database": "mysql"}))
    with pytest.raises(NoConnection, match=r"holds no tables of the queue: run manage\.py migrate"):
        line.run(lambda using: settling.Settler(using, "orders").advance())


@pytest.mark.django_db(transaction=True)
def test_the_sql_mode_is_strict_on_any_server() -> None:
    """In another mode, an INSERT of two messages for a group that is not registered stores them for all groups."""
    given = connection.settings_dict
    settings = {**given, "OPTIONS": {**given["OPTIONS"], "init_command": "SET sql_mode = ''"}}
    with detached.connection(settings) as using:
        assert session.fetch(using, "SELECT @@sql_mode") == [("STRICT_TRANS_TABLES",)]
        rows = [NewRow("k", id, encode(1, "", None, 100), "nobody") for id in "ab"]
        with pytest.raises(IntegrityError):
            session.run(using, lambda cursor: log.insert(cursor, "orders", rows))


@override_settings(MQUEUE={"DATABASE": "queue"})
def test_messages_name_the_database_of_the_settings() -> None:
    assert ConnectionParameters().where() == "Django's database 'queue'"
    assert ConnectionParameters(using="other").where() == "Django's database 'other'"


@pytest.mark.django_db(transaction=True)
def test_a_password_file_replaces_the_password_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(str(connection.settings_dict["PASSWORD"]) + "\n")
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "wrong")
    with connected(connecting({"passwordFile": str(secret)})) as using:
        assert session.fetch(using, "SELECT 1") == [(1,)]
    with (
        pytest.raises(NoConnection, match=r"Check the password in Django's settings$"),
        connected(connecting({})),
    ):
        pass


def test_a_host_that_is_perhaps_wrong_is_reported_before_the_retries(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_mqueue.spark.connecting.RETRY_FOR", 0)
    wrong = {name: value for name, value in lower(options).items() if name != "unixsocket"}
    line = RetryingConnection(connecting({**wrong, "host": "no-such-host.invalid"}))
    with (
        pytest.warns(UserWarning, match=r"no-such-host.*cannot be reached.*Retrying for up to") as warned,
        pytest.raises(NoConnection, match="cannot be reached"),
    ):
        line.run(str)
    assert len(warned) == 1


def test_a_line_is_opened_again_when_it_was_lost(options: dict[str, str]) -> None:
    line = RetryingConnection(connecting(lower(options)))
    number = line.run(lambda using: session.fetch(using, "SELECT CONNECTION_ID()"))[0][0]
    with connection.cursor() as cursor:
        cursor.execute(f"KILL {number:d}")
    seen = []

    def work(using: str) -> int:
        seen.append(using)
        return int(session.fetch(using, "SELECT CONNECTION_ID()")[0][0])

    assert line.run(work) != number
    assert len(set(seen)) == 2
    line.close()


def test_work_that_takes_longer_than_it_is_tried_again_is_tried_again(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of a long first batch takes minutes, and its connection may be lost at the end."""
    monkeypatch.setattr("django_mqueue.spark.connecting.RETRY_FOR", 0.05)
    line, numbers = RetryingConnection(connecting(lower(options))), []

    def work(using: str) -> int:
        ((number, _),) = session.fetch(using, "SELECT CONNECTION_ID(), SLEEP(0.2)")
        numbers.append(int(number))
        if len(numbers) == 1:
            with connection.cursor() as cursor:
                cursor.execute(f"KILL {number:d}")
        return int(session.fetch(using, "SELECT CONNECTION_ID()")[0][0])

    assert line.run(work) == numbers[1] != numbers[0]
    line.close()


def test_options_of_the_settings_hold_no_password() -> None:
    assert set(settings_options()) <= {
        "host", "port", "user", "database", "unixSocket", "defaultsFile", "sslCa",
    }  # fmt: skip


PEM = {"ca": "/ca.pem", "cert": "/me.pem", "key": "/key.pem"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ssl_mode": "VERIFY_IDENTITY", "ssl": PEM}, {"ssl_mode": "VERIFY_IDENTITY", "ssl": PEM}),
        ({"ssl": {"capath": "/certs", "cipher": "A:B"}}, {"ssl": {"capath": "/certs", "cipher": "A:B"}}),
        ({"ssl": True}, {"ssl_mode": "REQUIRED"}),
        ({"ssl": True, "ssl_mode": "VERIFY_CA"}, {"ssl_mode": "VERIFY_CA"}),
        ({"ssl": False}, {"ssl_mode": "DISABLED"}),
        ({"ssl": {}}, {}),
        (
            {"read_default_file": "/my.cnf", "read_default_group": "shop"},
            {"read_default_file": "/my.cnf", "read_default_group": "shop"},
        ),
    ],
    ids=str,
)
def test_what_the_settings_say_of_encryption_is_passed_on(
    given: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors use all options of mysqlclient that this process uses."""
    wanted = {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "HOST": "db", "USER": "", "PORT": ""}
    monkeypatch.setattr(connections["default"], "settings_dict", {**wanted, "OPTIONS": given})
    found = connecting(lower(settings_options()))
    assert found.driver_arguments == {"host": "db", "database": "shop", **expected}


@pytest.fixture(scope="module")
def without_tls(django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, str]]:
    """Yield the options of a server that cannot encrypt."""
    kind = kind_of_run()
    further = ["--tls-version="] if kind == "mysql" else []
    with django_db_blocker.unblock(), own_server_of_kind(kind, "without_tls", further):
        yield lower(settings_options("without_tls"))


@pytest.mark.parametrize("mode", ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"])
def test_what_must_be_encrypted_is_not_sent_in_the_clear(without_tls: dict[str, str], mode: str) -> None:
    """MariaDB's client library would connect without encryption and without an error."""
    with (
        pytest.raises(NoConnection, match=r"cannot be reached from here: .*(SSL|TLS)"),
        connected(connecting({**without_tls, "sslmode": mode})),
    ):
        pass


@pytest.mark.parametrize("more", [{"ssl_mode": "REQUIRED"}, {"ssl": True}], ids=str)
def test_nor_is_it_where_the_settings_or_a_function_ask_for_it(
    without_tls: dict[str, str], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["without_tls"].settings_dict["OPTIONS"], *next(iter(more.items())))
    with pytest.raises(NoConnection, match=r"SSL|TLS"), connected(ConnectionParameters(using="without_tls")):
        pass
    with (
        pytest.raises(NoConnection, match=r"SSL|TLS"),
        connected(connecting(lower(settings_options("without_tls")))),
    ):
        pass


@pytest.mark.parametrize("mode", ["DISABLED", "PREFERRED"])
def test_what_need_not_be_encrypted_goes_through(without_tls: dict[str, str], mode: str) -> None:
    with connected(connecting({**without_tls, "sslmode": mode})) as using:
        assert session.fetch(using, "SELECT 1") == [(1,)]


@pytest.fixture(scope="module")
def with_tls(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Yield the options of a server with its own certificate, which clients can verify."""
    place = tmp_path_factory.mktemp("tls")
    key, pem = str(place / "key.pem"), str(place / "cert.pem")
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*run, "-keyout", key, "-out", pem], check=True, capture_output=True)
    further = [f"--ssl-key={key}", f"--ssl-cert={pem}", f"--ssl-ca={pem}"]
    with django_db_blocker.unblock(), own_server_of_kind(kind_of_run(), "with_tls", further):
        yield {**lower(settings_options("with_tls")), "sslca": pem}


@pytest.mark.parametrize("mode", ["REQUIRED", "VERIFY_CA"])
def test_what_must_be_encrypted_is(with_tls: dict[str, str], mode: str) -> None:
    with connected(connecting({**with_tls, "sslmode": mode})) as using:
        assert session.fetch(using, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]


def test_a_certificate_that_nobody_vouches_for_is_refused(with_tls: dict[str, str], tmp_path: Path) -> None:
    """Clients trust a different certificate."""
    key, pem = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=another"]
    subprocess.run([*run, "-keyout", key, "-out", pem], check=True, capture_output=True)
    with (
        pytest.raises(NoConnection, match=r"SSL|TLS|certificate"),
        connected(connecting({**with_tls, "sslca": pem, "sslmode": "VERIFY_CA"})),
    ):
        pass
