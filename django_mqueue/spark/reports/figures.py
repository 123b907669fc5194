"""What a report says: small tables of numbers, and what must be known to read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

ACCURACY = 10_000
"""Of ``percentile_approx``: the value given stands at most one in so many of all places (rounded up) beside the one
asked for."""

EXACT_BELOW = ACCURACY // 2
"""Of fewer times it is the very one: Spark's summary drops none of them, and knows the place of each, as long as twice
their number is below its accuracy (``QuantileSummaries``, after Greenwald and Khanna 2001)."""

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Times:
    """Percentiles of ``of`` times, in milliseconds; None where nothing was measured.

    Each is a time that was measured: the smallest that at least so many of a hundred do not exceed.
    """

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    of: int = 0

    @property
    def exact(self) -> bool:
        """Else the value stands up to a ten-thousandth of ``of`` places (rounded up) beside the one asked for."""
        return self.of < EXACT_BELOW


@dataclass(frozen=True)
class StepFigures:
    """What happened to one group (None: the topic has none) in one step of time.

    ``published``: messages that came into the log, for all groups or for this one. ``finished``: handled. ``dead``:
    given up. ``removed``: taken away by hand. ``failures``: failed attempts. ``attempts``: of what was finished or died
    in this step, with the most of one message; ``retried``: finished by more than one. ``first_delivery`` and ``ack``:
    times from publication, of deliveries and ends of this step. ``backlog``: not done at the end of the step; None
    where that is not known, as after a message that was deleted when its history had been archived unfinished.
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
    """One group over the whole time. ``registered``: None where only an archive was read.

    ``reads_log``: it reads the log by itself (a stream, an archive): there is no delivery to count. ``targeted``:
    messages for this group alone, of ``published``; for any group alone where it ``reads_log``.
    ``several_deliveries``: given more than once, so that the first delivery is not known. ``errors_not_kept``: failed
    attempts whose errors were dropped for newer ones. ``in_flight`` and ``waiting`` (for a retry): when it was read,
    or archived. ``lag``: messages of the log that it is not done with, now.
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
    """One topic over the whole time. ``published``: messages, each once: with what was ``targeted`` at one group and
    what was ``sent_back`` from the dead letters, without ``retries`` that came into the log again, and ``copies`` that
    gave a group the past.

    ``archived_upto``: offsets up to here were read in the archive; ``live_above``, ``live_upto``: those behind the
    first and up to the second in the live log. ``keys``: different ones; ``without_key``: messages.
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
    """Failed attempts with one error: an exception's class (``is_class``), or the beginning of a text without one, with
    # for numbers. ``example``: the newest line of its kind."""

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
    """``share``: of all messages of the topic, from 0 to 1."""

    topic: str
    key: str
    published: int
    share: float


@dataclass(frozen=True)
class Report:
    """Times are UTC; a step is an hour or a day (``by``). ``since`` and ``until``: the time that was asked for.

    ``archive`` and ``live``: what was read. ``notes``: what a reader must know of these very numbers.
    """

    at: datetime
    by: str
    since: datetime | None
    until: datetime | None
    archive: str | None
    live: bool
    topics: Sequence[TopicTotals]
    groups: Sequence[GroupTotals]
    steps: Sequence[StepFigures]
    errors: Sequence[ErrorFigures]
    keys: Sequence[KeyFigures]
    notes: Sequence[str] = ()

    def to_json(self) -> str:
        """All of it, as one JSON object."""
        from .files import json_of

        return json_of(self)

    def to_csv(self, folder: str | os.PathLike[str]) -> list[str]:
        """One file for each table, in a folder that is made where it is missing: their names.

        Texts that a spreadsheet would take for a formula begin with an apostrophe.
        """
        from .files import write_csv

        return write_csv(self, folder)

    def to_html(self) -> str:
        """One page, with everything in it: it asks nobody for anything."""
        from .page import page

        return page(self)

    def to_text(self, width: int = 120) -> str:
        """Tables for a terminal of so many columns; without colours."""
        from .tables import text

        return text(self, width)
