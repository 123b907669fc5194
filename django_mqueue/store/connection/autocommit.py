"""Leave out the statements with which Django turns autocommit on and off again between two transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import Error, connections


@contextmanager
def lazy_autocommit(using: str, own_hooks: int = 0) -> Iterator[None]:
    """Turn autocommit on only before the next statement outside a transaction, for this thread's connection.

    Django sends ``SET autocommit`` before and after each transaction. Between two transactions, both statements are
    left out. The client library knows the server's state from the server's last response.

    ``own_hooks``: how many commit hooks of each transaction send no statement. Autocommit is turned on before
    other hooks run. If ``own_hooks`` is not 0, it is also turned on after a rollback, because other code may run then.
    """
    connection: Any = connections[using]
    send = connection._set_autocommit

    def is_on() -> bool:
        with connection.wrap_database_errors:
            return bool(connection.connection.get_autocommit())

    def set_autocommit(autocommit: bool) -> None:
        if autocommit != is_on() and not (autocommit and len(connection.run_on_commit) == own_hooks):
            send(autocommit)

    def turn_on() -> None:
        if connection.connection is not None and connection.autocommit and not is_on():
            send(True)

    def turn_on_first(execute: Callable[..., Any], *arguments: Any) -> Any:
        turn_on()
        return execute(*arguments)

    connection._set_autocommit = set_autocommit
    try:
        with connection.execute_wrapper(turn_on_first):
            yield
    finally:
        del connection._set_autocommit
        with suppress(Error):  # The connection is lost.
            turn_on()
