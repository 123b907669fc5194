"""Choose from memory which messages to claim next, and undo the choice after a failed claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..policy.names import is_one_at_a_time, priority_of
from .consumer_state import ConsumerState
from .delivery import Delivery
from .partition_state import Partition, QuarantinedDelivery


@dataclass
class Claimable:
    """The messages of one claim: (partition, offset) of due retries and of new messages, or a quarantined one."""

    due: list[tuple[str, int]] = field(default_factory=list)
    fresh: list[tuple[str, int]] = field(default_factory=list)
    quarantined: list[QuarantinedDelivery] = field(default_factory=list)

    def messages(self) -> list[tuple[str, int]]:
        return [*self.due, *self.fresh, *((s.receipt.partition, s.receipt.offset) for s in self.quarantined)]

    def within(self, partitions: set[str]) -> Claimable:
        return Claimable(
            [m for m in self.due if m[0] in partitions],
            [m for m in self.fresh if m[0] in partitions],
            [s for s in self.quarantined if s.receipt.partition in partitions],
        )


def assume_acked(state: ConsumerState, acks: Sequence[Delivery]) -> None:
    """Update the partitions as if these acks were committed. Skip deliveries that are not in flight here."""
    for delivery in acks:
        partition = state.partitions.get(delivery.status.receipt.partition)
        if partition and state.in_flight.get(delivery.offset) is delivery:
            partition.ended(delivery.offset, state.clock.now())
            state.mark_ready(partition)


def restore_unacked(state: ConsumerState, acks: Sequence[Delivery]) -> None:
    """Count the deliveries that are still open as in flight again."""
    for delivery in acks:
        partition = state.partitions.get(delivery.status.receipt.partition)
        if partition and state.in_flight.get(delivery.offset) is delivery:
            partition.in_flight.add(delivery.offset)


def choose(state: ConsumerState, capacity: int, most: int) -> Claimable:
    """Choose messages of ready partitions in turn, those with a higher priority first.

    With ``batch``, choose one batch of each partition that has none in flight. Of the capacity, the handler's
    ``low_priority_share`` is for messages with the lowest priority.
    """
    choice, ready = Claimable(), list(state.ready)
    for_lowest = 0
    if state.has_priorities:
        ready.sort(key=priority_of, reverse=True)
        state.low_priority_credit += min(capacity, most) * state.options.low_priority_share
        for_lowest = int(state.low_priority_credit)
        state.low_priority_credit -= for_lowest
    capacity, most = _choose_from(state, ready, choice, capacity - for_lowest, most - for_lowest)
    if for_lowest:
        lowest = [name for name in reversed(ready) if name in state.ready]
        _choose_from(state, lowest, choice, capacity + for_lowest, most + for_lowest)
    return choice


def _choose_from(
    state: ConsumerState, names: Sequence[str], choice: Claimable, capacity: int, most: int
) -> tuple[int, int]:
    """Add messages of these ready partitions to ``choice``. Return the rest of ``capacity`` and ``most``."""
    now = state.clock.now()
    batch, strict = state.options.batch, state.options.strict and not state.options.batch
    later: list[str] = []
    for name in names:
        if capacity <= 0 or most <= 0:
            break
        del state.ready[name]
        partition = state.partitions.get(name)
        if partition is None or partition.leaving or (batch and partition.in_flight):
            continue
        if partition.free_at > now:
            state.set_timer(name, partition.free_at)
            continue
        if strict and partition.more and not partition.fresh:
            # The log may hold a lower offset than the waiting message: an operator can send a later one to the front.
            state.needs_log_read[name] = None
        if strict and (name in state.stale_waiting or name in state.needs_log_read):
            later.append(name)  # The tables may hold an earlier message than memory does.
            continue
        if strict:
            due, fresh = partition.take_head(now)
        else:
            # The former worker of a quarantined message may still run it.
            permits = 1 - len(partition.quarantined)
            room = permits if is_one_at_a_time(name) else state.options.batch_size
            room = min(room - len(partition.in_flight), most if batch else capacity)
            due, fresh = partition.take(max(room, 0), now)
        choice.due += [(name, offset) for offset in due]
        choice.fresh += [(name, offset) for offset in fresh]
        partition.in_flight.update(due, fresh)
        if taken := len(due) + len(fresh):
            capacity, most = capacity - (1 if batch else taken), most - taken
            state.mark_ready(partition)
        elif (next_due := partition.next_due(strict=strict)) and next_due > now:
            state.set_timer(name, next_due)
    state.ready.update(dict.fromkeys(later))
    return capacity, most


def undo(state: ConsumerState, choice: Claimable, wait_ms: int = 0) -> None:
    """Make the messages of a failed claim available again, now or after ``wait_ms`` milliseconds."""
    for name, offset in [*choice.due, *choice.fresh]:
        if partition := state.partitions.get(name):
            discard_unclaimed(state, partition, offset)
            partition.add_late(offset)
            state.reread_retries(partition)
            if wait_ms:
                state.ready.pop(name, None)
                state.set_timer(name, state.clock.now() + wait_ms)
            else:
                state.mark_ready(partition)


def discard_unclaimed(state: ConsumerState, partition: Partition, offset: int) -> None:
    """Remove an unclaimed message from ``in_flight``, unless a delivery of this subscriber is still open."""
    here = state.in_flight.get(offset)
    if here is None or here.status.receipt.partition != partition.name:
        partition.in_flight.discard(offset)
