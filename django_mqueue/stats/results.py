"""The statistics of topics and groups in ``django_mqueue.inspect``, and their precision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

EXACT, AT_LEAST, ABOUT = ("exact", "at_least", "about")
ALIVE, SILENT, LEFT = ("alive", "silent", "left")
"""The status of a subscriber. ``SILENT``: it is dead, or sent no heartbeat within the lease
duration. ``LEFT``: it has left the group."""


LATELY = timedelta(minutes=10)
"""The age up to which dead letters count as recent."""


@dataclass(frozen=True)
class Figure:
    """A number of messages.

    ``how``: ``"exact"``, or ``"at_least"``: counting stopped at a limit, so there may be more than ``value``. Only the
    totals of rates can be ``"about"``: computed from a part of the messages.
    """

    value: int
    how: str = EXACT

    def __int__(self) -> int:
        return self.value


def cap_for(subjects: int) -> int:
    """Return the number up to which the messages of each topic or group are counted by default."""
    return max(100, min(1_000, 10_000 // max(subjects, 1)))


def row_cap(subjects: int) -> int:
    """Return the number up to which the rows of each topic or group are counted if a covering index serves the count.

    10,000 rows take 10 to 25 ms. So one topic or a few are counted further than many.
    """
    return max(1_000, min(10_000, 20_000 // max(subjects, 1)))


def capped(count: int, cap: int) -> Figure:
    """Return the figure of a count that stops above ``cap``."""
    return Figure(cap, AT_LEAST) if count > cap else Figure(count)


def total(figures: Iterable[Figure]) -> Figure:
    """Return the sum of figures, as exact as the least exact of them."""
    every = list(figures)
    hows = {one.how for one in every}
    how = next((how for how in (ABOUT, AT_LEAST) if how in hows), EXACT)
    return Figure(sum(one.value for one in every), how)


@dataclass(frozen=True)
class KnownTopic:
    """A topic that has messages, groups, or both.

    ``groups``: the registered groups, by name. If there are none, the topic is not consumed, and its messages are never
    deleted. ``dead_letters_of``: the original topic, for a dead-letter topic that is listed because groups consume it.
    """

    topic: str
    groups: tuple[str, ...]
    dead_letters_of: str | None = None


@dataclass(frozen=True)
class Topics:
    """A page of topics, by name. ``next``: the ``after`` of the next page; None at the end."""

    topics: tuple[KnownTopic, ...]
    next: str | None


@dataclass(frozen=True)
class GroupFigures:
    """The statistics of a group on a topic. ``at``: when they were counted, by the database's clock.

    - ``pending``: messages that were never delivered. ``waiting``: messages that wait for a retry.
    - ``oldest``: the lowest offset of an open message (pending, in flight or waiting); None if there is none.
      ``oldest_published_at`` and ``oldest_age`` are about the same message.
    - ``oldest_is_exact``: False if some keys were not read.
    - ``workers``: the number of live subscribers.
    - ``dead_lately``: dead letters that are not older than ``LATELY``.
    - ``removing``: a reset or an unsubscribe is not finished. The group's previous state is being deleted, nothing is
      delivered to the group, and its messages are not counted.
    - ``reads_log``: the group reads the log directly, and needs no subscriber between two runs.
    - ``running_for``, ``queued_for``, ``usual``, ``quiet_for``: see ``stats.activity.Activity``.
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
    reads_log: bool = False


@dataclass(frozen=True)
class TopicFigures:
    """The statistics of a topic, for all its groups.

    ``kept``: messages in the log, done or not. ``scheduled``: all messages that are not due. ``dead``: dead letters of
    all groups. ``oldest`` and ``newest``: the first and the last offset in the log.
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
    """The number of messages in each step of a time span, oldest first. ``how`` and ``total`` are about all steps."""

    values: tuple[int, ...]
    total: Figure

    @property
    def how(self) -> str:
        return self.total.how


@dataclass(frozen=True)
class Rates:
    """The number of messages in each ``step`` from ``start`` on.

    - ``published``: messages for the group; all messages of the topic if ``group`` is None.
    - ``finished``: done by the group, except ``skipped``. ``skipped``: the handler's filter did not match. Both are
      None if ``group`` is None.
    - ``dead``: dead-lettered by the group; by any group if ``group`` is None.
    - ``published_from``, ``finished_from``: the numbers are complete from this time on.

    Steps begin at whole multiples of their length. The last step is not over: it contains ``at``, the time of the
    count. The numbers include only messages and dead letters that still exist. Older ones may have been deleted after
    their retention, or by a reset. ``published`` is not ``"exact"`` if ``start`` is before ``published_from``, and
    ``finished`` and ``skipped`` are not if it is before ``finished_from``.
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
    """Percentiles of measured times. ``of``: the number of measurements."""

    p50: timedelta
    p95: timedelta
    p99: timedelta
    of: int


