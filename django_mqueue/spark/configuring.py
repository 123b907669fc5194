"""Change settings of a user's Spark session for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Changed:
    """A setting that blocks have changed and not restored yet.

    ``before``: the value before the first of these blocks. ``wanted``: the value that each block has set, the newest
    last.
    """

    before: str | None
    wanted: dict[object, str] = field(default_factory=dict)


_lock = threading.Lock()
_changed: dict[tuple[Hashable, str], _Changed] = {}


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
        if key not in _changed:
            before = spark.conf.get(name, None)
            spark.conf.set(name, value)
            _changed[key] = _Changed(before)
        else:
            spark.conf.set(name, value)
        _changed[key].wanted[use] = value
    try:
        yield
    finally:
        with _lock:
            one = _changed[key]
            del one.wanted[use]
            if not one.wanted:
                del _changed[key]
            wanted = next(reversed(one.wanted.values()), one.before)
            if wanted is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, wanted)


def _identity(spark: SparkSession) -> Hashable:
    """Return the identity of the session. Several Python objects may refer to one session."""
    java: Hashable | None = getattr(spark, "_jsparkSession", None)
    return java if java is not None else str(getattr(spark, "session_id", id(spark)))
