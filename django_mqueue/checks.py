"""System checks of the settings and of the database server.

The database checks run with ``manage.py check --database default``, in ``migrate`` and when ``runconsumer`` starts. The
checks of encryption need no server. ``check_required_encryption`` always runs. ``check_encryption`` runs with
``manage.py check --deploy``.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    if encryption.required(parameters) != "required" or encryption.required_is_enforced():
        return []
    text = (
        f"database {alias!r}: ssl_mode is REQUIRED, but mysqlclient uses MariaDB's client library "
        f"({encryption.client_library()}), which continues without TLS if the server offers none, and then sends "
        "the password in the clear if the server asks for it"
    )
    hint = "Set ssl_mode to VERIFY_CA in the OPTIONS of the database, and 'ca' in ssl."
    return [Warning(text, hint=hint, id="django_mqueue.W011")]


@register(Tags.security, deploy=True)
def check_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if the database server is on another machine and the connection may be unencrypted."""
    alias, parameters = _remote()
    if not parameters or encryption.required(parameters) != "optional" or "read_default_file" in parameters:
        return []
    text = (
        f"database {alias!r} is at {parameters['host']}, and its connection may be unencrypted: others on the"
        " network can read every message, and a false server can receive the password"
    )
    hint = "Set ssl_mode to VERIFY_CA or VERIFY_IDENTITY in the OPTIONS of the database, and 'ca' in ssl."
    return [Warning(text, hint=hint, id="django_mqueue.W012")]


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
        text = f"database {alias!r} is {connection.display_name}; the queue needs MySQL or MariaDB"
        hint = "Point MQUEUE['DATABASE'] at a MySQL or MariaDB entry of DATABASES."
        return [Error(text, hint=hint, id="django_mqueue.E002")]
    return [*_version(alias, connection), *_variables(alias, connection)]


def _version(alias: str, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    mariadb = bool(getattr(connection, "mysql_is_mariadb", False))
    version = tuple(getattr(connection, "mysql_version", (0,)))
    name, least = ("MariaDB", MARIADB_LEAST) if mariadb else ("MySQL", MYSQL_LEAST)
    if version >= least:
        return []
    found, tested = (".".join(map(str, numbers)) for numbers in (version, least))
    text = f"database {alias!r} runs {name} {found}; the queue is tested from {tested} on"
    return [Warning(text, id="django_mqueue.W001")]


def _variables(alias: str, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    names = (
        "innodb_autoinc_lock_mode", "auto_increment_increment", "binlog_format", "log_bin", "sql_mode", "tx_isolation",
        "transaction_isolation", "wsrep_on", "max_allowed_packet", *_CHARSETS,
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW VARIABLES WHERE Variable_name IN ({', '.join(['%s'] * len(names))})", names)
        found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    isolation = found.get("transaction_isolation", found.get("tx_isolation", "")).replace("-", " ").lower()
    packet = found.get("max_allowed_packet", "0")
    charsets = {found[name] for name in _CHARSETS if name in found} - {CHARSET}
    problems = {
        "W002": isolation not in ("read committed", "repeatable read") and (
            f"transactions run at {isolation.upper()}; the protocol needs READ COMMITTED, or REPEATABLE READ",
            "Remove isolation_level from the OPTIONS of the database, or set it to 'read committed'.",
        ),
        "W003": found.get("innodb_autoinc_lock_mode") not in ("1", "2") and (
            "innodb_autoinc_lock_mode is 0: each publish would hold the table's AUTO-INC lock",
            "Set innodb_autoinc_lock_mode to 1 or 2 in the server's configuration.",
        ),
        "W004": (found.get("auto_increment_increment") != "1" or found.get("wsrep_on", "OFF") == "ON") and (
            "more than one writer assigns offsets (auto_increment_increment is not 1, or Galera is on)",
            "The queue needs one writable primary: give it a database of its own there.",
        ),
        "W005": found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT" and (
            "binlog_format is STATEMENT, which refuses writes at READ COMMITTED",
            "Set binlog_format to ROW or MIXED.",
        ),
        "W006": not {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} & {*found.get("sql_mode", "").split(",")} and (
            "sql_mode is not strict: the server would silently cut values that are too long",
            "Leave Django's default sql_mode, or add STRICT_TRANS_TABLES to it.",
        ),
        "W007": int(packet) < 2 * conf.largest_payload() + 1_048_576 and (
            f"max_allowed_packet ({packet}) is too small for MAX_PAYLOAD_BYTES, because a payload may double in size"
            " inside a statement",
            "Raise max_allowed_packet in the server's configuration, or lower MAX_PAYLOAD_BYTES.",
        ),
        "E003": bool(charsets) and (
            f"the connection uses the charset {', '.join(sorted(charsets))}, which cannot represent every key;"
            " messages of such a key would not be delivered",
            f"Set 'charset': '{CHARSET}' in the OPTIONS of the database, and remove SET NAMES from init_command.",
        ),
    }  # fmt: skip
    return [
        (Error if number == "E003" else Warning)(
            f"database {alias!r}: {problem[0]}", hint=problem[1], id=f"django_mqueue.{number}"
        )
        for number, problem in problems.items()
        if problem
    ]


_CHARSETS = ("character_set_client", "character_set_connection", "character_set_results")
