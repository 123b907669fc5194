"""Guards of the workers' own pace: what they wait for, and what they leave to others."""

from __future__ import annotations

from .mutation import Mutation, mutation

_NOBODY, _ACKS = "test_hostile/test_waiting_for_nobody.py", "test_workers/test_acks_beside_the_loop.py"

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
        "service/collecting.py",
        "free = garbage.lock_free(cursor, sorted(old)) if old else set()",
        "free = old",
        "test_interleavings/test_publishing.py::TestDuplicatesAndDeletion"
        "::test_a_collection_waits_for_no_publisher_who_was_told_of_a_duplicate[READ COMMITTED-publish]",
    ),
    mutation(
        "a claim leaves no state of what is deleted at that moment",
        "the row stays for ever, and each later owner of the partition makes room for a suspect that is no message",
        "service/claiming.py",
        "state.forget_claim(cursor, claim, gone)",
        "gone.clear()",
        "test_fencing/test_claims_of_deleted_messages.py::test_it_leaves_no_state_behind",
    ),
    mutation(
        "what was left to others is theirs",
        "under steady traffic a partition is taken back by who has just left it: shares are never fair",
        "service/membership.py",
        "self._known.update(dict.fromkeys(some, time.monotonic()))",
        "self._known.update({})",
        "test_guards/test_moving.py::test_what_was_left_to_others_is_not_taken_back_with_its_next_message",
    ),
    mutation(
        "who takes leases waits for nobody",
        "a worker that stands still in the midst of a transaction holds up all the others when its leases have run out,"
        " and they lose theirs",
        "store/leases.py",
        "LIMIT {most:d} FOR UPDATE SKIP LOCKED",
        "LIMIT {most:d} FOR UPDATE",
        "test_interleavings/test_claims.py::test_a_theft_does_not_wait_for_the_claim_of_a_retry",
    ),
    mutation(
        "who leases a partition anew waits for no neighbour",
        "where its earlier row is not purged yet, a handler of the next partition that has asked for time in a"
        " transaction holds up the worker, which loses its leases",
        "store/leases.py",
        '" LOCK IN SHARE MODE",\n            [me.name, me.incarnation, *wanted, me.group, me.topic],',
        '" LOCK IN SHARE MODE ON DUPLICATE KEY UPDATE leased_at = queue_partition_leases.leased_at",\n'
        "            [me.name, me.incarnation, *wanted, me.group, me.topic],",
        f"{_NOBODY}::test_a_lease_beside_one_whose_handler_asks_for_time_in_an_open_transaction",
    ),
    mutation(
        "a renewal waits for nobody",
        "a handler that answers, or asks for time, in a transaction that stays open costs its worker all its leases",
        "store/leases.py",
        "AND holder = %s FOR UPDATE SKIP LOCKED",
        "AND holder = %s FOR UPDATE",
        "test_interleavings/test_leases.py::test_a_renewal_does_not_wait_for_an_answer_in_an_open_transaction",
    ),
    mutation(
        "the server ends who stands still",
        "the partitions of a worker whose machine is gone in the midst of its claim stay locked for hours",
        "store/silence.py",
        "[min(before, math.ceil(seconds))]",
        "[before]",
        "test_workers/test_standing_still.py"
        "::test_a_worker_that_stands_still_in_its_claim_holds_up_one_partition_until_the_server_ends_it",
    ),
    mutation(
        "a server that refuses is waited for",
        "workers end when its disk is full, when it is read-only, or when it has too many connections",
        "store/session.py",
        "return refused or is_lost(error) or is_retriable(error)",
        "return (refused and not refused) or is_lost(error) or is_retriable(error)",
        "test_workers/test_outages.py::test_a_server_that_refuses_connections_is_waited_for",
    ),
    mutation(
        "a server whose name is not known is waited for",
        "workers end, and what they have done is done again, when a container of the database is started anew",
        "store/dialect.py",
        "LOST = PERHAPS_MISTAKEN | {",
        "LOST = {",
        "test_workers/test_passing_outages.py::test_polling_by_hand_goes_on_with_a_new_connection",
    ),
    mutation(
        "the loop looks at a copy of what runs",
        "an atomic handler's ack, which is in its own thread, falls into a look of the loop's: the worker ends with an"
        " error",
        "service/engine.py",
        "for d in self.flying() if d.hold.alone",
        "for d in self.context.flying.values() if d.hold.alone",
        f"{_ACKS}::test_an_ack_while_the_loop_asks_who_runs_alone",
    ),
    mutation(
        "a worker that winds up locks what it remembers",
        "the same, while it forgets partitions that are another's by now",
        "service/membership.py",
        "        with self.context.lock:\n            self._tick()",
        "        self._tick()",
        f"{_ACKS}::test_an_ack_while_the_loop_winds_up_and_forgets_what_it_has_lost",
    ),
)
