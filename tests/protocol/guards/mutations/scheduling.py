"""Guards of scheduled messages and parked retries: each is delivered once, in order and in time."""

from __future__ import annotations

from .mutation import Mutation, mutation

_BY_ID = "features/scheduling/test_by_id.py"
_PROMOTION = "features/scheduling/test_promotion.py"
_HELD = "features/scheduling/test_held_locks.py"
_RACES = "features/scheduling/test_promotion_races.py"
_ASIDE = "features/scheduling/test_parked_retries.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "promotion passes the gate",
        "promoted messages that commit late lie below the watermark and are lost",
        "store/log.py",
        "    gate, gate_params = locking_topic(topic)\n    values = ",
        '    gate, gate_params = "%s", [topic]\n    values = ',
        f"{_PROMOTION}::test_a_promotion_goes_through_the_gate_before_it_gets_an_offset",
    ),
    mutation(
        "promotion drops messages of a group only after the commit that removes the group",
        "a message to a group is lost while the group is reset, or if its removal rolls back",
        "protocol/promoting.py",
        "    sure = offsets.lock_registrations(cursor, topic, {row.group for row in candidates})\n",
        "    sure = {row.group: first.get(row.group) for row in candidates}\n",
        f"{_RACES}::TestAGroupThatATransactionChanges::test_it_is_not_removed_after_all",
        f"{_RACES}::TestAGroupThatATransactionChanges::test_it_is_reset",
        f"{_RACES}::TestAGroupThatATransactionChanges::test_a_reset_that_is_rolled_back_keeps_a_parked_retry",
    ),
    mutation(
        "one worker at a time promotes messages of a topic",
        "two workers promote messages of one key at once, and the commits decide their order, not the due"
        " times",
        "protocol/promoting.py",
        "if not schedule.lock_promotion(cursor, self.topic):",
        "if False:",
        f"{_PROMOTION}::test_while_one_worker_promotes_another_does_not_wait",
    ),
    mutation(
        "promotion skips messages that another transaction is changing",
        "a worker waits until the transaction that cancels, moves or replaces a message ends",
        "store/schedule.py",
        'LIMIT {limit:d}"\n        " FOR UPDATE SKIP LOCKED"',
        'LIMIT {limit:d}"\n        " FOR UPDATE"',
        f"{_BY_ID}::test_changed_first_it_is_not_due[cancel]",
    ),
    mutation(
        "the search for a scheduled id locks nothing",
        "at REPEATABLE READ, cancelling an unknown id blocks publishers of other topics until the"
        " transaction ends",
        "store/schedule.py",
        "        if fresh == using:\n",
        "        if fresh:\n",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[cancel-with neighbours]",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[reschedule-empty]",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[replace-with neighbours]",
    ),
    mutation(
        "the search for a scheduled id finds messages of its own transaction",
        "at REPEATABLE READ, a transaction cannot cancel a message that it has scheduled",
        "store/schedule.py",
        'level="READ UNCOMMITTED"',
        'level="READ COMMITTED"',
        f"{_HELD}::test_what_the_transaction_scheduled_itself_is_found[cancel]",
    ),
    mutation(
        "scheduling searches the log for the id without locks",
        "at REPEATABLE READ, scheduling a message blocks publishers of other topics until the transaction"
        " ends",
        "store/log.py",
        "        if fresh == using:\n",
        "        if fresh:\n",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[publish later-with neighbours]",
    ),
    mutation(
        "promotion skips an id that an open transaction is publishing",
        "a worker waits until the publisher's transaction ends",
        "protocol/promoting.py",
        'level="READ UNCOMMITTED",',
        'level="READ COMMITTED",',
        f"{_PROMOTION}::test_an_id_that_somebody_is_publishing_waits_until_that_is_decided",
    ),
    mutation(
        "promotion drops a message only if its id is committed in the log",
        "if the publisher rolls back, neither its message nor the scheduled message is delivered",
        "protocol/promoting.py",
        "sure = garbage.lock_unlocked(cursor, sorted(set(stored.values()))) if stored else set()",
        "sure = set(stored.values())",
        f"{_PROMOTION}::test_an_id_that_somebody_is_publishing_waits_until_that_is_decided",
    ),
    mutation(
        "promotion also locks the id of each message",
        "a transaction that cancels a message at its due time is rolled back by a deadlock",
        "protocol/promoting.py",
        "free = garbage.lock_unlocked(cursor, [row.offset for row in rows]) if rows else set()",
        "free = {row.offset for row in rows}",
        f"{_RACES}::test_changed_between_two_statements_it_is_told_that_it_comes_too_late[cancel]",
    ),
    mutation(
        "promotion retries after an id was published between two statements",
        "the promotion fails, and its worker exits",
        "protocol/promoting.py",
        "if errors.is_duplicate(error) and not session.in_transaction(self.using):",
        "if False:",
        f"{_RACES}::test_an_id_that_is_published_between_two_statements_is_dropped",
    ),
    mutation(
        "promotion keeps a parked retry whose original is no longer in the log",
        "a message that waits for a retry is lost when its group is reset",
        "protocol/promoting.py",
        "row.original_offset in there or row.original_offset <= registered[row.group][1]",
        "True",
        f"{_RACES}::test_what_was_set_aside_comes_after_a_reset_if_the_log_has_forgotten_it",
    ),
    mutation(
        "scheduling checks the log after it stores the message",
        "a message whose id is being promoted is reported as scheduled, and never delivered",
        "service/storing.py",
        "logged = log.existing_now(cursor, topic, [message_key], locking=True).get(message_key)",
        "logged = None",
        f"{_BY_ID}::test_due_first_the_change_is_told_that_it_comes_too_late[replace]",
    ),
    mutation(
        "at REPEATABLE READ, an id counts as there only with the offset that the snapshot shows",
        "a message is lost if its id was cancelled, and an open transaction schedules it and rolls back",
        "store/log.py",
        "there.get(key) == at",
        "key in there",
        "features/scheduling/test_held_locks.py"
        "::test_an_id_that_an_open_transaction_schedules_again_is_not_there_yet",
    ),
    mutation(
        "a parked retry belongs to its registration generation",
        "after a reset, a message is delivered twice: from the log and as a parked retry",
        "protocol/promoting.py",
        "row.generation != registered[row.group][0]",
        "False",
        f"{_ASIDE}::test_reset_forgets_what_was_set_aside_before",
    ),
    mutation(
        "a long postponement is distinguished from an ack",
        "an ack of the same delivery from another thread is mistaken for the postponement",
        "protocol/acknowledging/acknowledger.py",
        "d.status.failures + more, is_parked) for d in todo",
        "d.status.failures + more) for d in todo",
        f"{_ASIDE}::test_an_ack_and_a_long_postponement_are_not_taken_for_each_other[ack]",
    ),
    mutation(
        "strict order parks no retries",
        "the key continues while one of its messages waits for hours",
        "protocol/acknowledging/acknowledger.py",
        "not (state.options.strict or kept)",
        "not kept",
        f"{_ASIDE}::test_strict_order_is_kept_by_staying_in_place",
    ),
    mutation(
        "a dead letter drops the retry data of its parked message",
        "after a redrive, its attempts continue at the old count, and it is dead-lettered at once",
        "store/dead_letters.py",
        'metadata = without("retry", metadata)',
        "pass",
        f"{_ASIDE}::test_a_dead_letter_of_one_that_waited_long_begins_anew_when_it_is_redriven",
    ),
    mutation(
        "an id that was cancelled no longer counts as scheduled, whatever the snapshot shows",
        "at REPEATABLE READ a message that is cancelled and scheduled again in one transaction is lost",
        "store/log.py",
        "if key not in doubtful or there.get(key) == at",
        "if True",
        f"{_HELD}::test_an_id_that_was_cancelled_can_be_scheduled_again[this transaction-publish]",
        f"{_HELD}::test_an_id_that_was_cancelled_can_be_scheduled_again[another one-publish_many]",
    ),
    mutation(
        "a replace that stores nothing keeps the scheduled message",
        "it is deleted, and nothing is delivered in its place",
        "service/storing.py",
        "            transaction.set_rollback(True, using=using)\n",
        "            pass\n",
        f"{_BY_ID}::test_an_id_that_is_also_in_the_log_stays_scheduled",
        f"{_BY_ID}::test_an_id_that_another_transaction_sends_now_stays_scheduled",
    ),
)
