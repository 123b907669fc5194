"""No password is sent to a server that does not encrypt, or that is not the expected server. No Spark here."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Tags, run_checks
from django.db import connections

from django_mqueue.spark.connecting import ConnectionParameters, connected, connecting
from django_mqueue.spark.errors import NoConnection
from django_mqueue.store.connection import encryption
from tests.support.rogue_server import RogueServer, rogue_server

pytestmark = pytest.mark.usefixtures("connections_allowed")
PASSWORD = "correct-horse-battery-staple"
NAMED = {"host": "127.0.0.1", "user": "reader", "database": "shop"}


@pytest.fixture(scope="module")
def key_and_certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the false server's key and certificate: for the right name, but without a trusted signature."""
    place = tmp_path_factory.mktemp("rogue")
    key, pem = place / "key.pem", place / "cert.pem"
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*run, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    return key, pem


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return another certificate, which clients trust."""
    place = tmp_path_factory.mktemp("authority")
    key, pem = place / "key.pem", place / "cert.pem"
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority"]
    subprocess.run([*run, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    return str(pem)


def refused(how: ConnectionParameters, rogue: RogueServer) -> str:
    """Connect, which must fail. Return the error, after checking that the server received no password."""
    with pytest.raises(NoConnection) as caught, connected(how):
        pass
    assert PASSWORD.encode() not in rogue.received
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("tls", ["without", "with"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"sslmode": "REQUIRED"},
        {"sslmode": "REQUIRED", "sslca": "CA"},
        {"sslmode": "VERIFY_CA", "sslca": "CA"},
        {"sslmode": "VERIFY_IDENTITY", "sslca": "CA"},
        {"sslmode": "VERIFY_CA"},
    ],
)
def test_a_false_server_is_sent_no_password(
    parameters: dict[str, str],
    tls: str,
    key_and_certificate: tuple[Path, Path],
    authority: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MQUEUE_PASSWORD", PASSWORD)
    given = {name: authority if value == "CA" else value for name, value in parameters.items()}
    with rogue_server(key_and_certificate if tls == "with" else None) as rogue:
        said = refused(connecting({**NAMED, "port": str(rogue.port), **given}), rogue)
    if parameters == {"sslmode": "REQUIRED"} and not encryption.required_is_enforced():
        assert "sslCa" in said
        assert rogue.clients == 0


def test_without_encryption_it_is_sent_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the false server receives the password without encryption, at least with MariaDB's library."""
    if encryption.required_is_enforced():
        pytest.skip("MySQL's client library refuses mysql_clear_password")
    monkeypatch.setenv("MQUEUE_PASSWORD", PASSWORD)
    with rogue_server() as rogue:
        how = connecting({**NAMED, "port": str(rogue.port), "sslmode": "PREFERRED"})
        with pytest.raises(NoConnection), connected(how):
            pass
    assert PASSWORD.encode() in rogue.received


def settings_of(rogue: RogueServer, options: dict[str, Any]) -> dict[str, Any]:
    return {
        **connections["default"].settings_dict,
        "HOST": "127.0.0.1", "PORT": str(rogue.port), "USER": "shop", "PASSWORD": PASSWORD, "OPTIONS": options,
    }  # fmt: skip


@pytest.mark.parametrize("options", [{"ssl_mode": "REQUIRED"}, {"ssl": True}], ids=str)
@pytest.mark.parametrize("tls", ["without", "with"])
def test_nor_do_djangos_settings_send_it(
    options: dict[str, Any],
    tls: str,
    key_and_certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The settings are used if Spark has no other options."""
    with rogue_server(key_and_certificate if tls == "with" else None) as rogue:
        monkeypatch.setattr(connections["default"], "settings_dict", settings_of(rogue, options))
        refused(ConnectionParameters(), rogue)


def found_by_checks(monkeypatch: pytest.MonkeyPatch, host: str, options: dict[str, Any]) -> set[str | None]:
    settings = {**connections["default"].settings_dict, "HOST": host, "OPTIONS": options}
    monkeypatch.setattr(connections["default"], "settings_dict", settings)
    found = run_checks(tags=[Tags.security], include_deployment_checks=True)
    assert not any(PASSWORD in str(message) for message in found)
    return {message.id for message in found if (message.id or "").startswith("django_mqueue.")}


CA = {"ca": "/ca.pem"}


@pytest.mark.parametrize("library", ["3.3.20", "8.4.0", "10.6.1", "9.1.0"])
@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({}, "W012"),
        ({"ssl": CA}, "W012"),
        ({"ssl_mode": "PREFERRED", "ssl": CA}, "W012"),
        ({"ssl_mode": "DISABLED"}, "W012"),
        ({"ssl": False}, "W012"),
        ({"ssl_mode": "REQUIRED"}, "W011"),
        ({"ssl_mode": "REQUIRED", "ssl": CA}, "W011"),
        ({"ssl": True}, "W011"),
        ({"ssl_mode": "VERIFY_CA", "ssl": CA}, None),
        ({"ssl_mode": "VERIFY_IDENTITY"}, None),
        ({"read_default_file": "/my.cnf"}, None),
    ],
    ids=str,
)
def test_checks_warn_of_a_server_elsewhere(
    options: dict[str, Any], warning: str | None, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "client_library", lambda: library)
    if warning == "W011" and library in ("8.4.0", "9.1.0"):
        warning = None
    expected = {f"django_mqueue.{warning}"} if warning else set()
    assert found_by_checks(monkeypatch, "db.example.com", options) == expected
    for here in ("", "localhost", "127.0.0.1", "/run/mysqld.sock"):
        assert found_by_checks(monkeypatch, here, options) == set()
    assert found_by_checks(monkeypatch, "db", {**options, "unix_socket": "/run/mysqld.sock"}) == set()


def test_only_deployment_warns_of_plaintext(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**connections["default"].settings_dict, "HOST": "db.example.com", "OPTIONS": {}}
    monkeypatch.setattr(connections["default"], "settings_dict", settings)
    assert "django_mqueue.W012" not in {message.id for message in run_checks(tags=[Tags.security])}


def test_the_client_library_of_here_is_known() -> None:
    assert encryption.client_library().split(".")[0].isdecimal()
