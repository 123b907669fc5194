"""Read partitions into memory: the position, deliveries in flight, waiting retries and undelivered messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from django.db.backends.utils import CursorWrapper

from ..policy.batching import PER_STATEMENT, batches
from ..policy.names import pause_of, priority_of
from ..store import delivery_state, log, offsets
from ..store.connection import session
from ..store.delivery_state import Receipt
from .consumer_state import ConsumerState
from .partition_state import READ_AHEAD, READ_MAX, Partition

logger = logging.getLogger("django_mqueue")

WAITING_READ = 50


def load(context: ConsumerState, names: Sequence[str]) -> None:
    """Load partitions that were just leased. If this fails, forget them; the next check of leases loads them."""
    try:
        _load(context, names)
    except BaseException:
        context.drop(names, "")
        context.check_leases = True
        raise


def load_again(context: ConsumerState, names: Sequence[str]) -> None:
    """Read loaded partitions again. Deliveries in flight stay with their handlers."""
    if mine := [name for name in names if name in context.partitions]:
        _load(context, mine)


def _load(context: ConsumerState, names: Sequence[str]) -> None:
    places = offsets.positions(context.using, context.group, context.topic, names, context.start)
    left = delivery_state.in_flight(context.using, context.group, context.topic, names)
    mine = {d.status.receipt: d for d in context.in_flight.values() if d.status.receipt.partition in places}
    pauses = {name: ms for name in names if (ms := pause_of(name))}
    last = delivery_state.last_activities(context.using, context.group, context.topic, list(pauses))
    now = time.monotonic()
    known = set[Receipt]()
    for name in names:
        place, before = places[name], context.partitions.get(name)
        # The last owner may have finished messages above the settled offset, but none above the tail.
        new = Partition(name, place.acked, place.scanned, place.scanned, context.tail, idle_since=now)
        if before:
            # Reading is no activity: a partition that is often read again must still become idle.
            new.idle_since, new.uncounted = before.idle_since, before.uncounted
            new.free_at, new.retried = before.free_at, before.retried
            known.update(one.receipt for one in before.quarantined)
        if pause := pauses.get(name):
            new.pause, new.free_at = pause, max(new.free_at, last[name] + pause)
        context.partitions[name] = new
        context.has_priorities |= bool(priority_of(name))
    news: list[int] = []
    found = [
        (Receipt(name, int(offset), int(token)), handed, bool(alone), int(failures))
        for name, offset, token, handed, alone, failures in left
    ]
    unclaimed = _unclaim(context, [one for one, handed, *_ in found if not handed and one not in mine])
    for receipt, _, alone, failures in found:
        if mine.pop(receipt, None):
            context.partitions[receipt.partition].in_flight.add(receipt.offset)
        elif receipt not in unclaimed:
            context.quarantine(receipt, alone, failures)
            if receipt not in known:
                news.append(receipt.offset)
    if news:
        logger.warning(
            "quarantine: messages in flight when their worker died or lost its lease run alone, one by one:"
            " count %s, group %s, topic %s, offsets %s to %s, new worker %s",
            len(news), context.group, context.topic, min(news), max(news), context.holder.name,
            extra=context.log_fields("quarantine", messages=len(news), offset=min(news)),
        )  # fmt: skip
    for receipt, delivery in mine.items():
        delivery.status.lost = True
        del context.in_flight[receipt.offset]
    read_waiting(context, names)
    read_fresh(context, names)
    for name in names:
        context.mark_dirty(name)


def _unclaim(context: ConsumerState, receipts: Sequence[Receipt]) -> set[Receipt]:
    """Undo claims that a former owner made ahead. No handler had these messages. Skip locked rows.

    Return the receipts of these messages.
    """
    unclaimed = set[Receipt]()

    def work(cursor: CursorWrapper, some: Sequence[Receipt]) -> set[Receipt]:
        free, _ = delivery_state.lock_in_flight(cursor, context.group, context.topic, some)
        if free:
            delivery_state.unclaim(cursor, context.group, context.topic, free)
        return free

    for some in batches(receipts):
        unclaimed |= session.run(context.using, partial(work, some=some))
    return unclaimed


def read_waiting(context: ConsumerState, names: Sequence[str]) -> None:
    """Read the waiting retries of the partitions again, at most ``PER_STATEMENT`` partitions."""
    rows = delivery_state.waiting(
        context.using, context.group, context.topic, names, WAITING_READ, by_offset=context.options.strict
    )
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for name, offset, due in rows:
        found[name].append((int(due), int(offset)))
    for name, items in found.items():
        partition = context.partitions[name]
        context.stale_waiting.pop(name, None)
        partition.replace_retries(items)
        partition.waiting_more = len(items) == WAITING_READ
        cut = partition.waiting_more and not context.options.strict
        partition.horizon = partition.waiting[-1][0] if cut else None
        if partition.waiting:
            context.set_timer(name, partition.waiting[0][0])
            context.ready[name] = None


def read_fresh(context: ConsumerState, names: Sequence[str], ahead: int = READ_AHEAD) -> None:
    """Read the next undelivered messages; with ``strict``, also those committed late below ``read_to``."""
    found: dict[str, list[int]] = {name: [] for name in names}
    strict = context.options.strict
    places = [(name, context.partitions[name]) for name in names]
    positions = [(name, place.scanned if strict else place.read_to) for name, place in places]
    for name, offset in log.first_rows(context.using, context.group, context.topic, positions, ahead):
        found[name].append(offset)
    for name, news in found.items():
        partition = context.partitions[name]
        for offset in news:
            if offset <= partition.read_to:
                partition.add_late(offset)
        partition.add_read(sorted(news), ahead, context.tail)
        context.needs_log_read.pop(name, None)
        if partition.fresh:
            context.ready[name] = None
            partition.idle_since = time.monotonic()


def mark_for_reread(context: ConsumerState) -> None:
    """Mark all retries and watermarks to be read again: an operator may have moved or removed messages."""
    for name in context.partitions:
        context.stale_waiting[name] = None
        context.mark_dirty(name)


def refill(context: ConsumerState) -> None:
    """Refill memory for up to 200 partitions: one statement reads messages, and one reads retries."""
    short = [name for name in list(context.needs_log_read)[:PER_STATEMENT] if name in context.partitions]
    if short:
        read_fresh(context, short, max(READ_AHEAD, READ_MAX // len(short)))
    waiting = [name for name in list(context.stale_waiting)[:PER_STATEMENT] if name in context.partitions]
    if waiting:
        read_waiting(context, waiting)


def read_on(context: ConsumerState, capacity: int) -> None:
    """Read more messages for the next ``capacity`` batches that are not full, in at most one statement."""
    size = context.options.batch_size
    short: list[str] = []
    for name in context.ready:
        partition = context.partitions.get(name)
        if partition and not partition.in_flight and not partition.leaving:
            if partition.more and len(partition.fresh) < size:
                short.append(name)
            if (capacity := capacity - 1) <= 0 or len(short) == PER_STATEMENT:
                break
    if short:
        read_fresh(context, short, size)
