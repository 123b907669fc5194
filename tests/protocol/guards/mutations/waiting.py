"""Guards of a worker's pace: the locks and outages that it waits for, and the partitions that it leaves to others."""

from __future__ import annotations

from .mutation import Mutation, mutation

_LOCKS = "features/publish/test_held_locks.py"
_NOBODY, _ACKS = (
    "protocol/hostile/test_waiting_for_nobody.py",
    "features/workers/test_acks_beside_the_loop.py",
)
_HELD, _SENT = "protocol/hostile/test_held_rows.py", "protocol/hostile/test_statements_of_the_loop.py"
_NO_STATEMENT = f"{_SENT}::test_no_statement_of_the_loop_waits_for_a_row_that_a_caller_may_have_locked"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "rows to delete are looked up one by one",
        "a collection reads the whole log with locks, waits for every publisher with a transaction open, and its worker"
        " loses its leases meanwhile",
        "store/garbage.py",
        'f"DELETE m FROM {doomed} STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON',
        'f"DELETE m FROM {doomed} STRAIGHT_JOIN queue_messages m IGNORE INDEX (PRIMARY) ON',
        f"{_NOBODY}::test_all_that_a_worker_does_beside_an_open_transaction_with_messages_in_every_partition[20]",
    ),
    mutation(
        "what somebody holds is deleted another time",
        "a collection waits for an application that was told of a duplicate id and keeps its transaction open",
        "protocol/retention/garbage_collection.py",
        "free = garbage.lock_free(cursor, sorted(old)) if old else set()",
        "free = old",
        "protocol/interleavings/test_publishing.py::TestDuplicatesAndDeletion"
        "::test_a_collection_waits_for_no_publisher_who_was_told_of_a_duplicate[READ COMMITTED-publish]",
    ),
    mutation(
        "a claim leaves no state of what is deleted at that moment",
        "the row stays for ever, and each later owner of the partition makes room for a suspect that is no message",
        "protocol/claiming.py",
        "delivery_state.forget_claim(cursor, claim, gone)",
        "gone.clear()",
        "protocol/fencing/test_claims_of_deleted_messages.py::test_it_leaves_no_state_behind",
    ),
    mutation(
        "what was left to others is theirs",
        "under steady traffic a partition is taken back by who has just left it: shares are never fair",
        "protocol/membership.py",
        "self._known.update(dict.fromkeys(left, time.monotonic()))",
        "self._known.update({})",
        "protocol/guards/test_moving.py::test_what_was_left_to_others_is_not_taken_back_with_its_next_message",
    ),
    mutation(
        "who takes leases waits for nobody",
        "a worker that stands still in the midst of a transaction holds up all the others when its leases have run out,"
        " and they lose theirs",
        "store/leases.py",
        "LIMIT {most:d} FOR UPDATE SKIP LOCKED",
        "LIMIT {most:d} FOR UPDATE",
        "protocol/interleavings/test_claims.py::test_a_theft_does_not_wait_for_the_claim_of_a_retry",
    ),
    mutation(
        "who leases a partition anew waits for no neighbour",
        "where its earlier row is not purged yet, an ack of the next partition in a transaction that stays open holds"
        " up the worker, which loses its leases",
        "store/leases.py",
        'AND l.topic = %s AND l.partition_key = p.partition_key)",\n            [me.group, me.topic, me.name,',
        'AND l.topic = %s AND l.partition_key = p.partition_key)"\n'
        '            " ON DUPLICATE KEY UPDATE leased_at = queue_partition_leases.leased_at",\n'
        "            [me.group, me.topic, me.name,",
        f"{_NOBODY}::test_a_lease_beside_one_whose_delivery_is_acked_in_an_open_transaction",
    ),
    mutation(
        "a renewal waits for nobody",
        "an answer in a transaction that stays open costs its worker all its leases",
        "store/leases.py",
        "AND holder = %s FOR UPDATE SKIP LOCKED",
        "AND holder = %s FOR UPDATE",
        "protocol/interleavings/test_leases.py::test_a_renewal_does_not_wait_for_an_answer_in_an_open_transaction",
    ),
    mutation(
        "a claim skips a registration that is locked",
        "a caller's transaction with a pause, a reset or an unsubscribe of one group stops every group of a process",
        "store/connection/dialect.py",
        'return "LOCK IN SHARE MODE SKIP LOCKED" if is_mariadb(using) else "FOR SHARE SKIP LOCKED"',
        'return "LOCK IN SHARE MODE"',
        f"{_HELD}::test_a_poll_never_waits[pause]",
        _NO_STATEMENT,
    ),
    mutation(
        "a heartbeat skips a row that is locked",
        "an unsubscribe that is not committed stops every group of a process",
        "store/heartbeats.py",
        "{_ROW} AND incarnation = %s FOR UPDATE SKIP LOCKED",
        "{_ROW} AND incarnation = %s FOR UPDATE",
        _NO_STATEMENT,
    ),
    mutation(
        "an unanswered message whose state is locked is left for later",
        "a poll waits for an ack of the same message in a transaction that is still open",
        "store/delivery_state.py",
        'for locking in (" FOR UPDATE SKIP LOCKED", ""):',
        'for locking in (" FOR UPDATE", ""):',
        "protocol/interleavings/test_answers.py::test_a_redelivery_by_the_same_worker_does_not_wait_for_a_late_answer[ack]",
    ),
    mutation(
        "positions that somebody has locked are left alone",
        "a worker that gives up a drained partition waits for an unsubscribe of another group",
        "store/garbage.py",
        "AND l.topic = o.topic AND l.partition_key = o.partition_key) FOR UPDATE SKIP LOCKED",
        "AND l.topic = o.topic AND l.partition_key = o.partition_key) FOR UPDATE",
        "protocol/interleavings/test_emptied_partitions.py::TestEmptiedPartitions"
        "::test_a_position_is_written_while_its_partition_is_found_empty",
    ),
    mutation(
        "the loop waits for a lock for a second at most",
        "an answer to a group that is being reset stops every group of a process for as long as that takes",
        "store/connection/timeouts.py",
        "LOCK_WAIT = 1\n",
        "LOCK_WAIT = 50\n",
        f"{_SENT}::test_the_loop_waits_for_any_lock_for_a_second_at_most",
    ),
    mutation(
        "a group that has waited for a lock in vain rests",
        "each turn of the loop waits for a second, and the other groups with it",
        "protocol/engine.py",
        "if self.expires or not session.is_lock_wait(error):",
        "if self.expires or session.is_lock_wait(error):",
        f"{_HELD}::test_an_ack_that_has_to_wait_stops_no_other_group",
    ),
    mutation(
        "partitions that could not be leased stay candidates",
        "messages of a new partition wait for as long as a lease, because somebody had the registration locked",
        "protocol/membership.py",
        "            self.candidates.update({name: max(self.candidates.get(name, 0), 1) for name in wanted})\n",
        "            self.candidates.clear()\n",
        f"{_HELD}::test_partitions_that_could_not_be_leased_are_found_by_the_next_discovery",
    ),
    mutation(
        "the server ends who stands still",
        "the partitions of a worker whose machine is gone in the midst of its claim stay locked for hours",
        "store/connection/timeouts.py",
        "_set(cursor, min(silence, math.ceil(seconds)), LOCK_WAIT)",
        "_set(cursor, silence, LOCK_WAIT)",
        "features/workers/test_standing_still.py"
        "::test_a_worker_that_stands_still_in_its_claim_holds_up_one_partition_until_the_server_ends_it",
    ),
    mutation(
        "a server that refuses is waited for",
        "workers end when its disk is full, when it is read-only, or when it has too many connections",
        "store/connection/session.py",
        "return refused or is_lost(error) or is_retriable(error)",
        "return (refused and not refused) or is_lost(error) or is_retriable(error)",
        "features/workers/test_outages.py::test_a_server_that_refuses_connections_is_waited_for",
    ),
    mutation(
        "a server whose name is not known is waited for",
        "workers end, and what they have done is done again, when a container of the database is started anew",
        "store/connection/dialect.py",
        "LOST = PERHAPS_MISTAKEN | {",
        "LOST = {",
        "features/workers/test_passing_outages.py::test_polling_by_hand_goes_on_with_a_new_connection",
    ),
    mutation(
        "the loop looks at a copy of what runs",
        "an atomic handler's ack, which is in its own thread, falls into a look of the loop's: the worker ends with an"
        " error",
        "protocol/engine.py",
        "for d in self.flying() if d.hold.alone",
        "for d in self.context.flying.values() if d.hold.alone",
        f"{_ACKS}::test_an_ack_while_the_loop_asks_who_runs_alone",
    ),
    mutation(
        "a worker that winds up locks what it remembers",
        "the same, while it forgets partitions that are another's by now",
        "protocol/membership.py",
        "        with self.context.lock:\n            self._tick()",
        "        self._tick()",
        f"{_ACKS}::test_an_ack_while_the_loop_winds_up_and_forgets_what_it_has_lost",
    ),
    mutation(
        "threads that one group's claim leaves free are claimed for at once",
        "they stay idle until the next round",
        "workers/runner.py",
        "claims = self._sharing.claims(self._free(), short) if short.intersection(claims) else {}",
        "claims = {}",
        "features/workers/test_sharing.py"
        "::test_threads_that_a_claim_does_not_use_are_claimed_for_in_the_same_round",
    ),
    mutation(
        "a publish at REPEATABLE READ looks for its id first",
        "on MySQL all publishers wait until the transaction of a duplicate ends",
        "store/log.py",
        "        if there is not None:",
        "        if there is not None and False:",
        f"{_LOCKS}::TestDuplicates::test_of_a_message_from_before[publish-REPEATABLE READ]",
    ),
    mutation(
        "a publish at REPEATABLE READ looks for its group first",
        "workers of neighbouring groups wait until its transaction ends",
        "service/storing.py",
        "    if keeps_snapshot(cursor.db.alias):",
        "    if False:",
        f"{_LOCKS}::TestUnknownGroups::test_hold_up_no_other_group[REPEATABLE READ-publish]",
    ),
)
