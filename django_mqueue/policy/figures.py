"""The numbers that ``django_mqueue.inspect`` tells of topics and groups, and how exact each of them is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

EXACT, AT_LEAST, ABOUT = HOW = ("exact", "at_least", "about")
ALIVE, SILENT, LEFT = ("alive", "silent", "left")
"""A subscriber: heard of within its lease; not heard of any more; said good-bye."""


LATELY = timedelta(minutes=10)
"""For how long dead letters count as new."""


@dataclass(frozen=True)
class Figure:
    """A number of messages, and how it was found.

    ``how``: ``"exact"``: ``value`` were counted. ``"at_least"``: so many were counted, and there may be more.
    ``"about"``: estimated from a sample; the truth lies within ``error`` of it 19 times out of 20, as far as the sample
    can tell. ``least``: so many there are for certain.
    """

    value: int
    how: str = EXACT
    error: int = 0
    least: int = 0

    def __int__(self) -> int:
        return self.value


def total(figures: Iterable[Figure]) -> Figure:
    """The sum of some figures, as exact as the least exact of them."""
    every = list(figures)
    hows = {one.how for one in every}
    how = ABOUT if ABOUT in hows else AT_LEAST if AT_LEAST in hows else EXACT
    value, error, least = (sum(getattr(one, name) for one in every) for name in ("value", "error", "least"))
    return Figure(value, how, error, least)


@dataclass(frozen=True)
class KnownTopic:
    """A topic that has messages, groups, or both. ``groups``: the registered ones, by name; none is an alarm: nobody
    consumes it, and nothing of it is ever deleted.

    ``dead_letters_of``: the topic whose dead letters it holds, if it is listed because groups consume these.
    """

    topic: str
    groups: tuple[str, ...]
    dead_letters_of: str | None = None


@dataclass(frozen=True)
class Topics:
    """Some of the topics, by name. ``next``: the ``after`` to go on with; None at the end."""

    topics: tuple[KnownTopic, ...]
    next: str | None


@dataclass(frozen=True)
class GroupFigures:
    """How a group stands with a topic. ``at``: when this was counted, by the database's clock.

    ``pending``: never delivered; ``waiting``: for a retry; ``oldest``: the first message by offset that the group is
    not done with, in flight or not, when it was published and how long that is ago; None where there is none.
    ``oldest_is_exact``: false where there are more keys than were looked at. ``workers``: how many subscribers are
    alive. ``dead_lately``: dead letters of the last ``LATELY``.

    ``removing``: a reset or an unsubscribe is not finished. What the group had done before is being deleted, and
    nothing is delivered to it. Its messages are not counted.

    ``running_for``: how long the handler that has run longest has its message; ``queued_for``: how long a delivered
    message waits for a handler at most; ``usual``: what 95 of 100 messages take from delivery to answer; ``quiet_for``:
    how long ago anything was delivered or done. None where there is none, or nothing is known.
    """

    topic: str
    group: str
    at: datetime
    registered: bool
    paused: bool
    workers: int
    pending: Figure
    in_flight: Figure
    waiting: Figure
    scheduled: Figure
    dead: Figure
    oldest: int | None = None
    oldest_published_at: datetime | None = None
    oldest_age: timedelta | None = None
    oldest_is_exact: bool = True
    dead_lately: Figure = Figure(0)
    running_for: timedelta | None = None
    queued_for: timedelta | None = None
    usual: timedelta | None = None
    quiet_for: timedelta | None = None
    removing: bool = False


@dataclass(frozen=True)
class TopicFigures:
    """What a topic holds, whoever consumes it. ``kept``: messages in the log, done or not; ``scheduled``: all that
    are not due; ``dead``: letters of all groups. ``oldest``, ``newest``: offsets of the first and last message kept.
    """

    topic: str
    at: datetime
    kept: Figure
    scheduled: Figure
    dead: Figure
    oldest: int | None = None
    oldest_published_at: datetime | None = None
    newest: int | None = None
    newest_published_at: datetime | None = None


@dataclass(frozen=True)
class Series:
    """Messages in each step of a time, oldest first. ``how`` and ``total`` are of all steps together."""

    values: tuple[int, ...]
    total: Figure

    @property
    def how(self) -> str:
        return self.total.how


@dataclass(frozen=True)
class Rates:
    """What happened in each ``step`` from ``start`` on: published for the group (or the topic), finished by the group,
    given up by it (by all groups, without one). ``finished`` is None without a group;
    what the handler's filter did not want is in ``skipped`` instead.

    Steps begin at whole multiples of their length; the last one is not over ``at`` the moment of counting. Counted is
    what the log and the dead letters still hold; ``published_from`` and ``finished_from`` tell since when that is all:
    what is older may have been deleted after its retention, or forgotten by a reset. A series that begins before is
    never ``"exact"``.
    """

    topic: str
    group: str | None
    start: datetime
    step: timedelta
    published: Series
    finished: Series | None
    dead: Series
    published_from: datetime | None = None
    finished_from: datetime | None = None
    at: datetime | None = None
    skipped: Series | None = None


@dataclass(frozen=True)
class Percentiles:
    """Of ``of`` measured times."""

    p50: timedelta
    p95: timedelta
    p99: timedelta
    of: int


@dataclass(frozen=True)
class LatencyStep:
    """Messages that a group finished in one step. ``delivered``: from publish to delivery, of those that were delivered
    once; ``done``: from publish to the last answer, of all. None where there were none."""

    start: datetime
    delivered: Percentiles | None
    done: Percentiles | None


@dataclass(frozen=True)
class Latency:
    """How long messages took that a group finished lately. ``how``: ``"exact"`` where all that the log keeps were
    measured, else ``"about"``. ``whole``: over all steps."""

    topic: str
    group: str
    start: datetime
    step: timedelta
    steps: tuple[LatencyStep, ...]
    whole: LatencyStep
    how: str


@dataclass(frozen=True)
class PartitionLag:
    """A partition that a group is behind in. ``key`` is None for a partition of messages without a key.

    ``lag``: messages for the group that it is not done with, above its watermark ``acked``. ``owner``: who holds the
    lease, '' for nobody; ``owner_renewed_at``: when it last said so. ``moved_at``: when the watermark last moved.
    """

    partition: str
    key: str | None
    lag: Figure
    acked: int
    newest: int
    owner: str
    owner_renewed_at: datetime | None
    moved_at: datetime | None


@dataclass(frozen=True)
class Lag:
    """``total``: all messages that the group is not done with. ``partitions``: those with the most, most first;
    ``behind``: how many partitions are behind at all; ``partial``: there are more partitions than were looked at.
    ``removing``: a reset or an unsubscribe is not finished, and nothing is counted."""

    topic: str
    group: str
    total: Figure
    partitions: tuple[PartitionLag, ...]
    behind: int
    partial: bool
    removing: bool = False


@dataclass(frozen=True)
class Hold:
    """Why the oldest messages of a topic are still there.

    ``reason`` is one of ``HOLD_REASONS``; ``group`` and ``partition`` where there is one that deletion waits for;
    ``watermark`` is the group's there. ``offset``, ``published_at``: the oldest message that it holds back;
    ``overdue``: how long its retention is over. ``since``: since when the reason holds, where that is known.
    """

    topic: str
    reason: str
    group: str | None
    partition: str | None
    key: str | None
    watermark: int | None
    offset: int
    published_at: datetime
    overdue: timedelta
    since: datetime | None


HOLD_REASONS = (
    "no_group", "retention", "resetting", "paused", "no_worker", "waiting", "in_flight", "pending", "settling",
    "no_collector", "collecting",
)  # fmt: skip
"""Nobody is registered; it is to be kept longer; the group's reset is not finished; it is paused; nobody of it is
alive; the oldest message waits for a retry; a handler has it; it was not delivered yet; it is done, but the watermark
has not come to it (a transaction that publishes may be open); nobody of any group is alive, and members of groups are
who deletes; it can go, and will with the next passes of deletion."""


@dataclass(frozen=True)
class SubscriberFigures:
    """A member of a group. ``status``: ``"alive"``, ``"silent"`` or ``"left"``. ``partitions``: leases that it holds;
    ``in_flight``: messages that it was given and has not answered, the first of them since ``busy_since``."""

    topic: str
    group: str
    name: str
    status: str
    heartbeat_at: datetime
    left_at: datetime | None
    partitions: int
    in_flight: Figure
    busy_since: datetime | None
