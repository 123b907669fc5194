"""The rows of a report. docs/reference/report.md defines the columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

ACCURACY = 10_000
"""The accuracy of ``percentile_approx``.

The rank of the value differs from the requested rank by at most 1/10,000 of all ranks, rounded up.
"""

EXACT_BELOW = ACCURACY // 2
"""For fewer times than this, the value has exactly the requested rank.

Spark keeps each value with its rank while twice the number of values is below the accuracy. See
``QuantileSummaries`` in Spark, after Greenwald and Khanna 2001.
"""

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Times:
    """Percentiles of ``of`` times, in milliseconds; None if nothing was measured.

    Each percentile is a measured time. ``p95`` is the smallest time that at least 95% of the times do not exceed.
    """

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    of: int = 0

    @property
    def exact(self) -> bool:
        """Return whether the percentiles are exact.

        Otherwise the rank of each differs from the requested rank by up to 1/10,000 of ``of``, rounded up.
        """
        return self.of < EXACT_BELOW


@dataclass(frozen=True)
class StepFigures:
    """The numbers of one group in one step of time, which begins at ``start``.

    ``group``: None if the topic has no group. ``backlog``: at the end of the step; None if it is not known.
    """

    topic: str
    group: str | None
    start: datetime
    published: int = 0
    finished: int = 0
    dead: int = 0
    removed: int = 0
    failures: int = 0
    attempts: int = 0
    most_attempts: int = 0
    retried: int = 0
    first_delivery: Times = field(default_factory=Times)
    ack: Times = field(default_factory=Times)
    backlog: int | None = None


@dataclass(frozen=True)
class GroupTotals:
    """The numbers of one group over the whole time. ``registered``: None if only an archive was read."""

    topic: str
    group: str
    registered: bool | None
    reads_log: bool
    published: int = 0
    targeted: int = 0
    finished: int = 0
    dead: int = 0
    removed: int = 0
    failures: int = 0
    errors_not_kept: int = 0
    attempts: int = 0
    most_attempts: int = 0
    retried: int = 0
    first_delivery: Times = field(default_factory=Times)
    several_deliveries: int = 0
    ack: Times = field(default_factory=Times)
    in_flight: int = 0
    waiting: int = 0
    lag: int | None = None


@dataclass(frozen=True)
class TopicTotals:
    """The numbers of one topic over the whole time, and the offsets that were read."""

    topic: str
    published: int = 0
    targeted: int = 0
    redriven: int = 0
    retries: int = 0
    first_published: datetime | None = None
    last_published: datetime | None = None
    keys: int = 0
    without_key: int = 0
    archived_upto: int | None = None
    live_above: int | None = None
    live_upto: int | None = None
    copies: int = 0


@dataclass(frozen=True)
class ErrorFigures:
    """Failed attempts with the same kind of error. ``is_class``: ``error`` is the class of an exception."""

    topic: str
    group: str
    error: str
    is_class: bool
    count: int
    first: datetime
    last: datetime
    example: str


@dataclass(frozen=True)
class KeyFigures:
    """A key with many messages. ``share``: its part of all messages of the topic, from 0 to 1."""

    topic: str
    key: str
    published: int
    share: float


@dataclass(frozen=True)
class ItemFigures:
    """The items of a worklist and a kind that were finished in a week. ``week``: its first day, a Monday in UTC.

    ``share``: the part that a handler has finished, from 0 to 1. ``mean_seconds``: the mean time until the end.
    """

    topic: str
    kind: str
    week: datetime
    finished: int
    by_handler: int
    share: float
    mean_seconds: float
