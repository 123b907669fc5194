"""Answers: ack, nack, reject, postpone, extend. Each is a compare-and-set on the delivery's token and the lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from django.db import Error
from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import StaleDelivery
from ..policy.durations import to_ms
from ..policy.ids import new_token
from ..store import answers, dead, session
from ..store.answers import Deliveries
from ..store.failures import clip
from ..store.state import Ticket, ordered
from . import telling
from .after_commit import after_commit
from .aside import is_long, set_aside
from .context import Context
from .delivery import Delivery
from .extending import extend_beside
from .replying import tell_failure
from .telling import End

WORKER_DIED = "the worker died, or lost its lease, each time it handled this message"
ENDING = ("ack", "nack", "reject", "postpone")


class Answering:
    """The verbs of one subscriber. May be called from any thread; each uses its own database connection."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def ack(
        self, deliveries: Sequence[Delivery], starting: Sequence[Delivery] = (), *, whole: bool = False
    ) -> bool:
        """Finish deliveries, in one statement. ``starting``: claimed ahead, and going to a handler now.

        Raises ``StaleDelivery`` for those that are not this subscriber's any more; the others are finished. ``whole``:
        they are not, for the caller's transaction rolls them back; and one that was finished before, unheard, is stale.
        """
        context = self.context
        todo = [d for d in deliveries if d.hold.answer != "ack"]
        ended = [d for d in todo if d.hold.answer]
        todo = [d for d in todo if not d.hold.answer]

        def work(cursor: CursorWrapper) -> set[Ticket]:
            stale = self._finish(cursor, todo, whole=whole) if todo else set()
            if starting:
                tickets = ordered(d.hold.ticket for d in starting)
                if answers.hand_over(cursor, Deliveries(context.me, tickets)) < len(tickets):
                    stale |= self._not_mine(cursor, tickets)
            return stale

        stale = session.run(context.using, work) if todo or starting else set()
        if whole and (stale or ended):
            raise StaleDelivery([d for d in todo if d.hold.ticket in stale] + ended, "ack")
        after_commit(context, [d for d in todo if d.hold.ticket not in stale], self.note_ack)
        self._lose(stale)
        for delivery in starting:
            delivery.hold.handed = True
        gone = [d for d in todo if d.hold.ticket in stale] + ended
        if gone:
            raise StaleDelivery(gone, "ack")
        return True

    def note_ack(self, deliveries: Sequence[Delivery]) -> None:
        """Memory of an ack that was committed with other things."""
        self._ended(deliveries, "ack", told=End())

    def note_unheard(self, deliveries: Sequence[Delivery]) -> None:
        """Memory of acks whose COMMIT was lost on its way back: what comes behind them waits for them no longer."""
        using, tickets = self.context.using, ordered(d.hold.ticket for d in deliveries)
        if session.in_transaction(using):
            return
        with suppress(Error):
            there = session.run(
                using, lambda cursor: answers.look(cursor, Deliveries(self.context.me, tickets))
            )
            self.note_ack(
                [d for d in deliveries if there.get(d.hold.ticket) == (True, False, d.hold.failures)]
            )

    def nack(self, delivery: Delivery, delay: float | timedelta, error: str) -> bool:
        delay_ms = to_ms("delay", delay)
        _check_text("error", error)
        if self._repeated(delivery, "nack"):
            return True
        failures = delivery.hold.failures + 1
        if failures >= self.context.options.max_attempts:
            return self._give_up(delivery, "nack", error, failures)
        told = End(error, delay_ms)
        if is_long(self.context, delay_ms):
            return self._answer(delivery, "nack", set_aside(self.context, delay_ms, error), failures, told)

        def back(cursor: CursorWrapper, tickets: Sequence[Ticket]) -> int:
            mine = Deliveries(self.context.me, tickets)
            return answers.put_back(cursor, mine, delay_ms=delay_ms, failed=True, error=error)

        return self._answer(delivery, "nack", back, failures, told, due_in=delay_ms)

    def reject(self, delivery: Delivery, reason: str) -> bool:
        _check_text("reason", reason)
        if self._repeated(delivery, "reject"):
            return True
        return self._give_up(delivery, "reject", reason, delivery.hold.failures + 1)

    def postpone(self, delivery: Delivery, delay: float | timedelta) -> bool:
        delay_ms = to_ms("delay", delay)
        if self._repeated(delivery, "postpone"):
            return True
        told = End(None, delay_ms)
        if is_long(self.context, delay_ms):
            aside = set_aside(self.context, delay_ms, None)
            return self._answer(delivery, "postpone", aside, delivery.hold.failures, told)

        def back(cursor: CursorWrapper, tickets: Sequence[Ticket]) -> int:
            return answers.put_back(
                cursor, Deliveries(self.context.me, tickets), delay_ms=delay_ms, failed=False
            )

        return self._answer(delivery, "postpone", back, delivery.hold.failures, told, due_in=delay_ms)

    def extend(self, deliveries: Sequence[Delivery], seconds: float | timedelta) -> bool:
        """Move the moment of redelivery to ``seconds`` from now, for all in one statement.

        Within a caller's transaction it is done beside that one (see ``extending``): at once, and without its locks.
        """
        visible_ms = to_ms("seconds", seconds)
        context = self.context
        todo = [d for d in deliveries if not d.hold.answer]

        def work(cursor: CursorWrapper) -> set[Ticket]:
            tickets = ordered(d.hold.ticket for d in todo)
            moved = answers.extend(cursor, Deliveries(context.me, tickets), visible_ms)
            return set() if moved == len(tickets) else self._not_mine(cursor, tickets)

        if todo and session.in_transaction(context.using) and not context.options.eager:
            stale = extend_beside(context, {d.hold.ticket for d in todo}, visible_ms)
        else:
            stale = session.run(context.using, work) if todo else set()
        for delivery in todo:
            if delivery.hold.ticket not in stale:
                delivery.hold.expires = context.clock.now() + visible_ms
        self._take_back([d for d in todo if d.hold.ticket not in stale])
        self._lose(stale)
        gone = [d for d in deliveries if d.hold.answer or d.hold.ticket in stale]
        if gone:
            raise StaleDelivery(gone, "extend")
        return True

    def crowd_again(self, delivery: Delivery) -> bool:
        """A suspect has run alone long enough: what happens from now on is not its doing.

        Returns False, and changes nothing, while another transaction has it locked.
        """
        mine = Deliveries(self.context.me, [delivery.hold.ticket])

        def work(cursor: CursorWrapper) -> bool:
            if answers.lock_free(cursor, mine):
                answers.end_solitude(cursor, mine)
                return True
            return not answers.mine(cursor, mine, locking=False)

        done = session.run(self.context.using, work)
        if done:
            delivery.hold.alone = False
        return done

    def bury(self, ticket: Ticket, error: str, failures: int) -> bool | None:
        """Dead-letter a message that no handler has; False if it is not this subscriber's to bury.

        Returns None, and changes nothing, while another transaction has it locked.
        """
        mine = Deliveries(self.context.me, [ticket])

        def work(cursor: CursorWrapper) -> bool | None:
            if not answers.lock_free(cursor, mine) and answers.mine(cursor, mine, locking=False):
                return None
            return not self._finish_dead(cursor, ticket, error, failures, new_token())

        buried = session.run(self.context.using, work)
        if buried is None:
            return None
        with self.context.lock:
            self.context.mark_dirty(ticket.partition)
        if buried:
            telling.buried(self.context, ticket, failures, error)
        return buried

    def _give_up(self, delivery: Delivery, verb: str, error: str, failures: int) -> bool:
        def work(cursor: CursorWrapper, tickets: Sequence[Ticket]) -> int:
            return 1 - len(self._finish_dead(cursor, tickets[0], error, failures))

        answered = self._answer(delivery, verb, work, failures, End(error))
        delivery.hold.dead_lettered = True
        return answered

    def _finish_dead(
        self, cursor: CursorWrapper, ticket: Ticket, error: str, failures: int, token: int | None = None
    ) -> set[Ticket]:
        """Done for this group, and a copy into the dead-letter topic: one transaction."""
        context, text = self.context, clip(error)
        if not answers.finish(cursor, Deliveries(context.me, [ticket]), text, token):
            # Finished before: by an ack, or by this with its copy.
            return self._unfinished(cursor, {ticket: failures})
        dead_topic = conf.dead_letter_topic(context.topic)
        letter = dead.copy(cursor, ticket.offset, context.group, dead_topic, failures, text)
        if letter is not None:
            tell_failure(cursor, context.topic, ticket.offset, letter, context.group, text)
        return set()

    def _finish(self, cursor: CursorWrapper, todo: Sequence[Delivery], *, whole: bool) -> set[Ticket]:
        failures = {d.hold.ticket: d.hold.failures for d in todo}
        tickets, skipped = ordered(failures), [d.offset for d in todo if d.hold.skipped]
        done = answers.finish(cursor, Deliveries(self.context.me, tickets), skipped=skipped)
        if done == len(tickets):
            return set()
        stale = self._unfinished(cursor, failures)
        # One that was finished before has its effects: those of this transaction would be there a second time.
        return stale or set(tickets) if whole else stale

    def _unfinished(self, cursor: CursorWrapper, failures: Mapping[Ticket, int]) -> set[Ticket]:
        """Those that were not finished by their token either, in an earlier try that was committed unseen.

        ``failures``: how many each has if it was that. An ack and a rejection at once are told apart by them.
        """
        there = answers.look(cursor, Deliveries(self.context.me, ordered(failures)))
        return {t for t in failures if there.get(t) != (True, False, failures[t])}

    def _answer(
        self,
        delivery: Delivery,
        verb: str,
        change: Callable[[CursorWrapper, Sequence[Ticket]], int],
        failures: int,
        told: End,
        due_in: int | None = None,
    ) -> bool:
        """Run a change of one delivery, which has ``failures`` then, and take note; or raise ``StaleDelivery``.

        ``told``: what receivers of signals are told of it.
        """
        ticket = delivery.hold.ticket

        def work(cursor: CursorWrapper) -> bool:
            if change(cursor, [ticket]):
                return True
            there = answers.look(cursor, Deliveries(self.context.me, [ticket]))
            # Token still ours, and all as this answer leaves it: an earlier try of it was committed unseen.
            return there.get(ticket) == (due_in is None, False, failures)

        if not session.run(self.context.using, work):
            self._lose({ticket})
            raise StaleDelivery([delivery], verb)
        after_commit(self.context, [delivery], partial(self._ended, verb=verb, due_in=due_in, told=told))
        return True

    def _not_mine(self, cursor: CursorWrapper, tickets: Sequence[Ticket]) -> set[Ticket]:
        return set(tickets) - answers.mine(cursor, Deliveries(self.context.me, tickets))

    def _repeated(self, delivery: Delivery, verb: str) -> bool:
        """Whether this very answer was given; raises ``StaleDelivery`` if another one was."""
        if delivery.hold.answer in ("", verb):
            return bool(delivery.hold.answer)
        raise StaleDelivery([delivery], verb)

    def _ended(
        self, deliveries: Sequence[Delivery], verb: str, due_in: int | None = None, told: End | None = None
    ) -> None:
        context = self.context
        with context.lock:
            news = [d for d in deliveries if not d.hold.answer]
            for delivery in deliveries:
                ticket, delivery.hold.answer = delivery.hold.ticket, verb
                context.unconfirmed.pop(ticket, None)
                mine = context.flying.get(ticket.offset)
                if mine is None or mine.hold.ticket.token != ticket.token:
                    continue
                del context.flying[ticket.offset]
                if partition := context.partitions.get(ticket.partition):
                    partition.in_flight.discard(ticket.offset)
                    if due_in is None:
                        partition.uncounted.pop(ticket.offset, None)
                        context.mark_dirty(ticket.partition)
                    else:
                        context.put_back(ticket.partition, ticket.offset, context.clock.now() + due_in)
                    context.touch(partition)
        if told:
            telling.ended(context, news, told)

    def _take_back(self, deliveries: Sequence[Delivery]) -> None:
        """They had run out, and their holder asked for more time before they were delivered again."""
        context = self.context
        with context.lock:
            for delivery in deliveries:
                ticket = delivery.hold.ticket
                partition = context.partitions.get(ticket.partition)
                late = [s for s in partition.suspects if s.ticket == ticket] if partition else []
                if partition and late:
                    partition.suspects.remove(late[0])
                    partition.in_flight.add(ticket.offset)
                    context.flying[ticket.offset] = delivery

    def _lose(self, stale: set[Ticket]) -> None:
        """Forget deliveries that turned out to be another's.

        Not within a transaction of the caller's, for it has rows locked, and whoever has the memory locked may wait for
        them: the next renewal finds out then.
        """
        context = self.context
        if not stale:
            return
        context.doubt = True
        if session.in_transaction(context.using) and not context.options.eager:
            return
        with context.lock:
            for ticket in stale:
                mine = context.flying.get(ticket.offset)
                if mine and mine.hold.ticket == ticket:
                    del context.flying[ticket.offset]
                    mine.hold.lost = True
                    if partition := context.partitions.get(ticket.partition):
                        partition.in_flight.discard(ticket.offset)
                        # Perhaps another thread's answer has ended it, and finds nothing to take note of now.
                        partition.waiting_more = True
                        context.stale_waiting[ticket.partition] = None
                        context.mark_dirty(ticket.partition)
                        context.touch(partition)


def _check_text(argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
