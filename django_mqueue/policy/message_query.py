"""Queries of messages in ``django_mqueue.inspect``."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import names
from .durations import moment_ms
from .filters import PAYLOAD, filter_of

PENDING, IN_FLIGHT, WAITING, DONE, DEAD, SCHEDULED = STATUSES = (
    "pending", "in_flight", "waiting", "done", "dead", "scheduled",
)  # fmt: skip

LIMIT_MAX = 10_000
OFFSET_MAX = (1 << 63) - 1
"""The highest offset. It is also above any time in milliseconds."""
SLACK_MS = 60_000
"""Tolerance of a search by time, in milliseconds: rows of the log that are close in time may be out of order."""


def status_of(row: Mapping[str, Any], done_to: int) -> str:
    """Return the status of a row of the log for a group. ``done_to``: the group's position in the row's partition."""
    if row["acked"] is None and int(row["offset"]) > done_to:
        return PENDING  # Also after a reset, even if an earlier dead letter of the message exists.
    if row["acked"] is None or row["acked"]:
        return DONE if row["dead_letter"] is None else DEAD
    return IN_FLIGHT if row["in_flight"] else WAITING


@dataclass(frozen=True)
class MessageQuery:
    """A query of messages. All filters must match. ``after`` (included), ``before`` (not): epoch milliseconds."""

    topic: str
    group: str | None
    status: str | None
    key: str | None
    id: str | None
    kinds: frozenset[str] | None
    after: int | None
    before: int | None
    test: Callable[[Any], bool] | None
    offset: int | None = None

    def fits_time(self, published_at: int) -> bool:
        return (self.after is None or published_at >= self.after) and (
            self.before is None or published_at < self.before
        )

    @property
    def takes_all(self) -> bool:
        """Return whether a search keeps every message that it reads."""
        filters = (self.id, self.kinds, self.test, self.after, self.before)
        return self.status in (None, SCHEDULED) and all(each is None for each in filters)


FILTERS = ("group", "status", "key", "id", "offset", "kind", "after", "before", "filter")


def message_query(topic: str, filters: Mapping[str, Any]) -> MessageQuery:
    """Return the query for a user's filters by name: ``FILTERS``, and paths that begin with ``payload__``.

    Raises ``TypeError`` or ``ValueError`` that names the argument and the correction.
    """
    names.check_name("topic", topic, names.LONG_TOPIC_MAX)
    given = {name: filters.get(name) for name in FILTERS}
    paths = {name: value for name, value in filters.items() if name not in FILTERS}
    group, status, key, id, offset = (given[name] for name in FILTERS[:5])
    for argument, value, limit in (
        ("group", group, names.GROUP_MAX), ("key", key, names.KEY_MAX), ("id", id, names.ID_MAX),
    ):  # fmt: skip
        if value is not None:
            names.check_name(argument, value, limit)
    if offset is not None and (
        not isinstance(offset, int) or isinstance(offset, bool) or not 0 < offset <= OFFSET_MAX
    ):
        raise ValueError(f"offset must be a whole number from 1 to {OFFSET_MAX}, not {offset!r}")
    if status is not None and (not isinstance(status, str) or status not in STATUSES):
        raise ValueError(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
    if group is None and status not in (None, SCHEDULED, DEAD):
        raise ValueError(f"status {status!r} applies to one group: also give group")
    after, before = (
        None if given[name] is None else moment_ms(name, given[name]) for name in ("after", "before")
    )
    kinds, test = _kinds(given["kind"]), _test(given["filter"], paths)
    return MessageQuery(topic, group, status, key, id, kinds, after, before, test, offset)


def _kinds(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    kinds = [value] if isinstance(value, str) else value
    if not isinstance(kinds, Collection) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise TypeError(f"kind must be a str, or a set of them, not {value!r}")
    return frozenset(kinds)


def _test(given: Any, paths: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    for name in paths:
        if not name.startswith(PAYLOAD):
            raise TypeError(f"unexpected argument {name!r}: a path in the payload begins with {PAYLOAD}")
    tests = [filter_of(given), filter_of(dict(paths) or None)]
    found = [test for test in tests if test is not None]
    # A filter reads only headers and payload, which ``Message`` and ``Inspected`` both have.
    return (lambda message: all(test(message) for test in found)) if found else None


Position = tuple[Any, ...]
_WRONG_START = "start must be the value of next on a page of the same query, not {!r}"


def cursor_of(source: str, position: Position) -> str:
    """Return a cursor for ``Page.next``: the position of a search in a source."""
    return json.dumps([source, *position], ensure_ascii=False, separators=(",", ":"))


def position_of(source: str, cursor: Any) -> Position | None:
    """Return the position of a cursor; None for None. Raises ``ValueError`` or ``TypeError`` for other values."""
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        raise TypeError(f"start must be the value of next on a page, not {cursor!r}")
    with suppress(ValueError, RecursionError):
        found = json.loads(cursor)
        if isinstance(found, list) and found[:1] == [source] and len(found) > 1:
            return tuple(found[1:])
    raise ValueError(_WRONG_START.format(cursor))


def check_position(position: Position, *kinds: type) -> Position:
    """Return the position if its parts have these types. Raises ``ValueError`` if a cursor was not made by a page."""
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise ValueError(_WRONG_START.format(list(position)))
    return position
