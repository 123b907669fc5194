"""The server's version, variables and clock, and signs of a proxy in between.

These functions do not use ``session``: they also work with a charset and a server that the queue refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, connections

from ..connection.dialect import is_mariadb, placeholders

CHARSETS = ("character_set_client", "character_set_connection", "character_set_results")
VARIABLES = (
    "innodb_autoinc_lock_mode", "auto_increment_increment", "binlog_format", "log_bin", "sql_mode", "tx_isolation",
    "transaction_isolation", "wsrep_on", "max_allowed_packet", "innodb_flush_log_at_trx_commit", "sync_binlog",
    "wait_timeout", "innodb_lock_wait_timeout", "innodb_rollback_on_timeout", "idle_transaction_timeout",
    "idle_write_transaction_timeout", "read_only", "super_read_only", "innodb_read_only", "tx_read_only",
    "transaction_read_only",
    "group_replication_group_name", "group_replication_single_primary_mode", "performance_schema",
    "max_connections", *CHARSETS,
)  # fmt: skip
STATUS = ("wsrep_cluster_size", "Threads_connected")


@dataclass(frozen=True)
class Server:
    """The server of a connection. ``text``: what ``VERSION()`` returns. ``variables``: by name in lower case."""

    is_mariadb: bool
    version: tuple[int, ...]
    text: str
    comment: str
    variables: Mapping[str, str]
    account: str = ""

    @property
    def product(self) -> str:
        return "MariaDB" if self.is_mariadb else "MySQL"


def read(using: str) -> Server:
    connection: Any = connections[using]
    with connection.cursor() as cursor:
        found: dict[str, str] = {}
        for kind, names in (("VARIABLES", VARIABLES), ("GLOBAL STATUS", STATUS)):
            cursor.execute(f"SHOW {kind} WHERE Variable_name IN ({placeholders(names)})", names)
            found |= {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        cursor.execute("SELECT VERSION(), @@version_comment, CURRENT_USER()")
        text, comment, account = map(str, cursor.fetchone())
    return Server(is_mariadb(using), tuple(connection.mysql_version), text, comment, found, account)


@dataclass(frozen=True)
class Route:
    """The path of statements to the server.

    ``greeted``, ``greeted_id``: the version and the connection's id in the greeting, which a proxy writes itself.
    ``text``, ``ids``: ``VERSION()``, and the ids of the sessions that ran three statements. ``comment``: the answer to
    a statement that ProxySQL answers itself.
    """

    greeted: str
    greeted_id: int
    text: str
    ids: tuple[int, ...]
    comment: str
    proxy_version: str = ""


def route(using: str) -> Route:
    connection: Any = connections[using]
    ids = []
    with connection.cursor() as cursor:
        for _ in range(3):
            # ProxySQL answers SELECT CONNECTION_ID() itself. It forwards this statement.
            cursor.execute("SELECT VERSION(), CONNECTION_ID()")
            text, number = cursor.fetchone()
            ids.append(int(number))
        cursor.execute("SELECT @@version_comment LIMIT 1")
        comment = str(cursor.fetchone()[0])
    raw = connection.connection
    return Route(
        str(raw.get_server_info()),
        int(raw.thread_id()),
        str(text),
        tuple(ids),
        comment,
        _proxy_version(using),
    )


def _proxy_version(using: str) -> str:
    """Return ProxySQL's version; '' without ProxySQL, because servers do not know the variable."""
    try:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT @@proxy_version")
            return str(cursor.fetchone()[0])
    except DatabaseError:
        return ""


def cipher(using: str) -> str:
    """Return the protocol and the cipher that encrypt the connection; '' if it is not encrypted."""
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')")
        found = {str(name): str(value) for name, value in cursor.fetchall()}
    return f"{found.get('Ssl_version', '')} {found.get('Ssl_cipher', '')}".strip()


def clock(using: str) -> tuple[datetime, datetime, datetime]:
    """Return (this machine's time before, the database's time, this machine's time after)."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT 1")  # So that the measured statement does not open the connection.
        before = datetime.now(UTC)
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        moment = cursor.fetchone()[0]
        after = datetime.now(UTC)
    return before, moment.replace(tzinfo=UTC), after
