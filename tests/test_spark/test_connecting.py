"""The database is reached without Django's settings, and the password fetched where it is needed; no Spark here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection, connections
from django.utils.connection import ConnectionDoesNotExist

from django_mqueue import publish
from django_mqueue.service import settling
from django_mqueue.spark.connecting import Connecting, Line, connected, connecting
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.launching import settings_options
from django_mqueue.store import session

ALONE = """
import json, os, sys
from django_mqueue.spark.connecting import connected
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.options import read_options
from django_mqueue.spark.planning import batch
from django_mqueue.spark.query import Query

options = read_options(json.loads(sys.argv[1]))
with connected(options.connecting) as using:
    print(sum(each.piece.rows for each in batch(using, options)))
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
    """With warnings as errors: Django would rather have its apps ready before a statement."""
    publish("orders", 1)
    environment = {k: v for k, v in os.environ.items() if k not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, json.dumps({**options, "topic": "orders"})],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
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
    with connected(Connecting()) as using:
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


def test_a_line_is_opened_again_when_it_was_lost(options: dict[str, str]) -> None:
    line = Line(connecting(lower(options)))
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


def test_options_of_the_settings_hold_no_password() -> None:
    assert set(settings_options()) <= {
        "host", "port", "user", "database", "unixSocket", "defaultsFile", "sslCa",
    }  # fmt: skip
