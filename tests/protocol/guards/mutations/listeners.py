"""Guards of signals: each reports a fact, and receivers hold up no other part."""

from __future__ import annotations

from .mutation import Mutation, mutation

_BY_HAND, _WORKERS = "features/signals/test_by_hand.py", "features/signals/test_workers.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "what is published is told after its commit",
        "receivers act on a message that is rolled back then, and that nobody will ever see",
        "protocol/events.py",
        "transaction.on_commit(send, using=using, robust=True)",
        "send()",
        f"{_BY_HAND}::test_a_publish_is_told_after_its_commit_and_never_when_it_is_rolled_back",
    ),
    mutation(
        "an answer is told once",
        "an atomic handler's ack, which two take note of, is counted twice by who listens",
        "protocol/acknowledging/single.py",
        "news = [d for d in deliveries if not d.hold.answer]",
        "news = list(deliveries)",
        f"{_WORKERS}::test_an_atomic_handlers_ack_is_told_once_and_after_its_commit",
    ),
    mutation(
        "receivers of a poll wait until its locks are released",
        "one that hangs keeps all threads of its subscription from acking and polling; the leases run out",
        "protocol/events.py",
        "self._mine.append(event)",
        "event.send()",
        f"{_BY_HAND}::test_receivers_of_a_poll_run_with_no_lock_and_no_transaction[lease_won]",
    ),
    mutation(
        "a worker's receivers run in a thread of their own",
        "one that is slow holds up the worker's loop: answers wait, leases run out, messages are handled twice",
        "workers/runner.py",
        "Tailer(self.using, self._announcer)",
        "Tailer(self.using)",
        f"{_WORKERS}::test_each_outcome_is_told_in_order_in_a_thread_of_its_own",
    ),
    mutation(
        "what waits for slow receivers is bounded",
        "behind a receiver that hangs, events fill the worker's memory until it is killed",
        "workers/signal_dispatcher.py",
        "len(self._events) < SIZE",
        "len(self._events) >= 0",
        f"{_WORKERS}::test_more_events_than_there_is_room_for_are_dropped_and_counted",
    ),
)
