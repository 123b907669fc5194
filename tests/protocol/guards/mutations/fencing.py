"""Guards against former owners: leases, claims, the compare-and-set of each settlement, retries after deadlocks."""

from __future__ import annotations

from .mutation import Mutation, mutation

_MANUAL = "protocol/hostile/test_manual_transactions.py"
_STALE = "protocol/fencing/test_stale_workers.py"
_RACES = "protocol/fencing/test_races.py"
_LOCKS = "features/workers/test_lock_errors.py"
_HELD = "protocol/guards/test_held_locks.py"
_AHEAD = "protocol/guards/test_claimed_ahead.py"
_STRICT = "features/strict/test_by_hand.py"
_EXTENDING = "protocol/interleavings/test_extending.py"

_BEFORE_UPDATE = '            receipts, partitions = matching(some, "s.")\n'

_STATEMENTS = {
    "ack": "statement == ACK and COUNT_FAILURE not in more",
    "nack": "statement == PUT_BACK and COUNT_FAILURE in more",
    "reject": "statement == ACK and COUNT_FAILURE in more",
    "postpone": "statement == PUT_BACK and COUNT_FAILURE not in more",
    "extend": "statement == EXTEND",
    "the start of a message that was claimed ahead": "statement == MARK_HANDED",
}
"""For each verb, a condition that is true for its statement."""

_VERBS = {"the start of a message that was claimed ahead": "hand over"}


def _without_token(verb: str) -> Mutation:
    return mutation(
        f"{verb} compares the receipt of the delivery",
        "an old delivery settles a message that was delivered again after its visibility timeout",
        "store/acknowledgements.py",
        _BEFORE_UPDATE,
        f"{_BEFORE_UPDATE}            if {_STATEMENTS[verb]}:\n"
        '                receipts = receipts.replace("s.delivery_token =", "0 <")\n',
        f"{_AHEAD}::test_what_was_delivered_again_is_not_started"
        if verb not in ("ack", "nack", "reject", "postpone", "extend")
        else f"{_STALE}::test_after_its_visibility_ran_out_and_it_was_delivered_again_a_delivery_is_void[{verb}]",
    )


def _without_holder(verb: str) -> Mutation:
    return mutation(
        f"{verb} compares the holder of the lease",
        "a worker that has lost its partition settles messages of the new owner",
        "store/acknowledgements.py",
        _BEFORE_UPDATE,
        f"{_BEFORE_UPDATE}            if {_STATEMENTS[verb]}:\n"
        '                statement = statement.replace("l.holder = %s", "(l.holder = %s OR 1)")\n',
        f"{_AHEAD}::test_what_was_stolen_is_not_started"
        if verb not in ("ack", "nack", "reject", "postpone", "extend")
        else f"{_STALE}::test_after_its_lease_was_stolen_a_worker_can_do_nothing[{verb}]",
    )


MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a late ack of a message that was delivered again makes no room for the next one of its key",
        "with strict order, the next message is delivered while the other delivery runs",
        "protocol/choosing.py",
        "        if partition and state.in_flight.get(delivery.offset) is delivery:\n"
        "            partition.ended(delivery.offset, state.clock.now())\n",
        "        if partition:\n            partition.ended(delivery.offset, state.clock.now())\n",
        f"{_STRICT}::test_a_late_ack_of_a_message_that_is_delivered_again[nack]",
        f"{_STRICT}::test_a_late_ack_of_a_message_that_is_delivered_again[postpone]",
    ),
    mutation(
        "a message whose ack failed together with a claim holds back the next one of its key",
        "with strict order, the next message is delivered before the ack is repeated",
        "protocol/claiming.py",
        "            restore_unacked(state, acks)\n",
        "            pass\n",
        f"{_STRICT}::test_an_ack_whose_claim_cannot_read",
    ),
    mutation(
        "a lot's thread begins no further message after a second",
        "after a process has stood still, its threads handle messages that other workers have got",
        "workers/pool.py",
        "if self.current and time.monotonic() > self.valid_until:",
        "if False:",
        "features/workers/test_lots.py::test_a_lot_that_got_old_starts_nothing_that_another_worker_has_got",
    ),
    mutation(
        "a worker that skips locked rows starts no message that was put back",
        "the next owner handles the message at the same time",
        "protocol/acknowledging/acknowledger.py",
        "            if delivery.status.receipt in stale:",
        "            if False:",
        f"{_AHEAD}::test_what_was_lost_is_not_started_after_a_lock_wait[put back]",
    ),
    mutation(
        "a worker takes only leases that are free or expired",
        "two workers take a partition from each other, and both deliver each message",
        "store/leases.py",
        "AND (holder = '' OR lease_renewed_at <= {NOW_MS} - %s)\"\n        f\" LIMIT {most:d}",
        "AND (holder = '' OR lease_renewed_at <= {NOW_MS} - %s OR 1)\"\n        f\" LIMIT {most:d}",
        "protocol/interleavings/test_leases.py::test_a_renewal_between_the_look_and_the_theft",
    ),
    mutation(
        "a lease that was released long ago is counted once",
        "a member takes more than its part of the free leases, and shares get uneven",
        "store/leases.py",
        "AND lease_renewed_at <= {NOW_MS} - %s AND holder <> '')\"",
        'AND lease_renewed_at <= {NOW_MS} - %s)"',
        "features/leases/test_counting.py::test_each_lease_counts_once",
    ),
    mutation(
        "a worker renews only its own leases",
        "the leases of a dead worker never expire, and no worker takes its partitions",
        "store/leases.py",
        "AND holder = %s FOR UPDATE SKIP LOCKED",
        "AND %s <> '' FOR UPDATE SKIP LOCKED",
        "features/leases/test_shares.py::test_one_that_dies_is_replaced_within_the_lease",
    ),
    mutation(
        "a worker that stops releases only its own leases",
        "its successor loses the leases of partitions that it is processing",
        "store/leases.py",
        "    if free := _lock_unlocked(cursor, holder):\n",
        "    if free := [one.id for one in find_held(cursor.db.alias, holder.group, holder.topic, *[None] * 3)]:\n",
        f"{_STALE}::test_a_fenced_subscriber_that_closes_leaves_its_successors_leases_alone",
    ),
    mutation(
        "a claim checks its leases",
        "a worker delivers messages that it read earlier from a partition that another worker now owns",
        "store/leases.py",
        '" AND l.partition_key IN ({partitions}) AND l.holder = %s {locking}"',
        "\" AND l.partition_key IN ({partitions}) AND %s <> '' {locking}\"",
        f"{_RACES}::test_a_claim_that_meets_an_uncommitted_theft_does_not_wait_and_gets_nothing",
    ),
    mutation(
        "a claim locks its leases",
        "another worker takes the partition between the check and the claim, and both deliver a message as"
        " new",
        "store/leases.py",
        'for locking in (for_share(cursor.db.alias), ""):',
        'for locking in ("", ""):',
        f"{_HELD}::test_a_claim_holds_its_lease",
    ),
    mutation(
        "a claim is one transaction",
        "its leases are unlocked before it marks any message",
        "protocol/claiming.py",
        "                session.run(state.using, work)\n",
        "                session.run_statement(state.using, work)\n",
        f"{_HELD}::test_a_claim_holds_its_lease",
    ),
    mutation(
        "a worker undoes a claim whose commit result is unknown",
        "the claimed messages wait until the lease or the visibility timeout expires, and later messages of"
        " the key overtake them",
        "protocol/claiming.py",
        "                self._unknown_claim = (claim.token, choice)\n",
        "                pass\n",
        "protocol/guards/test_unknown_commits.py::test_what_a_doubtful_claim_took_is_delivered_at_once",
    ),
    mutation(
        "a claim has an unknown result if the replication group did not take its commit",
        "after a failover to a member that committed the claim, its messages wait and are overtaken",
        "store/connection/errors.py",
        "    return is_lost(error) or _code(error) in NOT_REPLICATED",
        "    return is_lost(error)",
        "protocol/guards/test_unknown_commits.py"
        "::test_what_the_others_of_a_replication_group_committed_is_delivered_at_once[3100]",
        "protocol/guards/test_unknown_commits.py"
        "::test_what_the_others_of_a_replication_group_committed_is_delivered_at_once[3101]",
    ),
    *map(_without_token, _STATEMENTS),
    *map(_without_holder, _STATEMENTS),
    mutation(
        "a delivery can be settled only once",
        "a call that is repeated after a lost commit result counts a second failure or undoes an ack",
        "store/acknowledgements.py",
        " AND {{receipts}} AND s.acked = 0 AND s.in_flight = 1",
        " AND {{receipts}}",
        "protocol/guards/test_repeated_settlements.py::test_an_answer_given_again_changes_nothing[nack]",
    ),
    mutation(
        "a subscriber takes over the leases of its predecessor with the same name",
        "a restarted worker waits until its own leases expire",
        "protocol/membership.py",
        "replace(state.holder, incarnation=before) if before else None",
        "replace(state.holder, incarnation=before) if not before else None",
        f"{_STALE}::test_a_subscriber_of_the_same_name_takes_over_at_once_and_the_older_is_told",
    ),
    mutation(
        "heartbeats compare the incarnation",
        "the older of two subscribers with the same name never learns that it was replaced",
        "store/heartbeats.py",
        "{_ROW} AND incarnation = %s FOR UPDATE SKIP LOCKED",
        "{_ROW} AND %s <> '' FOR UPDATE SKIP LOCKED",
        "protocol/guards/test_incarnations.py::test_only_the_younger_one_of_a_name_beats",
    ),
    mutation(
        "extend checks the committed owner of a delivery",
        "in a transaction that has read before, a handler gets more time for a message that another worker"
        " processes",
        "protocol/acknowledging/extending.py",
        "            stale |= left - extended - locked\n",
        "",
        *(
            f"features/atomic/test_snapshots.py::test_more_time_for_what_became_anothers_after_the_first_read[{change}]"
            for change in ("stolen", "delivered again", "finished")
        ),
    ),
    mutation(
        "extend holds no lock on the lease while the handler's transaction lasts",
        "a hanging worker keeps its partition forever, and a healthy worker loses its lease",
        "protocol/acknowledging/extending.py",
        "if todo and session.in_transaction(state.using) and not state.options.eager:",
        "if todo and session.in_transaction(state.using) and state.options.eager:",
        f"{_EXTENDING}::test_it_leaves_no_lock_on_the_lease_nor_on_its_state[READ COMMITTED]",
        f"{_EXTENDING}::test_a_release",
        f"{_EXTENDING}::test_a_renewal",
    ),
    mutation(
        "the queue retries after a deadlock",
        "if the server chooses an ack as the victim, the ack is lost and the message is delivered twice",
        "store/connection/errors.py",
        "RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})",
        "RETRIABLE = frozenset({LOCK_WAIT_TIMEOUT, RECORD_CHANGED})",
        f"{_LOCKS}::test_an_ack_that_is_the_victim_of_a_deadlock_is_tried_again",
        f"{_LOCKS}::test_a_claim_that_is_the_victim_of_a_deadlock_is_tried_again",
    ),
    mutation(
        "the queue retries after a lock wait timeout",
        "if a row is locked for long, the ack is lost and the message is delivered twice",
        "store/connection/errors.py",
        "RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})",
        "RETRIABLE = frozenset({DEADLOCK, RECORD_CHANGED})",
        f"{_LOCKS}::test_an_answer_whose_lock_wait_times_out_is_tried_again[ack]",
    ),
    mutation(
        "an atomic block for a delivery that is already acked is rolled back",
        "a caller that saw only an error and repeats the block commits its writes twice",
        "protocol/acknowledging/acknowledger.py",
        "return _not_settled(cursor, owned, done, expected) or set(expected)",
        "return _not_settled(cursor, owned, done, expected)",
        "features/atomic/test_by_hand.py::test_a_connection_that_is_lost_after_the_commit",
    ),
    mutation(
        "with autocommit off, the consumer state changes only after the end of the transaction",
        "an ack that is rolled back counts: its message is not delivered again, and a strict key continues",
        "protocol/acknowledging/after_commit.py",
        "not session.in_transaction(state.using):\n        note(",
        "not session.calls_hooks(state.using):\n        note(",
        f"{_MANUAL}::test_an_answer_that_is_rolled_back_leaves_its_delivery_open[ack-by Django]",
    ),
    mutation(
        "with autocommit off, the worker reads from the database whether an ack was committed",
        "an ack that is rolled back by SQL counts: its message is not delivered again, and a strict key"
        " continues",
        "protocol/acknowledging/after_commit.py",
        "if found is not None and not found.in_flight:",
        "if found is not None:",
        f"{_MANUAL}::test_an_answer_that_is_rolled_back_leaves_its_delivery_open[nack-by SQL]",
    ),
    mutation(
        "the next poll confirms committed acks",
        "a strict key waits until the delivery's visibility timeout expires, although its message is done",
        "service/subscription.py",
        "            confirm(opened.state)\n",
        "            pass\n",
        f"{_MANUAL}::test_an_answer_that_is_committed_is_known_at_the_next_poll[ack-by Django]",
    ),
    mutation(
        "with autocommit off, an ack in an atomic block is confirmed from the database",
        "if a later transaction is rolled back, the consumer state misses the committed ack, and a strict"
        " key waits",
        "store/connection/session.py",
        "connection.in_atomic_block and connection.commit_on_exit",
        "connection.in_atomic_block",
        f"{_MANUAL}::test_one_answer_is_committed_and_the_next_is_rolled_back[atomic]",
    ),
    mutation(
        "a subscriber that learns of a committed ack updates the consumer state",
        "a strict key waits until the delivery's visibility timeout expires, although its message is done",
        "protocol/acknowledging/transactional.py",
        "        acknowledger.reconcile_acks(deliveries)\n",
        "",
        "features/atomic/test_by_hand.py"
        "::test_a_strict_subscription_goes_on_behind_an_ack_whose_commit_was_not_heard_of",
    ),
    mutation(
        "a connection that is lost after a COMMIT does not count as an open transaction",
        "every later poll fails, and leases stay until they expire",
        "protocol/acknowledging/transactional.py",
        "session.closes_half_ended(using), ",
        "",
        "features/atomic/test_by_hand.py::test_a_connection_that_is_lost_after_the_commit",
    ),
    mutation(
        "a subscriber takes no lease of its own as expired",
        "while a caller keeps an ack in an open transaction, the partition is dropped, and its messages come again",
        "store/leases.py",
        "AND holder NOT IN ('', %s) LIMIT",
        "AND holder <> '' AND %s IS NOT NULL LIMIT",
        "protocol/hostile/test_own_locked_lease.py"
        "::test_other_deliveries_of_the_partition_stay_with_their_handlers",
    ),
    mutation(
        "an answer to a delivery that another worker has claimed again waits for no lock",
        "all answers of the group wait until the new owner's transaction ends",
        "protocol/acknowledging/acknowledger.py",
        "gone = (set(rest.receipts) - there.keys()) | (taken - busy)",
        "gone = taken - busy",
        "features/batch/test_fencing.py::test_a_stale_one_that_its_new_owner_has_locked_is_not_waited_for",
    ),
    mutation(
        "a claim that an exception of the caller ends is undone or repeated",
        "after Ctrl-C its messages are not delivered until the subscription is closed",
        "protocol/claiming.py",
        "        except BaseException as error:  # Also Ctrl-C, before or after the COMMIT.\n",
        "        except (DatabaseError, StaleDelivery) as error:\n",
        "protocol/hostile/test_interrupted_polls.py"
        "::test_the_messages_come_with_the_next_poll[True-before_the_commit]",
        "protocol/hostile/test_interrupted_polls.py"
        "::test_the_messages_come_with_the_next_poll[False-after_the_commit]",
    ),
    mutation(
        "a claim whose messages an exception of the caller leaves undecoded is undone",
        "after Ctrl-C its messages are not delivered until the subscription is closed",
        "protocol/claiming.py",
        "        except BaseException:  # Ctrl-C: the caller gets none of these messages.\n",
        "        except DatabaseError:\n",
        "protocol/hostile/test_interrupted_polls.py"
        "::test_the_messages_come_with_the_next_poll[True-between_two_messages]",
    ),
)
