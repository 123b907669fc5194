"""The partitions and deliveries of a group, for operators, and the effects of operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..results import Figure


@dataclass(frozen=True)
class PartitionPlace:
    """The position of a group in one partition, and the partition's lease.

    - ``key``: None for a partition of messages without a key.
    - ``lag``: messages for the group that are not done.
    - ``acked``: all messages up to this offset are done. ``scanned``: all up to this offset were delivered.
    - ``moved_at``: when one of these last moved; None if they never moved.
    - ``lease``: ``"held"``, ``"expired"`` or ``"free"``; None if the partition was never leased.
    - ``owner``, ``holder``: the name and the incarnation of the subscriber that holds the lease; '' if it is free.
    - ``leased_at``, ``renewed_at``: when the lease began, and when it was last renewed.
    - ``age``: the time since ``renewed_at``, by the database's clock.
    - ``in_flight``: messages that were delivered and not acknowledged.
    """

    topic: str
    group: str
    partition: str
    key: str | None
    lag: Figure
    acked: int
    scanned: int
    moved_at: datetime | None
    lease: str | None
    owner: str
    holder: str
    leased_at: datetime | None
    renewed_at: datetime | None
    age: timedelta | None
    in_flight: int


@dataclass(frozen=True)
class PartitionPlaces:
    """A page of a group's partitions, by name. ``next``: the ``after`` of the next page; None at the end."""

    partitions: tuple[PartitionPlace, ...]
    next: str | None


@dataclass(frozen=True)
class OpenDelivery:
    """A message in flight: it was delivered to a subscriber and not acknowledged.

    - ``attempt``: the first is 1.
    - ``delivered_to``, ``delivered_at``, ``busy_for``: the subscriber, the time, and how long ago that is.
    - ``started``: a handler has the message. If False, it was claimed ahead and waits for a handler.
    - ``alone``: the message is quarantined: it runs alone, because a worker may have died of it.
    - ``overdue``: it was not settled by ``invisible_until``.
    - ``holder``: the incarnation that holds the partition's lease.
    - ``is_orphan``: the delivery belongs to another incarnation, and can no longer be settled.
    """

    offset: int
    topic: str
    group: str
    partition: str
    key: str | None
    id: str | None
    kind: str | None
    attempt: int
    delivered_to: str
    delivered_at: datetime
    busy_for: timedelta
    invisible_until: datetime
    overdue: bool
    started: bool
    alone: bool
    holder: str
    is_orphan: bool


@dataclass(frozen=True)
class OpenDeliveries:
    """Open deliveries of a group, longest first. ``more``: there may be others."""

    deliveries: tuple[OpenDelivery, ...]
    more: bool


@dataclass(frozen=True)
class Stretch:
    """A set of messages in the log: the number, and the first and the last message with their publish times.

    If ``count`` is ``"at_least"``, there may be messages before the first and after the last.
    """

    count: Figure
    first: int | None = None
    first_published_at: datetime | None = None
    last: int | None = None
    last_published_at: datetime | None = None


@dataclass(frozen=True)
class ResetPreview:
    """The effect that ``reset`` would have on a group, at the time ``at``.

    - ``start``: the messages up to this offset would count as done.
    - ``begins_at``: when the first message after ``start`` was published; None if there is none.
    - ``newest``: the last offset in the log; None if the log is empty.
    - ``replayed``: messages that are done, and would be delivered again.
    - ``skipped``: messages that are not done, and would no longer be delivered.
    - ``coming``: messages that are not done, and would be delivered with fresh attempts.
    - ``in_flight``: open deliveries, which could no longer be settled.
    - ``waiting``: messages that wait for a retry.
    - ``dead``: the group's dead letters, which stay.
    - ``running``: names of the live subscribers.
    - ``life``: the registration generation. It changes with every reset.
    """

    topic: str
    group: str
    at: datetime
    start: int
    begins_at: datetime | None
    newest: int | None
    replayed: Stretch
    skipped: Stretch
    coming: Stretch
    in_flight: Figure
    waiting: Figure
    dead: Figure
    running: Sequence[str]
    paused: bool
    life: int
