"""Commit deliveries and their effects together: the caller's writes, its publishes and the ack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DatabaseError, connections, transaction

from ...exceptions import BrokenTransaction, StaleDelivery, WrongDatabase
from ...store.connection import errors, session
from ..delivery import Delivery
from .statements import writes


@contextmanager
def atomically(deliveries: Sequence[Delivery]) -> Iterator[None]:
    """Run the block in a transaction of the queue's database, and acknowledge the deliveries at its end.

    All deliveries belong to one subscriber. If the block raises, or a delivery is stale, everything is rolled back. The
    ack is the last statement: no worker can claim a delivery between the ack and the commit.

    Raises ``StaleDelivery`` before the block if a delivery is already settled. Raises it after the block if this
    subscriber no longer owns one, or its handler ran too long. Raises ``BrokenTransaction`` if the block has ended the
    transaction, or if it can only be rolled back. Raises ``WrongDatabase`` at a write to another database.
    """
    if ended := [delivery for delivery in deliveries if delivery.status.settled_by]:
        # A repeated ack succeeds, so the block would commit its effects a second time.
        raise StaleDelivery(ended, "ack")
    acknowledger = deliveries[0].status.acknowledger
    using, acked = acknowledger.state.using, False
    try:
        with session.closes_half_ended(using), transaction.atomic(using=using):
            # Registered before the hooks of the block: if one of those raises, the consumer state is still updated.
            if session.calls_hooks(using):
                transaction.on_commit(
                    lambda: acknowledger.note_ack(deliveries) if acked else None, using=using
                )
            # Commit hooks run at the end of the outer block. They may write to other databases.
            with _writes_to(using), _detect_ended_transaction(), transaction.atomic(using=using):
                yield
                if transaction.get_rollback(using=using):
                    raise BrokenTransaction("a statement in it failed, and it can only be rolled back")
            if overdue := [delivery for delivery in deliveries if delivery.status.overdue]:
                raise StaleDelivery(overdue, "ack")
            acknowledger.ack_all(deliveries)
            acked = True
    except StaleDelivery:
        acknowledger.reconcile_acks(deliveries)
        raise


@contextmanager
def _detect_ended_transaction() -> Iterator[None]:
    """Raise ``BrokenTransaction`` if a deadlock, a COMMIT or an implicit commit ended the block's transaction."""
    try:
        yield
    except DatabaseError as error:
        if not errors.is_savepoint_gone(error):
            raise
        raise BrokenTransaction(
            "it ended before the handler did: by a deadlock error that the handler caught, by a COMMIT or ROLLBACK,"
            " or by a statement that commits implicitly"
        ) from error


@contextmanager
def _writes_to(using: str) -> Iterator[None]:
    """Raise ``WrongDatabase`` before a statement writes to a database other than ``using``."""
    with ExitStack() as stack:
        for alias in connections:
            if alias != using:
                stack.enter_context(connections[alias].execute_wrapper(_refuse_writes(alias, using)))
        yield


def _refuse_writes(alias: str, using: str) -> Callable[..., Any]:
    def refuse(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        text = sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
        if hasattr(sql, "as_string"):  # A query of psycopg: str() is its repr.
            text = sql.as_string(context["connection"].connection)
        if writes(text, mysql=context["connection"].vendor == "mysql"):
            raise WrongDatabase(alias, using)
        return execute(sql, params, many, context)

    return refuse
