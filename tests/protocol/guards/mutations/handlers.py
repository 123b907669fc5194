"""Guards of handlers: their batches and their time limits."""

from __future__ import annotations

from .mutation import Mutation, mutation

_BATCHES = "features/batch/test_batches.py"
_HANGING = "features/time_limits/test_workers.py"
_SHARING, _TURNS = "features/workers/test_sharing.py", "unit/policy/test_turns.py"
_LOTS = "features/workers/test_lots.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "one batch of a partition runs at a time",
        "later messages of a key are handled together with earlier messages, or before them",
        "protocol/choosing.py",
        "or partition.leaving or (batch and partition.in_flight):",
        "or partition.leaving:",
        f"{_BATCHES}::test_a_batch_that_is_not_full_holds_back_the_next_one_of_its_key",
    ),
    mutation(
        "a batch is marked as handed over as a whole",
        "a batch that kills its worker uses an attempt of its first message only",
        "protocol/claiming.py",
        "handed = chosen if options.batch else chosen[:start_now]",
        "handed = chosen[:start_now]",
        f"{_BATCHES}::test_all_fail_with_what_was_raised_and_come_again_together",
    ),
    mutation(
        "if an atomic batch fails in part, its other messages are delivered again",
        "they count as done although their effects were rolled back",
        "workers/executor.py",
        "dict.fromkeys(given, AGAIN if handler.atomic else ACK)",
        "dict.fromkeys(given, ACK)",
        "features/batch/test_atomic.py::test_of_a_batch_that_fails_in_part_all_is_rolled_back",
    ),
    mutation(
        "each message of a returned batch is a compare-and-set of its own",
        "a worker treats a message as waiting although another worker processes it",
        "protocol/acknowledging/acknowledger.py",
        "{receipt for receipt in expected if there.get(receipt) != expected[receipt]}",
        "{receipt for receipt in expected if not there}",
        "features/batch/test_fencing.py::test_those_that_are_ours_are_put_back_and_the_others_told[nack]",
    ),
    mutation(
        "an overdue atomic handler does not ack",
        "its effects are committed although its attempt counts as failed",
        "protocol/acknowledging/transactional.py",
        "for delivery in deliveries if delivery.status.overdue]",
        "for delivery in deliveries if delivery.status.overdue and delivery.status.lost]",
        f"{_HANGING}::test_an_atomic_handler_that_holds_its_delivery_locked_does_not_hold_up_its_worker",
    ),
    mutation(
        "a worker fails a hanging handler without waiting for its locks",
        "the worker hangs with it and loses all its leases",
        "workers/completer.py",
        "        if alike[0].overdue or subscriber.careful:\n",
        "        if subscriber.careful:\n",
        f"{_HANGING}::test_a_handler_with_open_transactions_of_its_own",
    ),
    mutation(
        "autocommit is on before a commit hook or a retry policy of the user runs",
        "what the driver's own cursors write there is never committed",
        "store/connection/autocommit.py",
        "len(connection.run_on_commit) == own_hooks",
        "own_hooks >= 0",
        f"{_LOTS}::test_code_of_the_user_outside_of_a_transaction_has_autocommit[hook]",
        f"{_LOTS}::test_code_of_the_user_outside_of_a_transaction_has_autocommit[retry policy]",
    ),
    mutation(
        "autocommit is on when a filter runs",
        "what the driver's own cursors write there is never committed",
        "workers/pool.py",
        " or handler.filter is not None or handler.kinds is not None",
        "",
        f"{_LOTS}::test_code_of_the_user_outside_of_a_transaction_has_autocommit[filter]",
        f"{_LOTS}::test_code_of_the_user_outside_of_a_transaction_has_autocommit[kind]",
    ),
    mutation(
        "the first end of a job counts",
        "a handler that ends after its time limit settles the next attempt",
        "workers/handler_calls.py",
        "        if self.ended:\n",
        "        if self.ended and not self.deliveries:\n",
        f"{_HANGING}::test_those_that_end_at_last_do_not_count",
    ),
    mutation(
        "a thread stays free for a handler whose turn it is, even if it has claimed no message",
        "messages that other handlers claimed ahead take every free thread, and batch handlers starve",
        "workers/sharing.py",
        "UNLIMITED if may_claim else lot_count",
        "lot_count",
        f"{_SHARING}::test_a_limited_and_a_batch_handler_beside_a_plain_one_with_a_backlog",
    ),
    mutation(
        "the handler with the least used time starts first",
        "a handler with slow calls takes the threads of all other handlers",
        "workers/turns.py",
        "first = min(able, key=spent.__getitem__)",
        "first = able[0]",
        f"{_TURNS}::test_a_quick_and_a_slow_handler_use_the_same_time",
        f"{_TURNS}::test_more_handlers_than_threads",
    ),
    mutation(
        "a handler that uses less than its share saves at most one turn",
        "when it gets more work, it takes all threads until it has used hours of saved time",
        "workers/turns.py",
        "self._level - self._turn - self.spent(key, running)",
        "-self.spent(key, running)",
        f"{_TURNS}::test_a_handler_that_could_not_use_its_share_has_saved_up_no_more_than_a_turn",
    ),
    mutation(
        "a handler does not rest after an ack that was not joined with a claim",
        "while a quarantined message waits, the worker claims a few messages per poll interval",
        "workers/call_starter.py",
        "        if capacity:\n            self",
        "        if True:\n            self",
        f"{_SHARING}::test_acks_without_a_claim_do_not_delay_the_next_claim",
    ),
    mutation(
        "a new message ends the pause of its handler",
        "a message that arrives just after the last one was settled waits",
        "workers/sharing.py",
        " or subscriber.state.tail > tail",
        "",
        f"{_SHARING}::test_a_new_message_ends_the_rest",
    ),
    mutation(
        "a handler pauses after a claim that got no message",
        "the worker queries a locked group again after each message of other groups",
        "workers/sharing.py",
        "            self.skip_briefly([subscriber])\n",
        "            pass\n",
        f"{_SHARING}::test_a_claim_that_got_nothing_is_not_repeated_at_once",
    ),
    mutation(
        "runconsumer --drain waits for due messages that a transaction has locked",
        "a job that enqueues the next one in its transaction is the last",
        "workers/runner.py",
        "left = self._tailer.locked + sum(",
        "left = sum(",
        "features/workers/test_options.py::test_drain_waits_for_a_due_message_that_a_transaction_has_locked",
    ),
    mutation(
        "runconsumer --drain waits for messages that other workers have leased",
        "it reports no work left while messages of a dead worker are open",
        "workers/runner.py",
        "        return self._has_waited_for(left)\n",
        "        return True\n",
        "features/workers/test_options.py::test_drain_waits_until_a_dead_workers_lease_has_run_out_and_takes_over",
        "features/workers/test_options.py::test_drain_says_what_is_left_after_its_timeout_and_exits_with_3",
    ),
)
