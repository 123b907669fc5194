"""Settings of a user's session, changed for a while."""

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
    """A setting as it was before the first of the uses that go on now, and what these want, the newest last."""

    before: str | None
    wanted: dict[object, str] = field(default_factory=dict)


_lock = threading.Lock()
_changed: dict[tuple[Hashable, str], _Changed] = {}


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """With these settings of the session's; afterwards they are as before.

    Several may go on at once in a session, and end in any order: what one finds may be another's, so that the last to
    end restores what was there before all of them.
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
    """Of the session itself: several objects of Python may stand for it."""
    java: Hashable | None = getattr(spark, "_jsparkSession", None)
    return java if java is not None else str(getattr(spark, "session_id", id(spark)))
