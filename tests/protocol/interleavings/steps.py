"""One side of an interleaving: work in a thread that stops before a step, until the test lets it continue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections

from tests.support.transactions import PATIENCE, Background

Result = TypeVar("Result")

COMMIT = "COMMIT"


class Stopped(Background[Result]):
    """``work()`` that stops before the first statement that contains ``before``, or before its ``COMMIT``.

    ``skip`` is the number of matching steps to pass first. The context manager enters when the work has stopped, and
    exits when it has ended. While it is stopped, it holds its locks.
    """

    def __init__(
        self, work: Callable[[], Result], before: str, *, skip: int = 0, using: str = "default"
    ) -> None:
        super().__init__(work, using=using)
        self._before, self._skip = before, skip
        self._here, self._on = threading.Event(), threading.Event()

    def __enter__(self) -> Stopped[Result]:
        self.start()
        while not self._here.wait(0.02):
            assert not self.is_done, f"it ended without {self._before!r}: {self._error!r}"
        return self

    def __exit__(self, *error: object) -> None:
        self._on.set()
        self.join()

    @property
    def has_gone_on(self) -> bool:
        return self._on.is_set()

    def go(self) -> Result:
        """Continue until the work ends. Return its result, or raise its exception."""
        self.let_go()
        return self.result()

    def let_go(self) -> None:
        """Continue, perhaps into a lock wait. Return at once."""
        self._on.set()

    def _do(self) -> None:
        connection = connections[self.using]
        commit = connection._commit  # type: ignore[attr-defined]

        def stop_at_commit() -> None:
            self._step(COMMIT)
            commit()

        def stop_before(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            self._step(sql)
            return execute(sql, params, many, context)

        connection._commit = stop_at_commit  # type: ignore[attr-defined]
        try:
            with connection.execute_wrapper(stop_before):
                super()._do()
        finally:
            del connection._commit  # type: ignore[attr-defined]

    def _step(self, sql: str) -> None:
        if self._before not in sql or self._here.is_set():
            return
        if self._skip:
            self._skip -= 1
            return
        self._here.set()
        assert self._on.wait(PATIENCE), "nobody let it go on"
