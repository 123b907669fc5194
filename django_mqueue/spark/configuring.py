"""Change settings of a user's Spark session for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_lock = threading.Lock()
_values: dict[tuple[Hashable, str], dict[object, str | None]] = {}
"""For each setting that blocks have changed: the value before them, and the value of each block, the newest last."""


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of the session, and restore them at the end of the block.

    Several blocks may be active in one session, and they may end in any order. A block may find a value that another
    block has set. So only the last block that ends restores the value from before all of them.
    """
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(_set(spark, name, value))
        yield


@contextmanager
def _set(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    key, use = (_identity(spark), name), object()
    with _lock:
        before = _values.get(key) or {None: spark.conf.get(name, None)}
        spark.conf.set(name, value)
        _values[key] = {**before, use: value}
    try:
        yield
    finally:
        with _lock:
            values = _values[key]
            del values[use]
            if len(values) == 1:
                del _values[key]
            newest = next(reversed(values.values()))
            if newest is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, newest)


def _identity(spark: SparkSession) -> Hashable:
    """Return the identity of the session. Several Python objects may refer to one session."""
    java: Hashable | None = getattr(spark, "_jsparkSession", None)
    return java if java is not None else str(getattr(spark, "session_id", id(spark)))
