"""Claim messages: mark those that were chosen from memory as in flight in the database."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from ..exceptions import StaleDelivery
from ..policy.ids import new_token
from ..policy.names import is_one_at_a_time, priority_of
from ..store import delivery_state, leases, moving, offsets
from ..store.connection import errors, session
from ..store.delivery_state import WORKER_DIED, Claim, Receipt
from . import events
from .acknowledging.acknowledger import Acknowledger
from .choosing import Claimable, assume_acked, choose, discard_unclaimed, restore_unacked, undo
from .consumer_state import ConsumerState
from .delivery import Delivery, DeliveryStatus, make_delivery
from .fetching import read_on, refill
from .tailer import Tailer

logger = logging.getLogger("django_mqueue")

UNLIMITED = 1 << 30
RETRY_SOON_MS = 20
"""Milliseconds until the next try for a message that is due in memory but not in the database."""
LOCKED_AGAIN_MS = 250
"""Milliseconds until the next try for a message that another transaction has locked."""


@dataclass
class _Claimed:
    """The result of a claim's transaction: the leases, the offsets that start now, and the claimed messages' rows.

    ``misplaced``: the partitions of claimed messages that memory has in another partition, after a restore.
    """

    leases: leases.LockedLeases
    handed: set[int] = field(default_factory=set)
    rows: list[dict[str, Any]] = field(default_factory=list)
    misplaced: set[str] = field(default_factory=set)


class Claimer:
    """Claims messages for one subscriber. One thread calls it, and holds ``state.lock``."""

    def __init__(self, state: ConsumerState, acknowledger: Acknowledger, tailer: Tailer) -> None:
        self.state, self.acknowledger, self.tailer = state, acknowledger, tailer
        self._unknown_claim: tuple[int, Claimable] | None = None
        """Token and messages of the last claim, if the result of its COMMIT is unknown."""
        self._busy: set[tuple[str, int]] = set()
        """The messages that the last claim skipped because another transaction had locked them."""

    def claim(
        self,
        capacity: int,
        start_now: int,
        most: int = UNLIMITED,
        *,
        acks: Sequence[Delivery] = (),
        starting: Sequence[Delivery] = (),
    ) -> list[Delivery]:
        """Claim up to ``capacity`` messages from all partitions. The first ``start_now`` go to handlers at once.

        With ``batch``, claim up to ``capacity`` batches, with up to ``most`` messages in all. Each batch is from one
        partition, and all of them start at once. Returns an empty list while the group is paused.

        ``acks``: acknowledge these in the same transaction. ``starting``: mark these as handed to handlers. If this
        subscriber no longer owns one of them, nothing is claimed; for ``acks`` this raises ``StaleDelivery``.
        """
        self.undo_unknown_claim()
        state, choice = self.state, Claimable()
        try:
            if not state.paused:
                assume_acked(state, acks)
                state.expire_timers()
                if state.needs_log_read or state.stale_waiting:
                    refill(state)
                if state.options.batch:
                    read_on(state, capacity)
                choice = choose(state, capacity, most)
            return self._claim(choice, start_now, alone=False, acks=acks, starting=starting)
        finally:
            restore_unacked(state, acks)

    def claim_quarantined(self, *, alone: bool) -> list[Delivery]:
        """Claim one quarantined message, or dead-letter it. ``alone``: nothing else runs meanwhile."""
        self.undo_unknown_claim()
        state = self.state
        if state.paused:
            return []
        for name in list(state.quarantined):
            partition = state.partitions.get(name)
            if partition is None or not partition.quarantined:
                state.quarantined.pop(name, None)
                continue
            if partition.leaving:
                continue  # Its next owner puts the messages in quarantine.
            if (state.options.strict or is_one_at_a_time(name)) and partition.in_flight:
                continue  # A subscriber that was not strict left several messages of this key. One of them runs now.
            if partition.free_at > state.clock.now():
                state.quarantined.pop(name)
                state.set_timer(name, partition.free_at)
                continue
            one = min(partition.quarantined, key=lambda s: s.receipt.offset)
            failures = one.failures + one.alone
            got: list[Delivery] = []
            self._busy = set()
            if failures < state.options.max_attempts:
                got = self._claim(Claimable(quarantined=[one]), 1, alone=alone)
                if self.state.paused:
                    return got  # It was not claimed, and stays in quarantine.
            elif (done := self.acknowledger.dead_letter(one.receipt, WORKER_DIED, failures)) is None:
                self._busy = {(name, one.receipt.offset)}
            elif done:
                logger.warning(
                    "message dead-lettered: group %s, topic %s, offset %s, after %s attempts: %s",
                    state.group, state.topic, one.receipt.offset, failures, WORKER_DIED,
                    extra=state.log_fields("dead_lettered", offset=one.receipt.offset, attempt=failures),
                )  # fmt: skip
            if self._busy:
                state.quarantined.pop(name)
                state.set_timer(name, state.clock.now() + LOCKED_AGAIN_MS)
                continue
            if one in partition.quarantined:
                partition.quarantined.remove(one)
            if not partition.quarantined:
                state.quarantined.pop(name, None)
            state.mark_ready(partition)
            if got:
                return got
        return []

    def _claim(
        self,
        choice: Claimable,
        start_now: int,
        *,
        alone: bool,
        acks: Sequence[Delivery] = (),
        starting: Sequence[Delivery] = (),
    ) -> list[Delivery]:
        """Claim the chosen messages that have the same state in the database as in memory.

        After a restore of the database, an offset may belong to a message of another chosen partition. From that
        partition no new message is claimed, and the tailer reads everything again.
        """
        state, options = self.state, self.state.options
        messages = choice.messages()
        if not messages:
            if acks or starting:
                self.acknowledger.ack(acks, starting)
            return []
        claim = Claim(state.group, state.topic, state.holder.name, new_token(), options.visible_ms, alone)

        found: _Claimed | None = None

        def work(cursor: CursorWrapper) -> None:
            nonlocal found
            found = None
            names = sorted({name for name, _ in messages})
            owned = leases.lock_owned(cursor, state.holder, state.registration_generation, names)
            self._busy = set(choice.within(owned.busy).messages())
            allowed = choice.within(owned.locked)
            if allowed.quarantined:
                left = [one.receipt for one in allowed.quarantined]
                free, busy = delivery_state.lock_in_flight(cursor, state.group, state.topic, left)
                allowed.quarantined = [one for one in allowed.quarantined if one.receipt in free]
                self._busy |= {(receipt.partition, receipt.offset) for receipt in busy}
            if allowed.due:
                free_offsets = moving.lock_waiting(cursor, state.group, state.topic, allowed.due)
                self._busy |= {message for message in allowed.due if message[1] not in free_offsets}
                allowed.due = [message for message in allowed.due if message[1] in free_offsets]
            chosen = [offset for _, offset in sorted(allowed.messages(), key=_order)]
            if not chosen:
                found = _Claimed(owned)
                return
            handed = chosen if options.batch else chosen[:start_now]
            if allowed.fresh:
                delivery_state.claim_fresh(cursor, claim, allowed.fresh, handed)
            if allowed.due or allowed.quarantined:
                receipts = [one.receipt for one in allowed.quarantined]
                delivery_state.claim_again(cursor, claim, allowed.due, receipts, handed)
            rows = delivery_state.claimed(cursor, state.group, chosen, claim.token)
            got, expected = _messages_of(rows), set(allowed.messages())
            # These were finished and deleted meanwhile: the INSERT read the message before its deletion.
            gone = [message for message in allowed.fresh if message not in got]
            if misplaced := {name for name, _ in got - expected}:
                again = expected - set(allowed.fresh)
                rows = [row for row in rows if row["partition"] not in misplaced or _message_of(row) in again]
                gone += sorted(got - _messages_of(rows))
            if gone:
                delivery_state.forget_claim(cursor, claim, gone)
            found = _Claimed(owned, set(handed), rows, misplaced)

        try:
            if acks or starting:
                self.acknowledger.ack(acks, starting, then=work)
            else:
                session.run(state.using, work)
        except BaseException as error:  # Also Ctrl-C, before or after the COMMIT.
            undo(state, choice)
            if not isinstance(error, DatabaseError | StaleDelivery) or errors.is_in_doubt(error):
                self._unknown_claim = (claim.token, choice)
            raise
        if found is None or (not (found.leases.locked or found.leases.busy) and self._refresh_paused()):
            undo(state, choice)
            return []
        if found.rows:
            state.clock.set(int(found.rows[-1]["now"]))
            state.payload_bytes = sum(len(row["payload"]) for row in found.rows) / len(found.rows)
        self._note_missing(choice, found.leases, _messages_of(found.rows))
        if found.misplaced:
            self.tailer.note_restored(state.topic, "an offset belongs to another partition")
        # A message of ``handed`` may not have been claimed. No other message starts in its place.
        rows = sorted(found.rows, key=lambda row: _order(_message_of(row)))
        try:
            claimed = [self._delivery(claim, row, int(row["offset"]) in found.handed) for row in rows]
        except BaseException:  # Ctrl-C: the caller gets none of these messages.
            for row in rows:
                state.in_flight.pop(int(row["offset"]), None)
            undo(state, choice)
            self._unknown_claim = (claim.token, choice)
            raise
        return [delivery for delivery in claimed if delivery]

    def _refresh_paused(self) -> bool:
        """Read from the database whether the group is paused or is being reset, and set ``state.paused``."""
        state = self.state
        registration = offsets.registration(state.using, state.group, state.topic)
        state.paused = registration is not None and registration.is_suspended
        return state.paused

    def _delivery(self, claim: Claim, row: dict[str, Any], handed: bool) -> Delivery | None:
        """Return the delivery of a claimed row. If it cannot be decoded, dead-letter it and return None."""
        state, offset = self.state, int(row["offset"])
        receipt, failures = Receipt(row["partition"], offset, claim.token), int(row["failure_count"])
        status = DeliveryStatus(
            self.acknowledger, receipt, int(row["invisible_until"]), failures, claim.alone, handed
        )
        try:
            delivery = make_delivery(row, state.group, state.topic, status)
        except Exception as error:
            self._undecodable(receipt, failures, error)
            return None
        state.in_flight[offset] = delivery
        state.partitions[receipt.partition].in_flight.add(offset)
        return delivery

    def _undecodable(self, receipt: Receipt, failures: int, error: Exception) -> None:
        """Dead-letter a message that cannot be decoded. If that fails, quarantine it, so that it is retried."""
        state, partition = self.state, self.state.partitions[receipt.partition]
        logger.error(
            "message cannot be decoded: topic %s, offset %s: %s", state.topic, receipt.offset, error,
            extra=state.log_fields("undecodable", offset=receipt.offset),
        )  # fmt: skip
        partition.in_flight.discard(receipt.offset)
        done: bool | None = None
        with suppress(DatabaseError):
            done = self.acknowledger.dead_letter(
                receipt, f"the message cannot be decoded: {error}", failures + 1
            )
        if done is None:
            state.quarantine(receipt, False, failures)
        state.mark_ready(partition)

    def _note_missing(self, choice: Claimable, owned: leases.LockedLeases, got: set[tuple[str, int]]) -> None:
        """Correct the consumer state for chosen messages that could not be claimed."""
        state = self.state
        lost = {name for name, _ in choice.messages()} - owned.locked - owned.busy
        if lost:
            events.leases_lost(state, state.drop(lost))
            state.check_leases = True
        locked = Claimable(
            [one for one in choice.due if one in self._busy],
            [one for one in choice.fresh if one in self._busy],
        )
        undo(state, locked, LOCKED_AGAIN_MS)
        soon = state.clock.now() + RETRY_SOON_MS
        for name, offset in choice.messages():
            partition = state.partitions.get(name)
            if partition and (name, offset) not in got | self._busy:
                discard_unclaimed(state, partition, offset)
                state.reread_retries(partition)
                state.set_timer(name, soon)
                state.mark_dirty(name)

    def undo_unknown_claim(self) -> None:
        """Undo the last claim if the result of its COMMIT is unknown. No handler received its messages."""
        if self._unknown_claim:
            token, choice = self._unknown_claim
            receipts = [Receipt(name, offset, token) for name, offset in choice.messages()]
            unclaim = partial(
                delivery_state.unclaim, group=self.state.group, topic=self.state.topic, receipts=receipts
            )
            session.run(self.state.using, unclaim)
            self._unknown_claim = None


def _order(message: tuple[str, int]) -> tuple[int, int]:
    """Sort messages by priority, the highest first, then by offset. A message: its partition and its offset."""
    partition, offset = message
    return -priority_of(partition), offset


def _messages_of(rows: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {_message_of(row) for row in rows}


def _message_of(row: dict[str, Any]) -> tuple[str, int]:
    return row["partition"], int(row["offset"])
