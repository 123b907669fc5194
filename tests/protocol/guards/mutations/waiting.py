"""Guards against long waits: locks and outages that workers wait for, and partitions that they leave to others."""

from __future__ import annotations

from .mutation import Mutation, mutation

_LOCKS = "features/publish/test_held_locks.py"
_NOBODY, _ACKS = (
    "protocol/hostile/test_open_transactions.py",
    "features/workers/test_acks_beside_the_loop.py",
)
_HELD, _SENT = "protocol/hostile/test_held_rows.py", "protocol/hostile/test_statements_of_the_loop.py"
_NO_STATEMENT = f"{_SENT}::test_no_statement_of_the_loop_waits_for_a_row_that_a_caller_may_have_locked"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "garbage collection finds each row by its primary key",
        "it locks the whole log and waits for every open publisher, and its worker loses its leases",
        "store/garbage.py",
        'f"DELETE m FROM {doomed} STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON',
        'f"DELETE m FROM {doomed} STRAIGHT_JOIN queue_messages m IGNORE INDEX (PRIMARY) ON',
        f"{_NOBODY}::test_all_that_a_worker_does_beside_an_open_transaction_with_messages_in_every_partition[20]",
    ),
    mutation(
        "garbage collection skips rows that another transaction has locked",
        "it waits for an application that published a duplicate id and keeps its transaction open",
        "protocol/retention/garbage_collection.py",
        "free = garbage.lock_unlocked(cursor, ripe) if ripe else set()",
        "free = set(ripe)",
        "protocol/interleavings/test_publishing.py::TestDuplicatesAndDeletion"
        "::test_a_collection_waits_for_no_publisher_who_was_told_of_a_duplicate[READ COMMITTED-publish]",
    ),
    mutation(
        "a claim leaves no delivery state for a message that is deleted at that moment",
        "the state stays forever, and each later owner of the partition quarantines a message that does not"
        " exist",
        "protocol/claiming.py",
        "delivery_state.forget_claim(cursor, claim, gone)",
        "gone.clear()",
        "protocol/fencing/test_claims_of_deleted_messages.py::test_it_leaves_no_state_behind",
    ),
    mutation(
        "a worker does not take back partitions that it has released for others",
        "under steady traffic it takes them back at once, and shares never become fair",
        "protocol/membership.py",
        "self._known.update(dict.fromkeys(left, time.monotonic()))",
        "self._known.update({})",
        "protocol/guards/test_moving.py::test_what_was_left_to_others_is_not_taken_back_with_its_next_message",
    ),
    mutation(
        "a worker that takes leases skips locked rows",
        "a worker that hangs in a transaction blocks all others when its leases expire, and they lose their"
        " leases",
        "store/leases.py",
        "LIMIT {most:d} FOR UPDATE SKIP LOCKED",
        "LIMIT {most:d} FOR UPDATE",
        "protocol/interleavings/test_claims.py::test_a_theft_does_not_wait_for_the_claim_of_a_retry",
    ),
    mutation(
        "a new lease locks no neighbouring lease",
        "if an old row is not purged yet, a neighbour's ack in an open transaction blocks the worker, which"
        " loses its leases",
        "store/leases.py",
        'AND l.topic = %s AND l.partition_key = p.partition_key)",\n',
        'AND l.topic = %s AND l.partition_key = p.partition_key)"\n'
        '            " ON DUPLICATE KEY UPDATE leased_at = queue_partition_leases.leased_at",\n',
        f"{_NOBODY}::test_a_lease_beside_one_whose_delivery_is_acked_in_an_open_transaction",
    ),
    mutation(
        "a lease renewal skips locked rows",
        "an ack in a transaction that stays open costs its worker all leases",
        "store/leases.py",
        "AND holder = %s FOR UPDATE SKIP LOCKED",
        "AND holder = %s FOR UPDATE",
        "protocol/interleavings/test_leases.py::test_a_renewal_does_not_wait_for_an_answer_in_an_open_transaction",
    ),
    mutation(
        "a claim skips a registration that is locked",
        "a caller's open transaction with a pause, reset or unsubscribe of one group stops all groups of a"
        " process",
        "store/connection/dialect.py",
        """return f"{'LOCK IN SHARE MODE' if is_mariadb(using) else 'FOR SHARE'} {locked}\"""",
        'return "LOCK IN SHARE MODE"',
        f"{_HELD}::test_a_poll_never_waits[pause]",
        _NO_STATEMENT,
    ),
    mutation(
        "a heartbeat skips a row that is locked",
        "an uncommitted unsubscribe stops all groups of a process",
        "store/heartbeats.py",
        "{_ROW} AND incarnation = %s FOR UPDATE SKIP LOCKED",
        "{_ROW} AND incarnation = %s FOR UPDATE",
        _NO_STATEMENT,
    ),
    mutation(
        "a claim leaves out a retry whose state is locked",
        "one locked message stops all messages of its group, until the lock ends",
        "protocol/claiming.py",
        "            if allowed.due:\n                free_offsets",
        "            if False:\n                free_offsets",
        f"{_HELD}::test_a_retry_whose_row_is_locked_holds_up_no_other_message",
    ),
    mutation(
        "a worker leaves an unsettled delivery whose state is locked for later",
        "a poll waits for an ack of the same message in an open transaction",
        "store/delivery_state.py",
        'for locking in (" FOR UPDATE SKIP LOCKED", ""):',
        'for locking in (" FOR UPDATE", ""):',
        "protocol/interleavings/test_settlements.py::test_a_redelivery_by_the_same_worker_does_not_wait_for_a_late_answer[ack]",
    ),
    mutation(
        "garbage collection skips positions that another transaction has locked",
        "a worker that gives up an empty partition waits for an unsubscribe of another group",
        "store/garbage.py",
        "AND l.topic = o.topic AND l.partition_key = o.partition_key) FOR UPDATE SKIP LOCKED",
        "AND l.topic = o.topic AND l.partition_key = o.partition_key) FOR UPDATE",
        "protocol/interleavings/test_emptied_partitions.py::TestEmptiedPartitions"
        "::test_a_position_is_written_while_its_partition_is_found_empty",
    ),
    mutation(
        "the worker's loop waits at most one second for a lock",
        "an ack for a group that is being reset stops all groups of a process until the reset ends",
        "store/connection/session_variables.py",
        "LOCK_WAIT = 1\n",
        "LOCK_WAIT = 50\n",
        f"{_SENT}::test_the_loop_waits_for_any_lock_for_a_second_at_most",
    ),
    mutation(
        "a group backs off after a lock wait timeout",
        "each round of the loop waits one second, and all other groups wait with it",
        "protocol/subscriber.py",
        "if self.polled_by_caller or not errors.is_locked(error):",
        "if self.polled_by_caller or errors.is_locked(error):",
        f"{_HELD}::test_an_ack_that_has_to_wait_stops_no_other_group",
    ),
    mutation(
        "partitions that could not be leased stay candidates",
        "if the registration is locked, messages of a new partition wait as long as a lease lasts",
        "protocol/membership.py",
        "            self.candidates.update(dict.fromkeys(names, 1))\n",
        "            self.candidates.clear()\n",
        f"{_HELD}::test_partitions_that_could_not_be_leased_are_found_by_the_next_discovery",
    ),
    mutation(
        "the server closes the connection of a worker that hangs in a transaction",
        "if a machine dies during a claim, its partitions stay locked for hours",
        "store/connection/session_variables.py",
        "_set(cursor, min(idle_timeout, math.ceil(seconds)), LOCK_WAIT)",
        "_set(cursor, idle_timeout, LOCK_WAIT)",
        "features/workers/test_stopped_in_transaction.py"
        "::test_a_worker_that_stands_still_in_its_claim_holds_up_one_partition_until_the_server_ends_it",
    ),
    mutation(
        "a worker waits for a server that refuses statements",
        "workers exit if the server's disk is full, if it is read-only, or if it has too many connections",
        "store/connection/errors.py",
        "return refused or is_lost(error) or is_retriable(error)",
        "return (refused and not refused) or is_lost(error) or is_retriable(error)",
        "features/workers/test_outages.py::test_a_server_that_refuses_connections_is_waited_for",
    ),
    mutation(
        "a worker waits for a server whose name cannot be resolved",
        "workers exit when the database's container restarts, and finished work is done again",
        "store/connection/errors.py",
        "LOST = PERHAPS_MISTAKEN | _GONE",
        "LOST = _GONE",
        "features/workers/test_transient_errors.py::test_polling_by_hand_goes_on_with_a_new_connection",
    ),
    mutation(
        "handlers leave a server that a failover has made a replica",
        "each message fails on the old primary until it is a dead letter",
        "workers/connection_cleanup.py",
        "            if getattr(connection, _MOVE, move) is not move:\n",
        "            if False:\n",
        "features/workers/test_transient_errors.py"
        "::test_handlers_leave_a_server_that_a_failover_has_made_a_replica[the handler]",
        "features/workers/test_transient_errors.py"
        "::test_handlers_leave_a_server_that_a_failover_has_made_a_replica[the loop]",
    ),
    mutation(
        "the worker's loop reads a copy of the deliveries in flight",
        "an atomic handler's ack in another thread changes them during the read, and the worker exits with"
        " an error",
        "protocol/subscriber.py",
        "for d in self.deliveries() if d.status.alone",
        "for d in self.state.in_flight.values() if d.status.alone",
        f"{_ACKS}::test_an_ack_while_the_loop_asks_who_runs_alone",
    ),
    mutation(
        "a worker that stops locks its consumer state while it forgets lost partitions",
        "an atomic handler's ack in another thread changes the state meanwhile, and the worker exits with an"
        " error",
        "protocol/subscriber.py",
        "with state.lock:\n            if self.backing_off:",
        "if state:\n            if self.backing_off:",
        f"{_ACKS}::test_an_ack_while_the_loop_winds_up_and_forgets_what_it_has_lost",
    ),
    mutation(
        "the loop claims at once for threads that a claim left free",
        "these threads stay idle until the next round",
        "workers/call_starter.py",
        "claims = self.sharing.claims(self.free_threads(), short) if short.intersection(claims) else {}",
        "claims = {}",
        "features/workers/test_sharing.py"
        "::test_threads_that_a_claim_does_not_use_are_claimed_for_in_the_same_round",
    ),
    mutation(
        "at REPEATABLE READ, a publish searches for its id first",
        "on MySQL all publishers wait until the transaction with the duplicate ends",
        "store/log.py",
        "        if stored is not None:",
        "        if stored is not None and False:",
        f"{_LOCKS}::TestDuplicates::test_of_a_message_from_before[publish-REPEATABLE READ]",
    ),
    mutation(
        "at REPEATABLE READ, a publish checks its group first",
        "workers of neighbouring groups wait until its transaction ends",
        "service/storing.py",
        "    if keeps_snapshot(cursor.db.alias):",
        "    if False:",
        f"{_LOCKS}::TestUnknownGroups::test_hold_up_no_other_group[REPEATABLE READ-publish]",
    ),
)
