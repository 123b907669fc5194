"""System checks of the settings and of the database server.

The database checks run with ``manage.py check --database default``, in ``migrate`` and when ``runconsumer`` starts. The
checks of encryption need no server. ``check_required_encryption`` always runs. ``check_encryption`` runs with
``manage.py check --deploy``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from . import conf
from .store.connection import encryption
from .store.connection.dialect import CHARSET

MARIADB_LEAST, MYSQL_LEAST = (10, 11), (8, 4)


@register("mqueue")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return [Error(problem, id="django_mqueue.E001") for problem in conf.problems()]


@register(Tags.security)
def check_required_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if TLS is required, but the client library can send the password in the clear."""
    alias, parameters = _remote()
    if encryption.wanted(parameters) != "required" or encryption.required_is_enforced():
        return []
    return [
        Warning(
            f"database {alias!r}: ssl_mode is REQUIRED, but mysqlclient uses MariaDB's client library "
            f"({encryption.client_library()}), which continues without TLS if the server offers none, and then sends "
            "the password in the clear if the server asks for it",
            hint="Set ssl_mode to VERIFY_CA in the OPTIONS of the database, and 'ca' in ssl.",
            id="django_mqueue.W011",
        )
    ]


@register(Tags.security, deploy=True)
def check_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if the database server is on another machine and its connection need not be encrypted."""
    alias, parameters = _remote()
    if not parameters or encryption.wanted(parameters) != "optional" or "read_default_file" in parameters:
        return []
    return [
        Warning(
            f"database {alias!r} is at {parameters['host']}, and its connection may be unencrypted: others on the"
            " network can read every message, and a false server can receive the password",
            hint="Set ssl_mode to VERIFY_CA or VERIFY_IDENTITY in the OPTIONS of the database, and 'ca' in ssl.",
            id="django_mqueue.W012",
        )
    ]


def _remote() -> tuple[str, dict[str, Any]]:
    """Return the alias and mysqlclient's parameters of the queue's database.

    The parameters are empty if the server is on this machine. Both are empty if the settings are invalid or the
    database is neither MySQL nor MariaDB.
    """
    if conf.problems() or connections[conf.database()].vendor != "mysql":
        return "", {}
    alias = conf.database()
    settings = connections[alias].settings_dict
    parameters = {"host": settings["HOST"], **settings["OPTIONS"]}
    return alias, parameters if encryption.is_remote(parameters) else {}


@register(Tags.database)
def check_database(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    if conf.problems():
        return []
    alias = conf.database()
    return server_problems(alias) if alias in (databases or ()) else []


def server_problems(alias: str) -> list[CheckMessage]:
    """Return errors and warnings about the server of a database alias; empty if the queue can rely on it.

    Raises ``DatabaseError`` if the server cannot be reached.
    """
    connection = connections[alias]
    if connection.vendor != "mysql":
        return [
            Error(
                f"database {alias!r} is {connection.display_name}; the queue needs MySQL or MariaDB",
                hint="Point MQUEUE['DATABASE'] at a MySQL or MariaDB entry of DATABASES.",
                id="django_mqueue.E002",
            )
        ]
    return [*_version(alias, connection), *_variables(alias, connection)]


def _version(alias: str, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    mariadb = bool(getattr(connection, "mysql_is_mariadb", False))
    version = tuple(getattr(connection, "mysql_version", (0,)))
    name, least = ("MariaDB", MARIADB_LEAST) if mariadb else ("MySQL", MYSQL_LEAST)
    if version >= least:
        return []
    return [
        Warning(
            f"database {alias!r} runs {name} {'.'.join(map(str, version))}; the queue is tested from "
            f"{'.'.join(map(str, least))} on",
            id="django_mqueue.W001",
        )
    ]


def _variables(alias: str, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    names = (
        "innodb_autoinc_lock_mode", "auto_increment_increment", "binlog_format", "log_bin", "sql_mode", "tx_isolation",
        "transaction_isolation", "wsrep_on", "max_allowed_packet", *_CHARSETS,
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW VARIABLES WHERE Variable_name IN ({', '.join(['%s'] * len(names))})", names)
        found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    isolation = found.get("transaction_isolation", found.get("tx_isolation", "")).replace("-", " ").lower()
    problems: list[tuple[bool, str, str, str]] = [
        (
            isolation not in ("read committed", "repeatable read"),
            f"transactions run at {isolation.upper()}; the protocol needs READ COMMITTED, or REPEATABLE READ",
            "Remove isolation_level from the OPTIONS of the database, or set it to 'read committed'.",
            "W002",
        ),
        (
            found.get("innodb_autoinc_lock_mode") not in ("1", "2"),
            "innodb_autoinc_lock_mode is 0: each publish would hold the table's AUTO-INC lock",
            "Set innodb_autoinc_lock_mode to 1 or 2 in the server's configuration.",
            "W003",
        ),
        (
            found.get("auto_increment_increment") != "1" or found.get("wsrep_on", "OFF") == "ON",
            "more than one writer assigns offsets (auto_increment_increment is not 1, or Galera is on)",
            "The queue needs one writable primary: give it a database of its own there.",
            "W004",
        ),
        (
            found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT",
            "binlog_format is STATEMENT, which refuses writes at READ COMMITTED",
            "Set binlog_format to ROW or MIXED.",
            "W005",
        ),
        (
            "STRICT_TRANS_TABLES" not in found.get("sql_mode", "")
            and "STRICT_ALL_TABLES" not in found["sql_mode"],
            "sql_mode is not strict: the server would silently cut values that are too long",
            "Leave Django's default sql_mode, or add STRICT_TRANS_TABLES to it.",
            "W006",
        ),
        (
            int(found.get("max_allowed_packet", 0)) < 2 * conf.largest_payload() + 1_048_576,
            f"max_allowed_packet ({found.get('max_allowed_packet')}) is too small for MAX_PAYLOAD_BYTES, because a"
            " payload may double in size inside a statement",
            "Raise max_allowed_packet in the server's configuration, or lower MAX_PAYLOAD_BYTES.",
            "W007",
        ),
    ]
    warnings: list[CheckMessage] = [
        Warning(f"database {alias!r}: {text}", hint=hint, id=f"django_mqueue.{number}")
        for bad, text, hint, number in problems
        if bad
    ]
    return [*warnings, *_charset(alias, {found[name] for name in _CHARSETS if name in found} - {CHARSET})]


_CHARSETS = ("character_set_client", "character_set_connection", "character_set_results")


def _charset(alias: str, wrong: Collection[str]) -> list[CheckMessage]:
    if not wrong:
        return []
    return [
        Error(
            f"database {alias!r}: the connection uses the charset {', '.join(sorted(wrong))}, which cannot represent"
            " every key; messages of such a key would not be delivered",
            hint=f"Set 'charset': '{CHARSET}' in the OPTIONS of the database, and remove SET NAMES from init_command.",
            id="django_mqueue.E003",
        )
    ]
