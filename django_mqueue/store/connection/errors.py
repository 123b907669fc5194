"""Error numbers of MySQL, MariaDB and the client library. No other module knows them."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError

DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED = 1213, 1205, 1020
RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})
"""Errors that roll back the statement or transaction, which may succeed when it is repeated. 1020: with snapshot
isolation, MariaDB found a row that has changed since the snapshot."""

LOCKED = frozenset({LOCK_WAIT_TIMEOUT, 3572})
"""Errors of a NOWAIT statement at a row that another transaction has locked: MariaDB's and MySQL's."""

DUPLICATE_ENTRY, NULL, NO_SUCH_SAVEPOINT = 1062, 1048, 1305
NO_TABLE, NO_COLUMN, NO_INDEX = 1146, 1054, 1176
ACCESS_DENIED, NO_DATABASE = frozenset({1045}), frozenset({1044, 1049})
NO_PRIVILEGE = frozenset({1142, 1143, 1227})
"""The account lacks a privilege: on a table, on a column, or a global one."""

NO_GATE = frozenset({NULL, 3819, 4025})
"""Errors of an INSERT whose gate row is missing: the topic is NULL, or the check constraint fails (MySQL, MariaDB)."""

PERHAPS_MISTAKEN = frozenset({2005, 2026})
"""Unknown host, no TLS. While a container or proxy restarts, they are temporary. With wrong settings, they are not."""

VALUE_REFUSED = frozenset({1264, 1366, 1406, 3140, 3157, 4025})
"""Errors of an INSERT with a value that its column does not take: out of range, too long, a wrong character, no JSON,
JSON that is nested too deeply."""

LOST = PERHAPS_MISTAKEN | {1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 3032, 4031}
"""Errors of a lost connection, or of a server that is gone or has not started. 3032: MySQL is offline and has closed
all connections except administrators' connections. 4031: it closed this connection, which was idle for too long."""

NOT_REPLICATED = frozenset({3100, 3101})
"""Errors of a COMMIT that the replication group did not accept. The transaction is rolled back on this server. If the
server leaves the group at this moment, it may have sent the transaction before; then the other servers commit it."""

_FULL = {3, 28, 1021, 1026, 1030, 1114, 1467, 1878}
"""1467: there is no space to store the next AUTO_INCREMENT value."""
_READ_ONLY = {1290, 1792, 1836}
_TOO_MANY = {1037, 1038, 1040, 1041, 1135, 1203, 1206, 1226, 1637}
INTERRUPTED, NO_SUCH_THREAD = 1317, 1094
_ENDED = {INTERRUPTED, 1969, 3024}
REFUSED = NOT_REPLICATED | _FULL | _READ_ONLY | _TOO_MANY | _ENDED
"""Errors of a server that cannot run the statement now, and has changed nothing. Its disk is full, it is read-only (a
failover), or it has too many connections or too few resources. Or the statement was killed, or the COMMIT was not
replicated."""


def _code(error: BaseException) -> int:
    """Return the error number; 0 for an error that is not the database's, or has none."""
    code = error.args[0] if isinstance(error, DatabaseError | InterfaceError) and error.args else 0
    return code if isinstance(code, int) else 0


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is lost. Then it is unknown whether a COMMIT in progress took effect."""
    return isinstance(error, InterfaceError) or _code(error) in LOST


def is_in_doubt(error: BaseException) -> bool:
    """Return whether a COMMIT in progress may have taken effect, on this server or on the one replacing it."""
    return is_lost(error) or _code(error) in NOT_REPLICATED


def is_retriable(error: BaseException) -> bool:
    """Return whether repeated work may succeed: after a deadlock, a lock wait timeout, or a changed row (1020)."""
    return _code(error) in RETRIABLE


def retry_reason(error: BaseException) -> str:
    """Return the reason for which the server ended a transaction that is repeated, as one word."""
    return {DEADLOCK: "deadlock", LOCK_WAIT_TIMEOUT: "lock_wait"}.get(_code(error), "changed")


def is_temporary(error: BaseException) -> bool:
    """Return whether a worker may wait and try again, because the error may be temporary."""
    refused = _code(error) in REFUSED
    return refused or is_lost(error) or is_retriable(error)


def is_perhaps_mistaken(error: BaseException) -> bool:
    """Return whether wrong settings may have caused a temporary error."""
    return _code(error) in PERHAPS_MISTAKEN


def is_lock_wait(error: BaseException) -> bool:
    """Return whether a statement failed because it waited too long for a lock."""
    return _code(error) == LOCK_WAIT_TIMEOUT


def is_locked(error: BaseException) -> bool:
    """Return whether a NOWAIT statement found a locked row."""
    return _code(error) in LOCKED


def is_duplicate(error: BaseException) -> bool:
    """Return whether an INSERT found a row with the same unique key."""
    return _code(error) == DUPLICATE_ENTRY


def is_value_refused(error: BaseException) -> bool:
    """Return whether a column does not take a value, so that the same statement never succeeds."""
    return _code(error) in VALUE_REFUSED


def is_null(error: BaseException) -> bool:
    """Return whether a column got NULL. In a publish, its group is not registered, or a gate row is missing."""
    return _code(error) == NULL


def is_savepoint_gone(error: BaseException) -> bool:
    """Return whether the transaction of a savepoint has ended."""
    return _code(error) == NO_SUCH_SAVEPOINT


def is_no_thread(error: BaseException) -> bool:
    """Return whether the connection whose statement was to be killed does not exist."""
    return _code(error) == NO_SUCH_THREAD


def is_interrupted(error: BaseException) -> bool:
    """Return whether another connection has killed the statement."""
    return _code(error) == INTERRUPTED


def is_access_denied(error: BaseException) -> bool:
    """Return whether the server refuses this account."""
    return _code(error) in ACCESS_DENIED


def is_denied(error: BaseException) -> bool:
    """Return whether the account lacks a privilege for the statement."""
    return _code(error) in NO_PRIVILEGE


def is_read_only(error: BaseException) -> bool:
    """Return whether the server or the session refuses all writes."""
    return _code(error) in _READ_ONLY


def is_no_database(error: BaseException) -> bool:
    """Return whether the database does not exist, or the account may not use it."""
    return _code(error) in NO_DATABASE


def is_no_table(error: BaseException) -> bool:
    """Return whether a table does not exist."""
    return _code(error) == NO_TABLE


def is_not_migrated(error: BaseException) -> bool:
    """Return whether a table, a column, an index or a gate row is missing."""
    return _code(error) in NO_GATE | {NO_TABLE, NO_COLUMN, NO_INDEX}
