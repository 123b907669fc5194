"""Options that name servers, files and functions are trusted, unless the environment refuses them. No Spark here."""

from __future__ import annotations

import traceback
from pathlib import Path
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import connection

from django_mqueue.spark.connecting import ConnectionParameters, connected, connecting
from django_mqueue.spark.errors import NoConnection, OptionError
from django_mqueue.store.connection import session
from tests.support.rogue_server import rogue_server

SECRET = "correct-horse-battery-staple"
called: list[str] = []


def hook() -> dict[str, str]:
    called.append("hook")
    return {}


def failing_hook() -> dict[str, str]:
    try:
        raise ValueError(f"token {SECRET}")
    except ValueError as error:
        raise KeyError(SECRET) from error


def given(port: int, file: Path) -> list[dict[str, str]]:
    named = {"host": "127.0.0.1", "port": str(port), "user": "reader", "database": "shop"}
    return [
        named,
        {**named, "passwordfile": str(file)},
        {"passwordfile": str(file)},
        {"connectionhook": f"{__name__}:hook"},
        {"defaultsfile": str(file)},
        {"sslmode": "DISABLED", "defaultsfile": str(file)},
        {"unixsocket": "/tmp/none", "database": "shop"},
    ]


@pytest.mark.usefixtures("connections_allowed")
def test_options_are_refused_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code connects to no server, reads no file, and calls no function."""
    called.clear()
    file = tmp_path / "secret"
    file.write_text(SECRET)
    monkeypatch.setenv("MQUEUE_CONNECTION_OPTIONS", "refuse")
    monkeypatch.setenv("MQUEUE_PASSWORD", SECRET)
    read = Path.read_text
    with rogue_server() as rogue, patch.object(Path, "read_text", autospec=True, side_effect=read) as reading:
        for options in given(rogue.port, file):
            with (
                pytest.raises(OptionError, match="MQUEUE_CONNECTION_OPTIONS is refuse"),
                connected(connecting(options)),
            ):
                pass
        assert not reading.called
    assert rogue.clients == 0
    assert called == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("using", [None, "default"])
def test_djangos_settings_may_be_used_all_the_same(
    using: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQUEUE_CONNECTION_OPTIONS", "refuse")
    with connected(ConnectionParameters(using=using)) as alias:
        assert session.fetch(alias, "SELECT DATABASE()") == [(connection.settings_dict["NAME"],)]


@pytest.mark.usefixtures("connections_allowed")
def test_a_mistyped_environment_is_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQUEUE_CONNECTION_OPTIONS", "Refuse")
    with (
        pytest.raises(OptionError, match="'Refuse', but must be allow or refuse"),
        connected(ConnectionParameters()),
    ):
        pass


def test_the_command_names_an_alias_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alias replaces the server and the account of the settings."""
    with patch("django_mqueue.management.commands.mqueue_spark.run", return_value=0) as run:
        call_command("mqueue_spark", "doctor")
        assert "database" in run.call_args.args[1]
        monkeypatch.setenv("MQUEUE_CONNECTION_OPTIONS", "refuse")
        call_command("mqueue_spark", "doctor")
    assert run.call_args.args[1] == {"using": "default"}


@pytest.mark.usefixtures("connections_allowed")
def test_the_text_of_a_functions_error_is_not_repeated() -> None:
    """The text may contain a secret from a secrets store, and Spark writes tracebacks into its logs."""
    how = connecting({"connectionhook": f"{__name__}:failing_hook"})
    with (
        pytest.raises(NoConnection, match=r"failing_hook failed here: KeyError\. The text") as caught,
        connected(how),
    ):
        pass
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.usefixtures("connections_allowed")
@pytest.mark.parametrize("name", ["no_such_package.hooks:hook", f"{__name__}:no_such_hook"])
def test_a_function_that_is_not_there_is_named(name: str) -> None:
    with (
        pytest.raises(NoConnection, match=r"cannot be imported: .*no_such"),
        connected(connecting({"connectionhook": name})),
    ):
        pass
