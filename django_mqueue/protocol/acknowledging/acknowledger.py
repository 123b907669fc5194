"""Settle deliveries: ack, nack, reject, postpone.

Each statement compares the delivery token and the lease's holder, so that a former owner changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from django.db import Error
from django.db.backends.utils import CursorWrapper

from ... import conf
from ...exceptions import StaleDelivery
from ...policy import names
from ...policy.durations import to_ms
from ...policy.ids import new_token, uuid7
from ...store import dead_letters, parked_retries
from ...store.acknowledgements import Deliveries, State
from ...store.connection import session
from ...store.delivery_state import Receipt, clip
from ...store.parked_retries import ParkedRetry
from .. import events
from ..consumer_state import ConsumerState
from ..delivery import Consumer, Delivery
from ..events import Settlement
from ..waking import commits
from .after_commit import note_after_commit, note_lost, note_settled
from .extending import extend
from .replying import reply, report_failure
from .transactional import atomically

LONG_MS = 3_600_000
"""Delay in milliseconds above which a retry is parked.

A retry that waits in the log holds back its group's watermark, and so the deletion of all later messages. The default
retention keeps messages for one hour anyway.
"""

Change = Callable[[CursorWrapper, Deliveries], int]


class Acknowledger:
    """Settles the deliveries of one subscriber. Any thread may call it, on a connection of its own."""

    def __init__(self, state: ConsumerState) -> None:
        self.state = state

    atomically = staticmethod(atomically)
    reply = staticmethod(reply)

    def extend(self, deliveries: Sequence[Delivery], seconds: float | timedelta) -> bool:
        return extend(self.state, deliveries, seconds)

    def ack(
        self,
        deliveries: Sequence[Delivery],
        starting: Sequence[Delivery] = (),
        then: Callable[[CursorWrapper], object] | None = None,
    ) -> bool:
        """Acknowledge deliveries in one statement, and mark ``starting`` as handed to handlers.

        Raises ``StaleDelivery`` with the deliveries that this subscriber no longer owns; the others are acknowledged.
        Stale ones of ``starting`` are only marked as lost. ``then``: further work in the same transaction; it is left
        out if a delivery is stale.
        """
        ended = [d for d in deliveries if d.status.settled_by not in ("", "ack")]
        todo = [d for d in deliveries if not d.status.settled_by]
        expected = {d.status.receipt: _acked(d) for d in todo}

        def work(cursor: CursorWrapper) -> set[Receipt]:
            owned, handed = self._of(todo), self._of(starting)
            done = _finish(cursor, owned, todo)
            stale = _not_settled(cursor, owned, done, expected)
            if handed.mark_handed(cursor) < len(starting):
                stale |= set(handed.receipts) - handed.in_flight_receipts(cursor, locking=True)
            _call_then(todo, stale)
            if then and not (stale or ended):
                then(cursor)
            return stale

        stale = session.run(self.state.using, work) if todo or starting or then else set()
        gone = [d for d in todo if d.status.receipt in stale] + ended
        note_after_commit(self.state, [d for d in todo if d.status.receipt not in stale], self.note_ack)
        note_lost(self.state, stale)
        for delivery in starting:
            delivery.status.handed = True
            if delivery.status.receipt in stale:
                delivery.status.lost = True  # Inside a transaction, ``note_lost`` has not marked it.
        if gone:
            raise StaleDelivery(gone, "ack")
        return True

    def ack_all(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge deliveries in the caller's transaction.

        If Django calls commit hooks, the caller has registered a hook that calls ``note_ack``.

        Raises ``StaleDelivery`` if this subscriber no longer owns one. The caller's transaction must then roll back. A
        delivery that an earlier transaction acknowledged is also stale: its effects are already stored.
        """
        ended = [d for d in deliveries if d.status.settled_by not in ("", "ack")]
        todo = [d for d in deliveries if not d.status.settled_by]

        def work(cursor: CursorWrapper) -> set[Receipt]:
            owned = self._of(todo)
            done = _finish(cursor, owned, todo)
            if done == len(todo):
                _call_then(todo)
                return set()
            expected = {d.status.receipt: _acked(d) for d in todo}
            return _not_settled(cursor, owned, done, expected) or set(expected)

        stale = session.run(self.state.using, work) if todo else set[Receipt]()
        note_lost(self.state, stale)
        if gone := [d for d in todo if d.status.receipt in stale] + ended:
            raise StaleDelivery(gone, "ack")
        if self.state.options.eager or not session.calls_hooks(self.state.using):
            note_after_commit(self.state, deliveries, self.note_ack)

    def note_ack(self, deliveries: Sequence[Delivery]) -> None:
        """Update the consumer state for committed acks."""
        note_settled(self.state, deliveries, "ack", settlement=Settlement())

    def reconcile_acks(self, deliveries: Sequence[Delivery]) -> None:
        """Reconcile acks whose commit result is unknown. Do nothing inside a transaction; ignore database errors."""
        if session.in_transaction(self.state.using):
            return
        with suppress(Error):
            there = session.run(self.state.using, self._of(deliveries).states)
            self.note_ack([d for d in deliveries if there.get(d.status.receipt) == _acked(d)])

    def nack(self, delivery: Delivery, delay: float | timedelta, error: str) -> bool:
        """Count a failed attempt. Put the message back, or dead-letter it after the last attempt."""
        to_ms("delay", delay)
        _check_text("error", error)
        if delivery.status.failures + 1 >= self.state.options.max_attempts:
            return self._dead_letter(delivery, "nack", error)
        return self.nack_or_postpone([delivery], delay, error)

    def reject(self, delivery: Delivery, reason: str, *, counted: bool = True) -> bool:
        """Dead-letter a message. ``counted``: this delivery is a failed attempt."""
        _check_text("reason", reason)
        return self._dead_letter(delivery, "reject", reason, counted=counted)

    def nack_or_postpone(
        self, deliveries: Sequence[Delivery], delay: float | timedelta, error: str | None
    ) -> bool:
        """Nack (with ``error``) or postpone deliveries. Raises ``StaleDelivery`` with the stale ones."""
        delay_ms = to_ms("delay", delay)
        verb, settlement = "postpone" if error is None else "nack", Settlement(error, delay_ms)
        if is_parked(self.state, delay_ms):
            park = partial(self._park, delay_ms=delay_ms, error=error)
            return self._settle(deliveries, verb, settlement, park, is_parked=True)

        def change(cursor: CursorWrapper, owned: Deliveries) -> int:
            return owned.put_back(cursor, delay_ms, error)

        return self._settle(deliveries, verb, settlement, change, due_in=delay_ms)

    def _park(self, cursor: CursorWrapper, owned: Deliveries, delay_ms: int, error: str | None) -> int:
        """Finish messages in the log and schedule them again for the group."""
        state, parked = self.state, 0
        for receipt in owned.receipts:
            if Deliveries(state.holder, [receipt]).finish(cursor, error, is_parked=True):
                generation, partition = state.registration_generation, receipt.partition
                what = ParkedRetry(state.group, state.topic, partition, receipt.offset, generation, uuid7())
                parked_retries.park(cursor, what, delay_ms, counted=error is not None)
                parked += 1
        return parked

    def return_unstarted(self, deliveries: Sequence[Delivery]) -> set[Delivery]:
        """Put back deliveries that reached no handler, and count no attempt. Return them; skip locked ones."""
        if not deliveries:
            return set()

        def work(cursor: CursorWrapper) -> Sequence[Receipt]:
            unlocked = self._of(deliveries).lock_unlocked(cursor)
            unlocked.put_back(cursor, 0, None)
            return unlocked.receipts

        unlocked = set(session.run(self.state.using, work))
        returned = [delivery for delivery in deliveries if delivery.status.receipt in unlocked]
        note_after_commit(self.state, returned, partial(self.state.note_settled, verb="postpone", due_in=0))
        return set(returned)

    def settle_unlocked(
        self, deliveries: Sequence[Delivery], settle: Callable[[list[Delivery]], Sequence[Delivery]]
    ) -> tuple[list[Delivery], list[Delivery]]:
        """Call ``settle`` in a transaction for the deliveries that no other transaction has locked.

        A handler that ran too long may keep its delivery locked for ever. ``settle`` returns the deliveries that are
        stale. Returns (locked deliveries, stale deliveries).
        """

        def work(cursor: CursorWrapper) -> tuple[list[Delivery], list[Delivery]]:
            free = self._of(deliveries).lock_unlocked(cursor).receipts
            rest = self._of(d for d in deliveries if d.status.receipt not in free)
            there = rest.states(cursor)
            taken = {receipt for receipt, found in there.items() if found.in_flight}
            busy = rest.in_flight_receipts(cursor, locking=False) & taken if taken else set()
            locked = [d for d in deliveries if d.status.receipt in busy and not d.status.settled_by]
            gone = (set(rest.receipts) - there.keys()) | (taken - busy)
            lost = [d for d in deliveries if d.status.receipt in gone and not d.status.settled_by]
            given = [d for d in deliveries if d not in locked and d not in lost]
            return locked, [*lost, *(settle(given) if given else ())]

        locked, stale = session.run(self.state.using, work)
        note_lost(self.state, {d.status.receipt for d in stale})
        return locked, stale

    def end_quarantine(self, delivery: Delivery) -> bool:
        """Record that a quarantined delivery no longer runs alone. Return False while its row is locked."""
        owned = self._of([delivery])

        def work(cursor: CursorWrapper) -> bool:
            free = owned.lock_unlocked(cursor)
            free.end_quarantine(cursor)
            return bool(free.receipts) or not owned.in_flight_receipts(cursor, locking=False)

        return session.run(self.state.using, work)

    def dead_letter(self, receipt: Receipt, error: str, failures: int) -> bool | None:
        """Dead-letter a message that no handler has, with the number of its failed attempts.

        Return False if this subscriber does not own it, and None while another transaction has the row locked.
        """
        owned = Deliveries(self.state.holder, [receipt])

        def work(cursor: CursorWrapper) -> bool | None:
            if not owned.lock_unlocked(cursor).receipts:
                return None if owned.in_flight_receipts(cursor, locking=False) else False
            done = self._move_to_dead_letters(cursor, owned, error, failures, new_token())
            if done:
                self._after_failure(receipt.offset, is_final=True)
            return bool(done)

        done = session.run(self.state.using, work)
        if done is not None:
            with self.state.lock:
                self.state.mark_dirty(receipt.partition)
        if done:
            events.dead_lettered(self.state, receipt, failures, error)
        return done

    def _dead_letter(self, delivery: Delivery, verb: str, error: str, *, counted: bool = True) -> bool:
        failures = delivery.status.failures + counted
        change = partial(self._move_to_dead_letters, error=error, failures=failures, counted=counted)
        self._settle([delivery], verb, Settlement(error, failures=failures), change, counted=counted)
        delivery.status.dead_lettered = True
        return True

    def _move_to_dead_letters(
        self,
        cursor: CursorWrapper,
        owned: Deliveries,
        error: str,
        failures: int,
        token: int | None = None,
        *,
        counted: bool = True,
    ) -> int:
        """Finish one message for this group and copy it to the dead-letter topic, in one transaction."""
        state, text, offset = self.state, clip(error), owned.receipts[0].offset
        done = owned.finish(cursor, text, token, counted=counted)
        if done:
            dead_topic = conf.dead_letter_topic(state.topic)
            box = dead_letters.copy(cursor, offset, state.group, dead_topic, failures, text)
            commits.wake_after_commit(state.using, dead_topic)
            if box is not None:
                report_failure(cursor, box, offset, state.group, text)
        return done

    def _settle(
        self,
        deliveries: Sequence[Delivery],
        verb: str,
        settlement: Settlement,
        change: Change,
        due_in: int | None = None,
        counted: bool = True,
        is_parked: bool = False,
    ) -> bool:
        """Apply ``change`` to deliveries that are not settled, and update the consumer state.

        ``settlement``: what signals report. ``due_in``: milliseconds until the retry; None if the message is finished
        in the log. ``counted``: an error is a failed attempt. ``is_parked``: ``change`` parks the retries.
        """
        failed = settlement.error is not None
        more = int(failed and counted)
        todo = [d for d in deliveries if not d.status.settled_by]
        expected = {
            d.status.receipt: State(due_in is None, False, d.status.failures + more, is_parked) for d in todo
        }

        def work(cursor: CursorWrapper) -> set[Receipt]:
            owned = self._of(todo)
            stale = _not_settled(cursor, owned, change(cursor, owned), expected)
            for receipt in expected.keys() - stale if failed else ():
                self._after_failure(receipt.offset, is_final=settlement.again_in is None)
            return stale

        stale = session.run(self.state.using, work) if todo else set()
        settled = [d for d in todo if d.status.receipt not in stale]
        note = partial(note_settled, self.state, verb=verb, due_in=due_in, settlement=settlement)
        note_after_commit(self.state, settled, note)
        note_lost(self.state, stale)
        gone = [d for d in deliveries if d.status.receipt in stale or d.status.settled_by not in ("", verb)]
        if gone:
            raise StaleDelivery(gone, verb)
        return True

    def _after_failure(self, offset: int, is_final: bool) -> None:
        if self.state.options.after_failure is not None:
            self.state.options.after_failure(self.state.using, offset, is_final)

    def _of(self, deliveries: Iterable[Delivery]) -> Deliveries:
        return Deliveries(self.state.holder, [d.status.receipt for d in deliveries])


