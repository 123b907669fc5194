"""Leases that are taken from their holders by hand: others go on where those hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..policy import names
from ..policy.places import Released, check_partition
from ..store import leases, offsets, session
from .loading import batches
from .registration import check_group, topic_limit

PATIENCE = 2.0
"""Seconds that a lease may be locked, by a claim or an answer under way, before it is left alone."""

INCARNATION_MAX = 32


@dataclass(frozen=True)
class Held:
    """A lease that somebody holds."""

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
    """What ``release`` with the same arguments would set free now, by partition."""
    alias = _checked(topic, group, partition, subscriber, holder, using)
    with session.explained(alias):
        _registered(alias, topic, group)
        seen = leases.whose(alias, group, topic, partition, subscriber, holder)
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
    """Take leases from their holder and set them free, as if they had run out: one partition's, or all of a subscriber.

    The holder is fenced. What it was given of these partitions is delivered again, at once, by whoever takes them next;
    its handlers that run now may run beside that, and their answers are refused (``StaleDelivery``). A worker that is
    alive may take its partitions again: to be rid of it, stop it.

    ``partition`` is a key, or the name of one of the partitions of messages without a key. ``holder``: only what this
    incarnation holds; without it, who holds the lease at the beginning of the call. Who comes to hold one meanwhile is
    left alone. A lease that its holder has locked, in a transaction that goes on, is left to it after two seconds;
    inside a transaction of the caller at once. Each 200 are one transaction.

    Raises ``NotRegistered``, and ``TypeError`` or ``ValueError`` for what nobody can be called.
    """
    alias = _checked(topic, group, partition, subscriber, holder, using)
    with session.explained(alias):
        _registered(alias, topic, group)
        seen = leases.whose(alias, group, topic, partition, subscriber, holder)
        left, free, changed = list(seen), [], []
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
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
                pause.wait(0.05)
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
    """The database's alias, if the names can be some."""
    names.check_topic(topic, topic_limit())
    check_group(group)
    if partition is None and subscriber is None:
        raise TypeError("release needs a partition or a subscriber: whose leases are meant?")
    if partition is not None:
        check_partition(partition)
    if subscriber is not None:
        names.check_name("subscriber", subscriber, names.SUBSCRIBER_MAX)
    if holder is not None:
        names.check_name("holder", holder, INCARNATION_MAX)
    return conf.database(using)
