"""Deliveries and their effects in one commit: the caller's writes, its own publishes, and the ack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, transaction

from ..exceptions import BrokenTransaction, StaleDelivery, WrongDatabase
from ..policy.statements import writes
from ..store import session

if TYPE_CHECKING:
    from .delivery import Delivery

NO_SUCH_SAVEPOINT = 1305


@contextmanager
def atomically(deliveries: Sequence[Delivery]) -> Iterator[None]:
    """Run the block in a transaction of the queue's database, and ack the deliveries (of one holder) in it.

    Nothing of it stays if the block raises, or if one of them is no longer its holder's (``StaleDelivery``; before the
    block, if it has been answered): the ack is the transaction's last statement, and nobody can take a delivery
    between it and the commit.
    Raises ``BrokenTransaction`` if the block has ended the transaction, ``WrongDatabase`` at a write to another one.
    """
    if ended := [delivery for delivery in deliveries if delivery.hold.answer]:
        # Its effects are there, or are not to be: a repeated ack would let the block commit a second time.
        raise StaleDelivery(ended, "atomic")
    answering = deliveries[0].hold.answering
    using = answering.context.using
    acked = False
    try:
        with session.ended_whole(using), _writes_to(using), transaction.atomic(using=using):
            # The first of the hooks: should one of the block's own raise, what is committed is known all the same.
            if session.calls_hooks(using):
                transaction.on_commit(lambda: answering.note_ack(deliveries) if acked else None, using=using)
            with _still_there(), transaction.atomic(using=using):
                yield
                if transaction.get_rollback(using=using):
                    raise BrokenTransaction("something in it failed, and it can only be rolled back")
            if overdue := [delivery for delivery in deliveries if delivery.hold.overdue]:
                raise StaleDelivery(overdue, "ack")
            acked = answering.ack(deliveries, whole=True)
    except StaleDelivery:
        answering.note_unheard(deliveries)
        raise


@contextmanager
def _still_there() -> Iterator[None]:
    """Whether the savepoint that the block within begins with is there at its end: whether it is still one transaction.

    A deadlock rolls all of it back, and a COMMIT (or what commits by itself, such as CREATE TABLE) ends it; what is
    written then belongs to another one. The savepoint is gone in both cases.
    """
    try:
        yield
    except DatabaseError as error:
        if session.error_code(error) != NO_SUCH_SAVEPOINT:
            raise
        raise BrokenTransaction(
            "it was ended before the handler was through: by a deadlock whose error the handler kept to itself, or by a"
            " COMMIT or ROLLBACK, or a statement that commits by itself"
        ) from error


@contextmanager
def _writes_to(using: str) -> Iterator[None]:
    """Refuse writes to all databases but one, before anything is written."""
    with ExitStack() as stack:
        for connection in connections.all():
            if connection.alias != using:
                stack.enter_context(connection.execute_wrapper(_refuse_writes(connection.alias, using)))
        yield


def _refuse_writes(alias: str, using: str) -> Callable[..., Any]:
    def look(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        text = sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
        if writes(text, mysql=context["connection"].vendor == "mysql"):
            raise WrongDatabase(alias, using)
        return execute(sql, params, many, context)

    return look
