"""Forced release of leases: another worker can take over if the holder of a lease hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..policy import names
from ..policy.batching import batches
from ..policy.names import check_partition
from ..store import leases, offsets
from ..store.connection import session
from .registration import check_group, topic_limit

LOCK_WAIT_SECONDS = 2.0
"""Seconds for which ``release`` tries to release a lease that a claim or an ack has locked."""

INCARNATION_MAX = 32


@dataclass(frozen=True)
class Released:
    """The result of ``release``.

    ``partitions``: the partitions whose leases are free now. ``locked``: these leases stay, because a transaction of
    their holder kept them locked. ``changed``: these leases were freed or taken by other subscribers meanwhile.
    """

    partitions: tuple[str, ...]
    locked: tuple[str, ...]
    changed: tuple[str, ...]

    def __int__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True)
class Held:
    """A lease that is held. ``owner``: the name of the subscriber. ``holder``: its incarnation."""

    partition: str
    owner: str
    holder: str


def held(
    topic: str,
    group: str,
    *,
    partition: str | None = None,
    subscriber: str | None = None,
    holder: str | None = None,
    using: str | None = None,
) -> list[Held]:
    """Return the leases that ``release`` with the same arguments would release now, sorted by partition.

    Raises the same exceptions.
    """
    alias = _checked(topic, group, partition, subscriber, holder, using)
    with session.migration_errors(alias):
        _registered(alias, topic, group)
        seen = leases.find_held(alias, group, topic, partition, subscriber, holder)
    return [Held(one.partition, one.owner, one.holder) for one in seen]


def release(
    topic: str,
    group: str,
    *,
    partition: str | None = None,
    subscriber: str | None = None,
    holder: str | None = None,
    using: str | None = None,
) -> Released:
    """Release leases as if they had expired: the lease of one partition, or all leases of a subscriber.

    * ``partition``: a key, or the name of a partition of messages without keys.
    * ``subscriber``: the name of a subscriber. Give ``partition``, ``subscriber`` or both.
    * ``holder``: an incarnation. Only leases that it holds are released. None: any incarnation.
    * ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    The holder is fenced. Its open deliveries of these partitions are delivered again at once by the next holder. Its
    handlers may still be running then, at the same time as the new ones. Their acks raise ``StaleDelivery``. A worker
    that is alive may take its partitions again. To prevent this, stop the worker.

    The call finds the leases when it begins. A lease that has another holder meanwhile stays with the new holder. A
    lease that its holder has locked, in an open transaction, stays with it after two seconds. In a transaction of the
    caller the call does not wait for it. Each transaction releases at most 200 leases.

    Returns the partitions that were released, that were locked, and whose leases have changed meanwhile.

    Raises ``NotRegistered``, and ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    alias = _checked(topic, group, partition, subscriber, holder, using)
    with session.migration_errors(alias):
        _registered(alias, topic, group)
        seen = leases.find_held(alias, group, topic, partition, subscriber, holder)
        left, free, changed = list(seen), [], []
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while left:
            for some in batches(left):
                free += _release(alias, some)
            gone = {one.id for one in free}
            still = leases.still(alias, [one for one in left if one.id not in gone])
            changed += [one for one in left if one.id not in gone and one not in still]
            left = still
            if time.monotonic() > deadline or session.in_transaction(alias):
                break
            if left:
                time.sleep(0.05)
    return Released(
        tuple(sorted(one.partition for one in free)),
        tuple(sorted(one.partition for one in left)),
        tuple(sorted(one.partition for one in changed)),
    )


def _release(alias: str, some: Sequence[leases.Seen]) -> list[leases.Seen]:
    def work(cursor: CursorWrapper) -> list[leases.Seen]:
        return leases.set_free(cursor, some)

    return session.run(alias, work)


def _registered(alias: str, topic: str, group: str) -> None:
    if offsets.registration(alias, group, topic) is None:
        raise NotRegistered(topic, group)


def _checked(
    topic: str,
    group: str,
    partition: str | None,
    subscriber: str | None,
    holder: str | None,
    using: str | None,
) -> str:
    """Check the arguments. Return the database alias."""
    names.check_topic(topic, topic_limit())
    check_group(group)
    if partition is None and subscriber is None:
        raise TypeError("release needs a partition or a subscriber, to select the leases: give one of them")
    if partition is not None:
        check_partition(partition)
    if subscriber is not None:
        names.check_name("subscriber", subscriber, names.SUBSCRIBER_MAX)
    if holder is not None:
        names.check_name("holder", holder, INCARNATION_MAX)
    return conf.database(using)
