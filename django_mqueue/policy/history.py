"""What is told of messages by ``django_mqueue.inspect``, and which ones are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from . import names
from .durations import moment_ms
from .matching import PAYLOAD, filter_of

PENDING, IN_FLIGHT, WAITING, DONE, DEAD, SCHEDULED = STATUSES = (
    "pending", "in_flight", "waiting", "done", "dead", "scheduled",
)  # fmt: skip

LIMIT_MAX = 10_000
SLACK_MS = 60_000
"""A search by time believes no times that are less than this apart: statements overtake each other."""


@dataclass(frozen=True)
class FailedAttempt:
    """Why an attempt failed: the error's own line first, then its traceback, cut to 4 KiB."""

    at: datetime
    attempt: int
    by: str
    error: str


class Unreadable(bytes):
    """A payload that cannot be decoded: what is stored."""


@dataclass(frozen=True)
class Cut:
    """The beginning of a payload that is longer than what was asked for. ``is_json``: it is text, else bytes."""

    beginning: bytes
    is_json: bool


@dataclass(frozen=True)
class Inspected:
    """A message as it stands. Times are aware UTC datetimes of the database's clock.

    ``payload`` is ``Unreadable`` bytes where it cannot be decoded, and a ``Cut`` where it is longer than was asked for;
    ``size`` are its bytes as stored. ``target``: the only group that it is for, None for all.
    What follows ``group`` is about that group, where one was asked for: ``status`` is one of ``STATUSES``;
    ``attempts`` were given to a handler, ``failures`` of them failed, ``errors`` are the newest of these, oldest first;
    ``invisible_until``: not delivered (again) before; ``done_at``: when it was done or given up;
    ``dead_letter``: the offset of its letter in the dead-letter topic. ``original_topic``: of a dead letter, the topic
    that the message was published to. ``outcome``: how it ended, one of ``OUTCOMES``; None where it has not.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    kind: str
    payload: Any
    published_at: datetime
    available_at: datetime
    headers: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    group: str | None = None
    status: str | None = None
    attempts: int = 0
    failures: int = 0
    errors: tuple[FailedAttempt, ...] = ()
    delivered_to: str = ""
    delivered_at: datetime | None = None
    invisible_until: datetime | None = None
    done_at: datetime | None = None
    dead_letter: int | None = None
    size: int = 0
    original_topic: str | None = None
    outcome: str | None = None


@dataclass(frozen=True)
class Page:
    """Some of the messages that were asked for; ``next`` is where to go on, None at the end.

    ``scanned``: how many messages and partitions were looked at for it. A page may be empty and have a ``next``.
    """

    messages: list[Inspected]
    next: str | None
    scanned: int

    def __iter__(self) -> Iterator[Inspected]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True)
class Counts:
    """How many messages of a topic stand how with a group. Of the statuses in ``more`` there are at least so many."""

    pending: int
    in_flight: int
    waiting: int
    scheduled: int
    dead: int
    more: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Standing:
    """A registered group. ``subscribers``: names of those that are alive. ``oldest``: the first message, by offset,
    that the group is not done with, and when it was published; None where there is none.

    ``partial``: there are more keys than were looked at.
    """

    group: str
    start: int
    paused: bool
    subscribers: tuple[str, ...]
    oldest: int | None
    oldest_published_at: datetime | None
    partial: bool = False


@dataclass(frozen=True)
class Wanted:
    """Which messages of a topic; all that is given must fit. ``after`` (included) and ``before``: epoch
    milliseconds."""

    topic: str
    group: str | None
    status: str | None
    key: str | None
    id: str | None
    kinds: frozenset[str] | None
    after: int | None
    before: int | None
    test: Callable[[Inspected], bool] | None
    offset: int | None = None

    def fits_time(self, published_at: int) -> bool:
        return (self.after is None or published_at >= self.after) and (
            self.before is None or published_at < self.before
        )

    @property
    def takes_all(self) -> bool:
        """Whether nothing is asked for that only a look at a message tells."""
        return (
            self.status in (None, SCHEDULED)
            and self.id is None
            and self.kinds is None
            and self.test is None
            and self.after is None
            and self.before is None
        )


def wanted(topic: str, given: Mapping[str, Any], paths: Mapping[str, Any], *, topic_limit: int) -> Wanted:
    """Of what users give. Raises ``TypeError`` or ``ValueError`` naming the argument and the way out."""
    names.check_name("topic", topic, topic_limit)
    group, status, key, id = (given[name] for name in ("group", "status", "key", "id"))
    for argument, value, limit in (
        ("group", group, names.GROUP_MAX), ("key", key, names.KEY_MAX), ("id", id, names.ID_MAX),
    ):  # fmt: skip
        if value is not None:
            names.check_name(argument, value, limit)
    offset = given.get("offset")
    if offset is not None and (
        not isinstance(offset, int) or isinstance(offset, bool) or not 0 < offset < 1 << 63
    ):
        raise ValueError(f"offset must be a whole number of 1 or more, not {offset!r}")
    if status is not None and (not isinstance(status, str) or status not in STATUSES):
        raise ValueError(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
    if group is None and status not in (None, SCHEDULED, DEAD):
        raise ValueError(f"status {status!r} is a group's: name the group, too")
    bounds = {name: _moment(name, given[name]) for name in ("after", "before")}
    return Wanted(
        topic, group, status, key, id, _kinds(given["kind"]), bounds["after"], bounds["before"],
        _test(given["filter"], paths), offset,
    )  # fmt: skip


def _moment(argument: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"{argument} must be an aware datetime, not {value!r}")
    return moment_ms(argument, value)


def _kinds(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, (str, Collection)):
        raise TypeError(f"kind must be a str, or a set of them, not {value!r}")
    kinds = frozenset({value} if isinstance(value, str) else value)
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise TypeError(f"kind must be a str, or a set of them, not {value!r}")
    return kinds


def _test(given: Any, paths: Mapping[str, Any]) -> Callable[[Inspected], bool] | None:
    for name in paths:
        if not name.startswith(PAYLOAD):
            raise TypeError(f"unexpected argument {name!r}: a place in the payload begins with {PAYLOAD}")
    tests = [filter_of(given), filter_of(dict(paths) or None)]
    found = [cast("Callable[[Inspected], bool]", test) for test in tests if test is not None]
    # A filter looks at headers and payload alone, which both kinds of message have.
    return (lambda message: all(test(message) for test in found)) if found else None


Position = tuple[Any, ...]


def cursor_of(source: str, position: Position) -> str:
    """``Page.next``: where a walk over a source stands."""
    return json.dumps([source, *position], ensure_ascii=False, separators=(",", ":"))


def position_of(source: str, cursor: Any) -> Position | None:
    """What ``cursor_of`` made the text of. Raises ``ValueError`` for a cursor of another question."""
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        raise TypeError(f"start must be the next of a page, not {cursor!r}")
    try:
        found = json.loads(cursor)
        ok = isinstance(found, list) and found[:1] == [source] and len(found) > 1
    except (ValueError, RecursionError):
        ok = False
    if not ok:
        raise ValueError(f"start must be the next of a page of the same question, not {cursor!r}")
    return tuple(found[1:])


def checked(position: Position, *kinds: type) -> Position:
    """The parts of a position, which are of these kinds. Raises ``ValueError`` for what no page has told."""
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise ValueError(f"start must be the next of a page of the same question, not {list(position)!r}")
    return position
