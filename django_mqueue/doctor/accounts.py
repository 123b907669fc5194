"""Compare the privileges of the account in the settings with docs/how-to/grant-privileges.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..store.connection.session import raises_not_migrated
from ..store.server import tables
from ..store.server.sessions import TABLES
from ..store.server.variables import Server
from .findings import ERROR, INFO, Finding

_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
_LOG, _OFFSETS, _HEARTBEATS = TABLES[0], TABLES[3], TABLES[4]
Needs = Mapping[str, Sequence[str]]

ACCOUNTS: Mapping[str, Needs] = {
    "publisher": {_LOG: ("INSERT",), _OFFSETS: ("SELECT",)},
    "scheduler": {_LOG: _ALL, _OFFSETS: ("SELECT",)},
    "requester": {_LOG: ("SELECT", "INSERT", "DELETE"), _OFFSETS: ("SELECT",)},
    "worker": dict.fromkeys(TABLES, _ALL),
    "viewer": dict.fromkeys(TABLES, ("SELECT",)),
    "operator": {**dict.fromkeys(TABLES, _ALL), _HEARTBEATS: ("SELECT", "DELETE")},
}
"""The privileges of each kind of account, by table."""


def findings(using: str, server: Server, kind: str) -> Iterator[Finding]:
    """Yield findings about privileges that an account of this kind needs and this account lacks."""
    with raises_not_migrated(using):
        missing = tables.missing_privileges(using, ACCOUNTS[kind])
    if missing:
        lacks = "; ".join(f"{', '.join(some)} on {table}" for table, some in missing.items())
        able = [
            name
            for name, needs in ACCOUNTS.items()
            if name != kind and not tables.missing_privileges(using, needs)
        ]
        why = f"An account of the kind {kind} needs them." + (
            f" This account is sufficient for the kind {' or '.join(able)}." if able else ""
        )
        yield Finding(
            ERROR, "privileges", f"the account {server.account} lacks {lacks}", why,
            " ".join(_grant(some, table, server) for table, some in missing.items()),
        )  # fmt: skip
    yield from blockers_privileges(using, server)


def blockers_privileges(using: str, server: Server) -> Iterator[Finding]:
    """Yield a finding about the privileges that ``mqueue blockers`` needs and the account lacks."""
    if lacks := [PLACES[name] for name, can in tables.can_look(using).items() if not can]:
        yield Finding(
            INFO, "privileges",
            f"the account {server.account} lacks {' and '.join(f'{one} on {place}' for one, place in lacks)}",
            "The queue does not need this. mqueue blockers needs it: grant it to the account with which operators run"
            " that command.",
            " ".join(_grant([one], place, server) for one, place in lacks),
        )  # fmt: skip


PLACES = {"PROCESS": ("PROCESS", "*.*"), "performance_schema": ("SELECT", "performance_schema.*")}


def _grant(some: Sequence[str], place: str, server: Server) -> str:
    return f"GRANT {', '.join(some)} ON {place} TO {quoted(server.account)};"


def quoted(account: str) -> str:
    """Return an account as SQL writes it: ``'shop'@'%'``."""
    user, _, host = account.rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (user, host))