def _acked(delivery: Delivery) -> State:
    """Return the state of the delivery after an ack."""
    return State(True, False, delivery.status.failures)


def _call_then(deliveries: Sequence[Delivery], stale: Collection[Receipt] = ()) -> None:
    """Call ``then`` of each delivery that is not stale, in the transaction of the ack."""
    for delivery in deliveries:
        if delivery.status.then is not None and delivery.status.receipt not in stale:
            delivery.status.then()


def _finish(cursor: CursorWrapper, owned: Deliveries, deliveries: Sequence[Delivery]) -> int:
    """Acknowledge deliveries, with the results that their handlers left. Return how many the holder still had."""
    skipped = [d.offset for d in deliveries if d.status.skipped]
    results = {d.status.receipt: d.status.result for d in deliveries if d.status.result is not None}
    return owned.finish(cursor, skipped=skipped, results=results)


def is_parked(state: Consumer, delay_ms: int) -> bool:
    """Return whether a retry after ``delay_ms`` is parked.

    With ``strict``, the retry must stay in the log, so that it blocks later messages of its key. Messages of
    dead-letter topics, and of topics with a long name, are not parked either.
    """
    kept = state.topic.endswith(conf.dead_letter_suffixes()) or len(state.topic) > names.TOPIC_MAX
    return delay_ms > LONG_MS and not (state.options.strict or kept)


def _not_settled(
    cursor: CursorWrapper, owned: Deliveries, changed: int, expected: Mapping[Receipt, State]
) -> set[Receipt]:
    """Return the receipts that are not settled, by this attempt or by an earlier one whose result is unknown."""
    if changed == len(expected):
        return set()
    there = owned.states(cursor)
    return {receipt for receipt in expected if there.get(receipt) != expected[receipt]}


def _check_text(argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