def percentiles(values: Iterable[tuple[int, float]]) -> Percentiles | None:
    """Return the percentiles of (milliseconds, weight); None without values.

    For example, p95 is the lowest value with at least 95 % of the weight at or below it.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    cumulative = list(accumulate(weight for _, weight in ordered))

    def rank(fraction: float) -> timedelta:
        number = bisect_left(cumulative, fraction * cumulative[-1] - 1e-9)
        return timedelta(milliseconds=ordered[min(number, len(ordered) - 1)][0])

    return Percentiles(rank(0.50), rank(0.95), rank(0.99), len(ordered))


@dataclass(frozen=True)
class LatencyStep:
    """The latency of messages that a group finished in one step. Percentiles are None without messages.

    ``delivered``: from publish to delivery, for messages that were delivered once. ``done``: from publish to the final
    acknowledgement, for all messages.
    """

    start: datetime
    delivered: Percentiles | None
    done: Percentiles | None


@dataclass(frozen=True)
class Latency:
    """The latency of messages that a group finished recently.

    ``how``: ``"exact"`` if all messages in the log were measured, else ``"about"``. ``whole``: over all steps.
    """

    topic: str
    group: str
    start: datetime
    step: timedelta
    steps: tuple[LatencyStep, ...]
    whole: LatencyStep
    how: str


@dataclass(frozen=True)
class PartitionLag:
    """The lag of a group in one partition. ``key``: None for a partition of messages without a key.

    ``lag``: messages for the group above its watermark ``acked`` that are not done. ``newest``: the last offset.
    ``owner``: the subscriber that holds the lease; '' if it is free. ``owner_renewed_at``: when the lease was last
    renewed. ``moved_at``: when the watermark last moved.
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
    """The lag of a group on a topic.

    ``total``: all messages that are not done. ``partitions``: the partitions with the most lag, in descending order.
    ``behind``: the number of partitions with lag. ``partial``: some partitions were not read. ``removing``: a reset or
    an unsubscribe is not finished, and nothing is counted.
    """

    topic: str
    group: str
    total: Figure
    partitions: tuple[PartitionLag, ...]
    behind: int
    partial: bool
    removing: bool = False


@dataclass(frozen=True)
class Hold:
    """A retention blocker: the reason why the oldest messages of a topic are not deleted.

    - ``reason``: one of ``HOLD_REASONS``.
    - ``group``, ``partition``, ``key``: the group and partition that deletion waits for; None if the reason has none.
    - ``watermark``: the group's watermark in that partition.
    - ``offset``, ``published_at``: the oldest message that the reason keeps.
    - ``overdue``: the time past retention; negative if not yet due.
    - ``since``: when the reason began, if that is known.
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
"""The reasons of a retention blocker:

- ``no_group``: no group is registered.
- ``retention``: the retention is not over.
- ``resetting``: the group's reset is not finished.
- ``paused``: the group is paused.
- ``no_worker``: no subscriber of the group is alive.
- ``waiting``, ``in_flight``, ``pending``: the group's first message that is not done waits for a retry, is with a
  handler, or was not delivered yet.
- ``settling``: all is done, but the watermark has not reached the message. A transaction that publishes may be open.
- ``no_collector``: no subscriber of any group is alive, and subscribers delete messages.
- ``collecting``: the next passes of garbage collection delete the message.
"""


@dataclass(frozen=True)
class SubscriberFigures:
    """A member of a group. ``status``: ``"alive"``, ``"silent"`` or ``"left"``.

    ``partitions``: the number of leases that it holds. ``in_flight``: the messages that it has not settled yet.
    ``busy_since``: when it got the first of them.
    """

    topic: str
    group: str
    name: str
    status: str
    heartbeat_at: datetime
    left_at: datetime | None
    partitions: int
    in_flight: Figure
    busy_since: datetime | None
