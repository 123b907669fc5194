"""Variables of the server and of the session that do not suit the queue. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from .. import conf
from ..policy.batching import BYTES_PER_STATEMENT
from ..store.connection.dialect import CHARSET
from ..store.server.variables import CHARSETS, Server
from .findings import ERROR, INFO, WARNING, Finding

LOCK_WAIT_MAX = 300


def findings(server: Server) -> list[Finding]:
    """Return the findings that are also system checks. They have a ``check``."""
    return [*_session(server), *_server(server)]


def _session(server: Server) -> Iterator[Finding]:
    found = server.variables
    isolation = isolation_of(server).lower()
    if isolation not in ("read committed", "repeatable read"):
        yield Finding(
            WARNING, "isolation", f"transactions run at {isolation.upper()}",
            "The protocol needs READ COMMITTED, or REPEATABLE READ. At SERIALIZABLE, plain reads take locks, so"
            " publishers and workers wait for each other. At READ UNCOMMITTED, reads see what is not committed.",
            "Remove isolation_level from the OPTIONS of the database, or set it to 'read committed'.", "W002",
        )  # fmt: skip
    if not {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} & {*found.get("sql_mode", "").split(",")}:
        yield Finding(
            WARNING, "sql_mode", "sql_mode is not strict",
            "The server would silently cut values that are too long. If a group is unsubscribed while publish_many"
            " publishes for it, the server could store the messages for all groups.",
            "Leave Django's default sql_mode, or add STRICT_TRANS_TABLES to it.", "W006",
        )  # fmt: skip
    if charsets := {found[name] for name in CHARSETS if name in found} - {CHARSET}:
        yield Finding(
            ERROR, "charset", f"the connection uses the charset {', '.join(sorted(charsets))}",
            "It cannot represent every key. Messages of such a key would not be delivered.",
            f"Set 'charset': '{CHARSET}' in the OPTIONS of the database, and remove SET NAMES from init_command.",
            "E003",
        )  # fmt: skip


def _server(server: Server) -> Iterator[Finding]:
    found = server.variables
    if found.get("innodb_autoinc_lock_mode") not in ("1", "2"):
        yield Finding(
            WARNING, "innodb_autoinc_lock_mode", "innodb_autoinc_lock_mode is 0",
            "Each publish would hold the table's AUTO-INC lock, so publishers would wait for each other.",
            "Set innodb_autoinc_lock_mode to 1 or 2 in the server's configuration, and restart it.", "W003",
        )  # fmt: skip
    if found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT":
        yield Finding(
            WARNING, "binlog_format", "binlog_format is STATEMENT", "The server refuses writes at READ COMMITTED.",
            "SET GLOBAL binlog_format = 'ROW'; and set it in the server's configuration.", "W005",
        )  # fmt: skip
    packet = int(found.get("max_allowed_packet", "0"))
    needed = 2 * max(conf.largest_payload(), BYTES_PER_STATEMENT) + 1_048_576
    if packet < needed:
        yield Finding(
            WARNING, "max_allowed_packet", f"max_allowed_packet ({packet}) is too small",
            "A statement has up to 4 MiB of payloads, or one larger payload, which may double in size inside it. The"
            " server refuses a larger statement, and closes the connection.",
            f"SET GLOBAL max_allowed_packet = {needed}; and in the server's configuration.",
            "W007",
        )  # fmt: skip


def advice(server: Server) -> Iterator[Finding]:
    """Yield findings that are no system checks: a project may have chosen these values."""
    found = server.variables
    flush, sync = found.get("innodb_flush_log_at_trx_commit", "1"), found.get("sync_binlog", "1")
    loss = "A crash of the machine can lose the last commits: messages and acknowledgements."
    if flush != "1":
        yield Finding(
            WARNING, "durability", f"innodb_flush_log_at_trx_commit is {flush}", loss,
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1; and set it in the server's configuration.",
        )  # fmt: skip
    if found.get("log_bin") == "ON" and sync != "1":
        yield Finding(
            WARNING, "durability", f"sync_binlog is {sync}, and the binary log is on",
            f"{loss} Replicas may then have other rows than the primary.",
            "SET GLOBAL sync_binlog = 1; and set it in the server's configuration.",
        )  # fmt: skip
    wait = int(found.get("innodb_lock_wait_timeout", "50"))
    if wait > LOCK_WAIT_MAX:
        yield Finding(
            WARNING, "timeouts", f"innodb_lock_wait_timeout is {wait} s",
            "A statement that meets a locked row waits that long, and keeps its own locks meanwhile.",
            "SET GLOBAL innodb_lock_wait_timeout = 50; and set it in the server's configuration.",
        )  # fmt: skip
    if found.get("innodb_rollback_on_timeout") == "ON":
        yield Finding(
            WARNING, "timeouts", "innodb_rollback_on_timeout is ON",
            "A lock wait timeout rolls back the whole transaction. Later statements commit without the earlier ones.",
            "Remove innodb_rollback_on_timeout from the server's configuration, and restart it.",
        )  # fmt: skip
    if (
        server.is_mariadb
        and found.get("idle_write_transaction_timeout") == found.get("idle_transaction_timeout") == "0"
    ):
        yield Finding(
            INFO, "timeouts", "the server never ends an idle transaction",
            "A program that stops inside a transaction keeps its locks, and delays the deletion of old messages, until"
            f" its connection ends (wait_timeout: {found.get('wait_timeout')} s).",
            "SET GLOBAL idle_write_transaction_timeout = 300; and set it in the server's configuration.",
        )  # fmt: skip
    yield from performance_schema(server)


def performance_schema(server: Server) -> Iterator[Finding]:
    if server.variables.get("performance_schema") == "ON":
        return
    yield Finding(
        INFO, "performance_schema", "the performance schema is off",
        "mqueue blockers cannot show the programs of connections"
        + ("." if server.is_mariadb else ", nor which connection blocks another."),
        "Set performance_schema = ON in the server's configuration, and restart it.",
    )  # fmt: skip


def isolation_of(server: Server) -> str:
    found = server.variables
    return found.get("transaction_isolation", found.get("tx_isolation", "")).replace("-", " ").upper()
