"""Error numbers of MySQL, MariaDB and the client library. No other module knows them."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError, InterfaceError

DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED = 1213, 1205, 1020
RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})
"""Errors that roll back the statement or transaction, which may succeed when it is repeated. 1020: with snapshot
isolation, MariaDB found a row that has changed since the snapshot."""

PERHAPS_MISTAKEN = frozenset({2005, 2026})
"""Unknown host, no TLS. While a container or proxy restarts, they are temporary. With wrong settings, they are not."""

_GONE = {1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 3032, 4031, 9001}
LOST = PERHAPS_MISTAKEN | _GONE
"""Errors of a lost connection, or of a server that is gone or has not started. 3032: MySQL is offline and has closed
all connections except administrators' connections. 4031: it closed this connection, which was idle for too long.
9001: ProxySQL found no server for ten seconds, as during a failover."""

NOT_REPLICATED = frozenset({3100, 3101})
"""Errors of a COMMIT that the replication group did not accept. The transaction is rolled back on this server. If the
server leaves the group at this moment, it may have sent the transaction before; then the other servers commit it."""

_FULL = {3, 28, 1021, 1026, 1030, 1114, 1467, 1878}
"""1467: there is no space to store the next AUTO_INCREMENT value."""
_READ_ONLY = {1290, 1792, 1836}
_TOO_MANY = {1037, 1038, 1040, 1041, 1135, 1203, 1206, 1226, 1637}
_ENDED = {1317, 1969, 3024}
REFUSED = NOT_REPLICATED | _FULL | _READ_ONLY | _TOO_MANY | _ENDED
"""Errors of a server that cannot run the statement now, and has changed nothing. Its disk is full, it is read-only (a
failover), or it has too many connections or too few resources. Or the statement was killed, or the COMMIT was not
replicated."""


def _code(error: BaseException) -> int:
    """Return the error number; 0 for an error that is not the database's, or has none."""
    code = error.args[0] if isinstance(error, DatabaseError | InterfaceError) and error.args else 0
    return code if isinstance(code, int) else 0


def _has(*codes: int) -> Callable[[BaseException], bool]:
    """Return a function that returns whether an error has one of these numbers."""
    return lambda error: _code(error) in codes


is_retriable = _has(*RETRIABLE)
"""Repeated work may succeed: after a deadlock, a lock wait timeout, or a changed row."""
is_perhaps_mistaken = _has(*PERHAPS_MISTAKEN)
"""The error is temporary, or settings are wrong."""
is_lock_wait = _has(LOCK_WAIT_TIMEOUT)
"""A statement failed because it waited too long for a lock."""
is_locked = _has(LOCK_WAIT_TIMEOUT, 3572)
"""A NOWAIT statement found a locked row (MariaDB's number, and MySQL's), or a statement waited too long for one."""
is_duplicate = _has(1062)
"""An INSERT found a row with the same unique key."""
is_value_refused = _has(1264, 1366, 1406, 3140, 3157, 4025)
"""A column does not take a value, so that the same statement never succeeds: it is out of range, too long, has a wrong
character, is no JSON, or is JSON that is nested too deeply."""
is_null = _has(1048)
"""A column got NULL. In a publish, its group is not registered, or a gate row is missing."""
is_savepoint_gone = _has(1305)
"""The transaction of a savepoint has ended."""
is_no_thread = _has(1094)
"""The connection whose statement was to be killed does not exist."""
is_interrupted = _has(1317)
"""Another connection has killed the statement."""
is_access_denied = _has(1045)
"""The server refuses this account."""
is_denied = _has(1142, 1143, 1227)
"""The account lacks a privilege for the statement: on a table, on a column, or a global one."""
is_read_only = _has(*_READ_ONLY)
"""The server or the session refuses all writes."""
is_no_database = _has(1044, 1049)
"""The database does not exist, or the account may not use it."""
is_no_table = _has(1146)
"""A table does not exist."""
is_not_migrated = _has(1146, 1054, 1176, 1048, 3819, 4025)
"""A table, a column, an index or a gate row is missing. Without a gate row, an INSERT has a NULL topic, or its check
constraint fails (3819: MySQL, 4025: MariaDB)."""


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is lost. Then it is unknown whether a COMMIT in progress took effect."""
    return isinstance(error, InterfaceError) or _code(error) in LOST


def is_in_doubt(error: BaseException) -> bool:
    """Return whether a COMMIT in progress may have taken effect, on this server or on the one replacing it."""
    return is_lost(error) or _code(error) in NOT_REPLICATED


def retry_reason(error: BaseException) -> str:
    """Return the reason for which the server ended a transaction that is repeated, as one word."""
    return {DEADLOCK: "deadlock", LOCK_WAIT_TIMEOUT: "lock_wait"}.get(_code(error), "changed")


def is_temporary(error: BaseException) -> bool:
    """Return whether a worker may wait and try again, because the error may be temporary."""
    refused = _code(error) in REFUSED
    return refused or is_lost(error) or is_retriable(error)
