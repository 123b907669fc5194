"""Read partitions into memory: the position, deliveries in flight, waiting retries and undelivered messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from django.db.backends.utils import CursorWrapper

from ..policy.batching import PER_STATEMENT, batches
from ..policy.names import pause_of, priority_of
from ..store import delivery_state, log, positions
from ..store.connection import session
from ..store.delivery_state import Receipt
from .consumer_state import ConsumerState
from .partition_state import READ_AHEAD, READ_MAX, Partition

logger = logging.getLogger("django_mqueue")

WAITING_READ = 50


def load(state: ConsumerState, names: Sequence[str]) -> None:
    """Load partitions that were just leased. If this fails, forget them; the next check of leases loads them."""
    try:
        _load(state, names)
    except BaseException:
        state.drop(names)
        state.check_leases = True
        raise


def load_again(state: ConsumerState, names: Sequence[str]) -> None:
    """Read loaded partitions again. Deliveries in flight stay with their handlers."""
    if loaded := [name for name in names if name in state.partitions]:
        _load(state, loaded)


def _load(state: ConsumerState, names: Sequence[str]) -> None:
    stored = positions.positions(state.using, state.group, state.topic, names, state.start)
    left = delivery_state.in_flight(state.using, state.group, state.topic, names)
    deliveries = {
        d.status.receipt: d for d in state.in_flight.values() if d.status.receipt.partition in stored
    }
    pauses = {name: ms for name in names if (ms := pause_of(name))}
    last = delivery_state.last_activities(state.using, state.group, state.topic, list(pauses))
    now = time.monotonic()
    known = set[Receipt]()
    for name in names:
        position, before = stored[name], state.partitions.get(name)
        # The last owner may have finished messages above the settled offset, but none above the tail.
        new = Partition(name, position.acked, position.scanned, position.scanned, state.tail, idle_since=now)
        if before:
            # Reading is no activity: a partition that is often read again must still become idle.
            new.idle_since, new.uncounted = before.idle_since, before.uncounted
            new.free_at, new.retried = before.free_at, before.retried
            known.update(one.receipt for one in before.quarantined)
        if pause := pauses.get(name):
            new.pause, new.free_at = pause, max(new.free_at, last[name] + pause)
        state.partitions[name] = new
        state.has_priorities |= bool(priority_of(name))
    quarantined: list[int] = []
    found = [
        (Receipt(name, int(offset), int(token)), handed, bool(alone), int(failures))
        for name, offset, token, handed, alone, failures in left
    ]
    unclaimed = _unclaim(state, [one for one, handed, *_ in found if not handed and one not in deliveries])
    for receipt, _, alone, failures in found:
        if deliveries.pop(receipt, None):
            state.partitions[receipt.partition].in_flight.add(receipt.offset)
        elif receipt not in unclaimed:
            state.quarantine(receipt, alone, failures)
            if receipt not in known:
                quarantined.append(receipt.offset)
    if quarantined:
        logger.warning(
            "quarantine: messages in flight when their worker died or lost its lease run alone, one by one:"
            " count %s, group %s, topic %s, offsets %s to %s, new worker %s",
            len(quarantined), state.group, state.topic, min(quarantined), max(quarantined), state.holder.name,
            extra=state.log_fields("quarantine", messages=len(quarantined), offset=min(quarantined)),
        )  # fmt: skip
    for receipt, delivery in deliveries.items():
        delivery.status.lost = True
        del state.in_flight[receipt.offset]
    read_waiting(state, names)
    read_fresh(state, names)
    for name in names:
        state.mark_dirty(name)


def _unclaim(state: ConsumerState, receipts: Sequence[Receipt]) -> set[Receipt]:
    """Undo claims that a former owner made ahead. No handler had these messages. Skip locked rows.

    Return the receipts of these messages.
    """
    unclaimed = set[Receipt]()

    def work(cursor: CursorWrapper, some: Sequence[Receipt]) -> set[Receipt]:
        free, _ = delivery_state.lock_in_flight(cursor, state.group, state.topic, some)
        if free:
            delivery_state.unclaim(cursor, state.group, state.topic, free)
        return free

    for some in batches(receipts):
        unclaimed |= session.run(state.using, partial(work, some=some))
    return unclaimed


def read_waiting(state: ConsumerState, names: Sequence[str]) -> None:
    """Read the waiting retries of the partitions again, at most ``PER_STATEMENT`` partitions."""
    rows = delivery_state.waiting(
        state.using, state.group, state.topic, names, WAITING_READ, by_offset=state.options.strict
    )
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for name, offset, due in rows:
        found[name].append((int(due), int(offset)))
    for name, items in found.items():
        partition = state.partitions[name]
        state.stale_waiting.pop(name, None)
        partition.replace_retries(items)
        partition.waiting_more = len(items) == WAITING_READ
        cut = partition.waiting_more and not state.options.strict
        partition.horizon = partition.waiting[-1][0] if cut else None
        if partition.waiting:
            state.set_timer(name, partition.waiting[0][0])
            state.ready[name] = None


def read_fresh(state: ConsumerState, names: Sequence[str], ahead: int = READ_AHEAD) -> None:
    """Read the next undelivered messages; with ``strict``, also those committed late below ``read_to``."""
    found: dict[str, list[int]] = {name: [] for name in names}
    strict = state.options.strict
    partitions = [(name, state.partitions[name]) for name in names]
    above = [(name, one.scanned if strict else one.read_to) for name, one in partitions]
    for name, offset in log.first_rows(state.using, state.group, state.topic, above, ahead):
        found[name].append(offset)
    for name, offsets_read in found.items():
        partition = state.partitions[name]
        for offset in offsets_read:
            if offset <= partition.read_to:
                partition.add_late(offset)
        partition.add_read(sorted(offsets_read), ahead, state.tail)
        state.needs_log_read.pop(name, None)
        if partition.fresh:
            state.ready[name] = None
            partition.idle_since = time.monotonic()


def mark_for_reread(state: ConsumerState) -> None:
    """Mark all retries and watermarks to be read again: an operator may have moved or removed messages."""
    for name in state.partitions:
        state.stale_waiting[name] = None
        state.mark_dirty(name)


def refill(state: ConsumerState) -> None:
    """Refill memory for up to 200 partitions: one statement reads messages, and one reads retries."""
    short = [name for name in list(state.needs_log_read)[:PER_STATEMENT] if name in state.partitions]
    if short:
        read_fresh(state, short, max(READ_AHEAD, READ_MAX // len(short)))
    waiting = [name for name in list(state.stale_waiting)[:PER_STATEMENT] if name in state.partitions]
    if waiting:
        read_waiting(state, waiting)


def read_on(state: ConsumerState, capacity: int) -> None:
    """Fill the batches of the next ``capacity`` ready partitions from the log, in at most one statement."""
    size = state.options.batch_size
    short: list[str] = []
    for name in state.ready:
        partition = state.partitions.get(name)
        if partition and not partition.in_flight and not partition.leaving:
            if partition.more and len(partition.fresh) < size:
                short.append(name)
            if (capacity := capacity - 1) <= 0 or len(short) == PER_STATEMENT:
                break
    if short:
        read_fresh(state, short, size)
