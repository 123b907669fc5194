"""The data of a report: small tables of numbers, and notes about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

ACCURACY = 10_000
"""The accuracy of ``percentile_approx``.

The rank of the value differs from the requested rank by at most 1/10,000 of all ranks, rounded up.
"""

EXACT_BELOW = ACCURACY // 2
"""For fewer times than this, the value has exactly the requested rank.

Spark's summary drops no value, and knows the rank of each, as long as twice their number is below its accuracy. See
``QuantileSummaries`` in Spark, after Greenwald and Khanna 2001.
"""

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Times:
    """Percentiles of ``of`` times, in milliseconds; None if nothing was measured.

    Each percentile is a measured time: the smallest that at least so many of a hundred times do not exceed.
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
    """The numbers of one group in one step of time.

    * ``group``: None if the topic has no group.
    * ``start``: the beginning of the step.
    * ``published``: messages that came into the log, for all groups or for this group.
    * ``finished``: messages that the group handled.
    * ``dead``: messages that became dead letters.
    * ``removed``: messages that a user removed.
    * ``failures``: failed attempts.
    * ``attempts`` and ``most_attempts``: attempts at messages that were finished or became dead in this step: the sum,
      and the maximum for one message.
    * ``retried``: messages that were finished after more than one attempt.
    * ``first_delivery`` and ``ack``: times from publication, for deliveries and ends in this step.
    * ``backlog``: messages that the group was not done with at the end of the step; None if that is not known. One
      cause is a deleted message whose delivery history was archived before the group was done.
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
    """The numbers of one group over the whole time. Columns that are not listed here are as in ``StepFigures``.

    * ``registered``: None if only an archive was read.
    * ``reads_log``: the group reads the log by itself, as a stream or an archive does. It has no deliveries to count.
    * ``targeted``: the part of ``published`` that is for this group alone. If ``reads_log``: for any single group.
    * ``several_deliveries``: messages that were delivered more than once, so that the time of the first delivery is
      unknown.
    * ``errors_not_kept``: failed attempts whose errors were dropped for newer errors.
    * ``in_flight`` and ``waiting`` (for a retry): numbers when the log was read, or when the delivery was archived.
    * ``lag``: messages of the log that the group is not done with now.
    """

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
    """The numbers of one topic over the whole time.

    * ``published``: messages, each once. It includes ``targeted`` and ``sent_back``, but not ``retries`` and
      ``copies``.
    * ``targeted``: messages for one group alone.
    * ``sent_back``: messages that were redriven from the dead letters.
    * ``retries``: parked retries that were moved into the log.
    * ``copies``: copies that gave a group the past.
    * ``keys`` and ``without_key``: the number of distinct keys, and of messages without a key.
    * ``archived_upto``: the archive was read up to this offset.
    * ``live_above`` and ``live_upto``: the live log was read above the first offset, and up to the second.
    """

    topic: str
    published: int = 0
    targeted: int = 0
    sent_back: int = 0
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
    """Failed attempts with the same kind of error.

    * ``error``: the class of an exception (``is_class``). If the text names no class: its beginning, with # for
      numbers.
    * ``example``: the newest line of this kind.
    """

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
