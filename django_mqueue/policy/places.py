"""What operators are shown of a group's partitions and workers, and of what an operation would do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from .figures import Figure
from .names import KEY_MAX, check_name, key_of

HELD, EXPIRED, FREE = LEASE_STATES = ("held", "expired", "free")


@dataclass(frozen=True)
class PartitionPlace:
    """Where a group stands in one partition, and who works on it.

    ``key`` is None for a partition of messages without a key. ``lag``: messages for the group that it is not done
    with. ``acked``, ``scanned``: all up to there is done, all up to there has been delivered. ``moved_at``: when either
    last moved; None if they never did.

    ``lease``: ``"held"``, ``"expired"``, ``"free"``, or None where nobody ever leased it. ``owner``, ``holder``: the
    name and the incarnation of who holds it, '' for nobody; ``leased_at``, ``renewed_at``: since when, and when it last
    said so. ``age`` is how long ``renewed_at`` is ago by the database's clock. ``in_flight``: messages that were
    delivered from it and not answered.
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
    """Some partitions of a group, by name. ``next``: the ``after`` to go on with; None at the end."""

    partitions: tuple[PartitionPlace, ...]
    next: str | None


@dataclass(frozen=True)
class OpenDelivery:
    """A message that somebody was given and has not answered.

    ``attempt``: the first is 1. ``delivered_to``, ``delivered_at``: who was given it, and when, ``busy_for`` long ago.
    ``started``: a handler has it; else it was claimed ahead and waits for one. ``alone``: nothing runs beside it, for a
    worker may have died of it. ``overdue``: it should have been answered by ``invisible_until``. ``holder``: the
    incarnation that the partition's lease names; a delivery that is another's is not answered any more, and
    ``is_orphan``.
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
    """Some of a group's open deliveries, the longest first. ``more``: there may be others."""

    deliveries: tuple[OpenDelivery, ...]
    more: bool


@dataclass(frozen=True)
class Released:
    """What came of ``release``.

    ``partitions``: whose leases are free now. ``locked``: those that a transaction of their holder's kept locked for so
    long that they were left to it. ``changed``: others have them meanwhile, or nobody.
    """

    partitions: tuple[str, ...]
    locked: tuple[str, ...]
    changed: tuple[str, ...]

    def __int__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True)
class Stretch:
    """Some messages of the log: how many, and the first and the last of them with their times of publication.

    Where ``count`` is ``"about"``, there may be others before the first and after the last.
    """

    count: Figure
    first: int | None = None
    first_published_at: datetime | None = None
    last: int | None = None
    last_published_at: datetime | None = None


@dataclass(frozen=True)
class ResetPreview:
    """What ``reset`` would do to a group, as of ``at``.

    ``start``: the offset up to which the group would count as done; ``begins_at``: when the first message after it
    was published, None for the end. ``newest``: the offset of the last message in the log, None where it is empty.
    ``replayed``: messages that it is done with and would be given again. ``skipped``: those that it is not done with
    and would not be given any more. ``coming``: those that it is not done with and would be given all the same, with
    fresh attempts. ``in_flight``: open deliveries, whose answers would be refused.
    ``waiting``: for a retry. ``dead``: the group's dead letters, which stay. ``running``: its subscribers that are
    alive. ``life`` changes with every reset.
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


def check_partition(value: object) -> str:
    """``value`` if it can name a partition: a key, or one of those of messages without a key."""
    if isinstance(value, str) and key_of(value) is None:
        check_name("partition", value[1:], KEY_MAX)
        return value
    return check_name("partition", value, KEY_MAX)
