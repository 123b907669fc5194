"""Guards of signals: each signal reports a fact, and receivers delay no other part."""

from __future__ import annotations

from .mutation import Mutation, mutation

_BY_HAND, _WORKERS = "features/signals/test_by_hand.py", "features/signals/test_workers.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "the signal of a publish is sent after the commit",
        "receivers act on a message that is rolled back and never exists",
        "protocol/events.py",
        "transaction.on_commit(send, using=using, robust=True)",
        "send()",
        f"{_BY_HAND}::test_a_publish_is_told_after_its_commit_and_never_when_it_is_rolled_back",
    ),
    mutation(
        "the signal of a settled delivery is sent once",
        "receivers count an atomic handler's ack twice",
        "protocol/consumer_state.py",
        "unsettled = [d for d in deliveries if not d.status.settled_by]",
        "unsettled = list(deliveries)",
        f"{_WORKERS}::test_drain_sends_the_signal_of_an_atomic_ack_once",
    ),
    mutation(
        "receivers of a poll run after its locks are released",
        "a hanging receiver blocks ack and poll in all threads of its subscription, and the leases expire",
        "signals.py",
        "self.events.append(event)",
        "event()",
        f"{_BY_HAND}::test_receivers_of_a_poll_run_with_no_lock_and_no_transaction[lease_won]",
    ),
    mutation(
        "a worker runs receivers in a separate thread",
        "a slow receiver blocks the worker's loop, leases expire, and messages are handled twice",
        "workers/runner.py",
        "Tailer(self.using, self._signals)",
        "Tailer(self.using)",
        f"{_WORKERS}::test_each_outcome_is_told_in_order_in_a_thread_of_its_own",
    ),
    mutation(
        "the queue of events for receivers is limited",
        "a hanging receiver lets events fill the worker's memory until it is killed",
        "workers/signal_dispatcher.py",
        "queue.Queue(SIZE)",
        "queue.Queue()",
        f"{_WORKERS}::test_more_events_than_there_is_room_for_are_dropped_and_counted",
    ),
)
