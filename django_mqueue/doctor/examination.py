"""Run all checks. A check that fails, for example for lack of a privilege, does not prevent the others."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections

from .. import conf
from ..exceptions import NotMigrated
from ..stats import topic_list
from ..store.connection import encryption, errors
from ..store.connection.session_variables import lock_waits_of_a_second
from ..store.server import variables as reading
from ..store.server.variables import Server
from . import accounts, routes, servers, state, tables, variables
from .findings import ERROR, INFO, SEVERITIES, Finding, command_line


@dataclass(frozen=True)
class Examination:
    """The result of ``examine``. ``facts``: names and values. ``findings``: the most severe first."""

    facts: Mapping[str, str]
    findings: list[Finding]


def examine(using: str, account: str) -> Examination:
    """Examine the server and the tables of a database. ``account``: the kind whose privileges are required.

    Changes nothing, and waits up to a second for a lock. Raises ``DatabaseError`` if the server cannot be reached.
    """
    connection: Any = connections[using]
    if connection.vendor != "mysql":
        return Examination(
            {"server": connection.display_name}, [servers.other_product(connection.display_name)]
        )
    server = reading.read(using)  # Before this session gets another lock wait timeout.
    with lock_waits_of_a_second(using):
        return _examine(using, account, server)


def _examine(using: str, account: str, server: Server) -> Examination:
    cipher = reading.cipher(using)
    before, there, after = reading.clock(using)
    difference = _difference(before, there, after)
    found = [
        *_settings(),
        *servers.findings(server),
        *_tried(using, "variables", lambda: variables.findings(server)),
        *variables.advice(server),
        *routes.encryption_findings(using, cipher),
        *routes.clock_findings(difference),
        *_tried(using, "proxy", lambda: routes.proxy_findings(reading.route(using))),
        *_tried(using, "privileges", lambda: accounts.findings(using, server, account)),
        *_of_tables(using),
    ]
    found.sort(key=lambda one: SEVERITIES.index(one.severity))
    return Examination(_facts(using, server, cipher, difference), found)


def _settings() -> list[Finding]:
    return [
        Finding(
            ERROR, "settings", problem, "The queue raises ImproperlyConfigured when it reads this setting.",
            "Correct MQUEUE.", "E001",
        )
        for problem in conf.problems()
    ]  # fmt: skip


def _of_tables(using: str) -> list[Finding]:
    found = _tried(using, "migrations", lambda: tables.migrations(using))
    if all(one.severity == INFO for one in found):
        found += _tried(using, "tables", lambda: tables.findings(using))
    if any(one.severity == ERROR for one in found):
        return found  # Some of the other checks would fail for the same reason.
    return [
        *found,
        *_tried(using, "plans", lambda: _plans(using)),
        *_tried(using, "state", lambda: state.findings(using)),
    ]


def _plans(using: str) -> list[Finding]:
    known = topic_list.known_topics(using)
    pairs = sorted((topic, group) for topic, one in known.items() for group in one.groups) or [("-", "-")]
    return list(tables.plan_findings(using, *pairs[0]))


def _tried(using: str, about: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. A database error becomes a finding; a lost connection is raised.

    ``_settings`` reports an invalid setting, which ends this check.
    """
    found: list[Finding] = []
    try:
        for one in check():
            found.append(one)
    except NotMigrated as error:
        found.append(
            Finding(
                ERROR, about, str(error), "The queue cannot work.", f"manage.py migrate --database {using}"
            )
        )
    except ImproperlyConfigured:
        pass
    except DatabaseError as error:
        if errors.is_lost(error):
            raise
        found.append(_failed(using, about, error))
    return found


def _failed(using: str, about: str, error: DatabaseError) -> Finding:
    what = f"a check of {about} failed: {error}"
    if errors.is_denied(error):
        why, repair = "The account lacks a privilege.", "Run this with the account of a worker or a viewer."
        return Finding(INFO, about, what, why, repair)
    if errors.is_lock_wait(error):
        why = "An open transaction, or a statement such as ALTER TABLE, keeps others from reading a table."
        return Finding(ERROR, about, what, why, command_line(using, "mqueue", "blockers"))
    why, repair = "The queue sends similar statements.", "Look up the error in the server's manual."
    return Finding(ERROR, about, what, why, repair)


def _difference(before: Any, there: Any, after: Any) -> timedelta:
    """Return this machine's time minus the database's; 0 if the duration of the query can explain the difference."""
    if before > there:
        return timedelta(seconds=(before - there).total_seconds())
    return timedelta(seconds=min((after - there).total_seconds(), 0))


def _facts(using: str, server: Server, cipher: str, difference: timedelta) -> dict[str, str]:
    found, settings = server.variables, connections[using].settings_dict

    def seconds(name: str) -> str:
        return f"{found[name]} s" if name in found else "the server has no such setting"

    return {
        "server": f"{server.product} {server.text}, {server.comment.strip('()')}",
        "database": f"{using}: {settings['NAME']} on {settings['HOST'] or 'this machine'}, as {server.account}",
        "client": f"client library {encryption.client_library()}, Python {platform.python_version()}",
        "isolation": variables.isolation_of(server),
        "sql_mode": found.get("sql_mode", ""),
        "innodb_autoinc_lock_mode": found.get("innodb_autoinc_lock_mode", ""),
        "max_allowed_packet": found.get("max_allowed_packet", ""),
        "innodb_flush_log_at_trx_commit": found.get("innodb_flush_log_at_trx_commit", ""),
        "sync_binlog": f"{found.get('sync_binlog', '')} (log_bin {found.get('log_bin', '')})",
        "wait_timeout": seconds("wait_timeout"),
        "innodb_lock_wait_timeout": seconds("innodb_lock_wait_timeout"),
        "idle_transaction_timeout": seconds("idle_transaction_timeout"),
        "idle_write_transaction_timeout": seconds("idle_write_transaction_timeout"),
        "connections": f"{found.get('threads_connected', '?')} of {found.get('max_connections', '?')}",
        "encryption": cipher or "none",
        "clock": f"this machine's time minus the database's: {difference.total_seconds():+.3f} s",
    }  # fmt: skip
