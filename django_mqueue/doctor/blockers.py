"""Connections that block the queue: waiting statements, and open transactions that published or locked rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar

from django.db import DatabaseError

from ..stats import topic_list
from ..store import gates
from ..store.connection import errors
from ..store.connection.session_variables import lock_waits_of_a_second
from ..store.server import sessions
from ..store.server import variables as reading
from ..store.server.sessions import OpenTransaction, Session
from . import accounts, variables
from .findings import Finding

Result = TypeVar("Result")


class Wait(NamedTuple):
    """A statement that waits. ``blocking``: None if the server does not say which connection blocks it.

    ``place``: the table, and the index entry or the lock that it waits for.
    """

    waiting: Session
    blocking: Session | None
    waits_for: timedelta
    place: str


class Transaction(NamedTuple):
    """An open transaction. ``changed``, ``locked``: numbers of rows, of all tables.

    ``published``: whether it has published; None if the server does not say so.

    ``topics``: known topics whose messages cannot be settled before it ends.
    """

    session: Session
    open_for: timedelta
    changed: int
    locked: int
    published: bool | None
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blockers:
    """The result of ``find``.

    ``waits``: the longest first. ``transactions``: the oldest first. ``missing``: why the answer is incomplete.
    """

    waits: list[Wait]
    transactions: list[Transaction]
    missing: list[Finding]

    @property
    def blocking(self) -> list[Session]:
        """Return connections that block others, then those with open transactions; none that waits itself."""
        waiting = {one.waiting.id for one in self.waits}
        found = {one.blocking.id: one.blocking for one in self.waits if one.blocking is not None}
        found |= {one.session.id: one.session for one in self.transactions}
        return [one for one in found.values() if one.id not in waiting]


def find(using: str, *, older_than: timedelta = timedelta(0)) -> Blockers:
    """Return the waits, and the transactions that have been open for ``older_than`` and may block.

    These have published, or are idle and hold row locks: workers retry such locks after pauses, so their waits are not
    always visible. On MariaDB, the rows may be in other tables. ``missing`` names what the account may not see. The
    function waits up to a second for a lock.
    """
    with lock_waits_of_a_second(using):
        return _find(using, older_than)


def _find(using: str, older_than: timedelta) -> Blockers:
    server = reading.read(using)
    missing = [*accounts.blockers_privileges(using, server), *variables.performance_schema(server)]
    lock_waits = _allowed(lambda: sessions.lock_waits(using)) or ()
    transactions = _allowed(lambda: sessions.open_transactions(using)) or ()
    # Read after the waits and transactions, so that their new sessions are included.
    known = _Known(sessions.sessions(using))
    metadata = _allowed(lambda: sessions.metadata_blockers(using))
    waits = [
        Wait(
            known[one.waiting], known[one.blocking] if one.blocking else None, timedelta(seconds=one.seconds),
            f"{one.table}.{one.index_name} ({one.record})" if one.index_name else one.table,
        )
        for one in lock_waits
    ]  # fmt: skip
    waits += _metadata_waits(known, metadata)
    waits.sort(key=lambda one: -one.waits_for)
    return Blockers(waits, _transactions(using, known, transactions, older_than), missing)


class _Known(dict[int, Session]):
    """The sessions by id. The account may not see all."""

    def __missing__(self, id: int) -> Session:
        return Session(id, "", "", "", 0, "", "")


def _allowed(read: Callable[[], Result]) -> Result | None:
    """Return what ``read`` returns; None if the account lacks a privilege for it, or it would wait for a lock."""
    try:
        return read()
    except DatabaseError as error:
        if errors.is_denied(error) or errors.is_lock_wait(error):
            return None
        raise


def _metadata_waits(known: _Known, blockers: Mapping[int, list[tuple[int, str]]] | None) -> list[Wait]:
    """Return the statements that wait for a metadata lock, because they or another statement change a table."""
    found = []
    for one in known.values():
        if one.state != sessions.METADATA_WAIT:
            continue
        waits_for, holders = timedelta(seconds=one.seconds), (blockers or {}).get(one.id, [])
        found += [Wait(one, known[id], waits_for, f"{table} (its definition)") for id, table in holders]
        if not holders and (tables := [table for table in sessions.TABLES if table in one.statement]):
            found.append(Wait(one, None, waits_for, f"{tables[0]} (its definition)"))
    return found


def _transactions(
    using: str, known: _Known, transactions: Iterable[OpenTransaction], older_than: timedelta
) -> list[Transaction]:
    held = _allowed(lambda: sessions.gates_held(using))
    names = (_allowed(lambda: topic_list.known_topics(using)) if held else None) or {}
    found = []
    for one in transactions:
        if one.session not in known:
            continue  # It has ended: an account that sees transactions sees all sessions.
        session = known[one.session]
        its_gates = None if held is None else held.get(one.session, set())
        # A transaction that has published has changed at least one row.
        published = None if its_gates is None else bool(its_gates and one.changed)
        has_locked = bool(one.locked) if held is None else one.session in held
        # Shorter pauses are normal: a worker's session is idle for milliseconds between two statements.
        blocks = has_locked and session.command == "Sleep" and session.seconds >= 1
        may_have_published = bool(one.changed) if published is None else published
        if not (may_have_published or blocks) or timedelta(seconds=one.seconds) < older_than:
            continue
        topics = tuple(name for name in sorted(names) if gates.gate_of(name) in (its_gates or ()))
        found.append(
            Transaction(session, timedelta(seconds=one.seconds), one.changed, one.locked, published, topics)
        )
    return found


def effect_of_kill(one: Session) -> str:
    """Return what happens when the connection is killed."""
    lost = "Its transaction is rolled back: its changes, and messages that it published, are gone."
    if one.program.startswith("worker"):
        return f"{lost} The worker connects again, and messages that it handled in the transaction are delivered again."
    return f"{lost} Its program gets an error (2006 or 2013) at its next statement."
