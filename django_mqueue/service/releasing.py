"""Release leases by force, so that another worker can take over if the holder of a lease hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..policy import names
from ..policy.batching import batches
from ..store import leases
from ..store.connection import session
from .actions import Author, BulkRecord
from .registration import check_names, require_registration

LOCK_WAIT_SECONDS = 2.0
"""Seconds for which ``release`` tries to release a lease that a claim or an ack has locked."""

INCARNATION_MAX = 32


@dataclass(frozen=True)
class Released:
    """The result of ``release``.

    ``partitions``: their leases are free now. ``locked``: their leases stay, because a transaction of the holder kept
    them locked. ``changed``: other subscribers have freed or taken their leases meanwhile.
    """

    partitions: tuple[str, ...]
    locked: tuple[str, ...]
    changed: tuple[str, ...]

    def __int__(self) -> int:
        return len(self.partitions)


def held(
    topic: str,
    group: str,
    *,
    partition: str | None = None,
    subscriber: str | None = None,
    holder: str | None = None,
    using: str | None = None,
) -> list[leases.LeaseRow]:
    """Return the leases that ``release`` would release now, sorted by partition. Raises the same exceptions."""
    alias = conf.database(using)
    check_names(topic, group)
    if partition is None and subscriber is None:
        raise TypeError("release needs a partition or a subscriber, to select the leases: give one of them")
    if partition is not None:
        names.check_partition(partition)
    if subscriber is not None:
        names.check_name("subscriber", subscriber, names.SUBSCRIBER_MAX)
    if holder is not None:
        names.check_name("holder", holder, INCARNATION_MAX)
    with session.raises_not_migrated(alias):
        require_registration(alias, topic, group)
        return leases.find_held(alias, group, topic, partition, subscriber, holder)


def release(
    topic: str,
    group: str,
    *,
    partition: str | None = None,
    subscriber: str | None = None,
    holder: str | None = None,
    by: str = "",
    why: str = "",
    using: str | None = None,
) -> Released:
    """Release leases as if they had expired: the lease of one partition, or all leases of a subscriber.

    * ``partition``: a key, or the name of a partition of messages without keys.
    * ``subscriber``: the name of a subscriber. Give ``partition``, ``subscriber`` or both.
    * ``holder``: an incarnation. Only leases that it holds are released. None: any incarnation.
    * ``by``, ``why``: the author and the reason, for the record of actions. ``by=""``: this process.
    * ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    The holder is fenced. Its open deliveries of these partitions are delivered again at once by the next holder. Its
    handlers may still be running then, at the same time as the new ones. Their acks raise ``StaleDelivery``. A worker
    that is alive may take its partitions again. To prevent this, stop the worker.

    The call finds the leases when it begins. A lease that has another holder meanwhile stays with the new holder. If
    an open transaction of the holder has locked a lease, the call retries for two seconds, and then leaves it. In a
    transaction of the caller it does not retry. Each transaction releases at most 200 leases.

    Returns the partitions that were released, that were locked, and whose leases have changed meanwhile.

    Raises ``NotRegistered``, and ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    alias = conf.database(using)
    record = BulkRecord(
        Author(by, why), "release", topic, group, "leases",
        partition=partition, subscriber=subscriber, holder=holder,
    )  # fmt: skip
    left = held(topic, group, partition=partition, subscriber=subscriber, holder=holder, using=alias)

    def set_free(cursor: CursorWrapper, some: Sequence[leases.LeaseRow]) -> list[leases.LeaseRow]:
        freed = leases.set_free(cursor, seen=some)
        record.batch(cursor, len(freed))
        return freed

    free: list[leases.LeaseRow] = []
    changed: list[leases.LeaseRow] = []
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    with record.total(alias):
        while left:
            for some in batches(left):
                freed_now = session.run(alias, partial(set_free, some=some))
                record.committed(len(freed_now))
                free += freed_now
            freed = set(free)
            rest = [one for one in left if one not in freed]
            left = leases.unchanged(alias, rest)
            changed += set(rest).difference(left)
            if time.monotonic() > deadline or session.in_transaction(alias):
                break
            if left:
                time.sleep(0.05)
    return Released(_partitions(free), _partitions(left), _partitions(changed))


def _partitions(found: Sequence[leases.LeaseRow]) -> tuple[str, ...]:
    return tuple(sorted(lease.partition for lease in found))
