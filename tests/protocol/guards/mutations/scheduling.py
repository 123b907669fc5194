"""Guards of scheduled messages: each comes once, in order and in time. Promotion waits for no other transaction."""

from __future__ import annotations

from .mutation import Mutation, mutation

_BY_ID = "features/scheduling/test_by_id.py"
_PROMOTION = "features/scheduling/test_promotion.py"
_HELD = "features/scheduling/test_held_locks.py"
_RACES = "features/scheduling/test_promotion_races.py"
_ASIDE = "features/scheduling/test_aside.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "promotion goes through the gate",
        "promoted messages that commit late are below the watermark, and lost",
        "store/scheduling/due.py",
        "gate, gate_params = locking_topic(topic)",
        'gate, gate_params = "%s", [topic]',
        f"{_PROMOTION}::test_a_promotion_goes_through_the_gate_before_it_gets_an_offset",
    ),
    mutation(
        "one worker promotes at a time",
        "two workers promote one key's messages side by side: who commits first, not whose time comes first, is first",
        "protocol/promoting.py",
        "if not due.lock_promotion(cursor, self.topic):",
        "if False:",
        f"{_PROMOTION}::test_while_one_worker_promotes_another_does_not_wait",
    ),
    mutation(
        "what is being changed is not due",
        "a worker waits for whoever cancels, moves or replaces a message, for as long as his transaction is open",
        "store/scheduling/due.py",
        'LIMIT {limit:d}"\n        " FOR UPDATE SKIP LOCKED"',
        'LIMIT {limit:d}"\n        " FOR UPDATE"',
        f"{_BY_ID}::test_changed_first_it_is_not_due[cancel]",
    ),
    mutation(
        "an id that is not scheduled is looked for without locks",
        "at REPEATABLE READ, cancelling an unknown id stops publishers of other topics until the transaction ends",
        "store/scheduling/schedule.py",
        "        if now == using:\n",
        "        if now:\n",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[cancel-with neighbours]",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[reschedule-empty]",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[replace-with neighbours]",
    ),
    mutation(
        "what the transaction scheduled itself is found",
        "at REPEATABLE READ, a message that the same transaction has scheduled cannot be cancelled",
        "store/scheduling/schedule.py",
        'level="READ UNCOMMITTED"',
        'level="READ COMMITTED"',
        f"{_HELD}::test_what_the_transaction_scheduled_itself_is_found[cancel]",
    ),
    mutation(
        "an id that is scheduled is looked for in the log without locks",
        "at REPEATABLE READ, publishing later stops publishers of other topics until the transaction ends",
        "store/log.py",
        "        if now == using:\n",
        "        if now:\n",
        f"{_HELD}::test_an_unknown_id_holds_up_nobody[publish later-with neighbours]",
    ),
    mutation(
        "an id that is about to be published waits for the decision",
        "a worker waits for the publisher, for as long as his transaction is open",
        "protocol/promoting.py",
        'level="READ UNCOMMITTED",',
        'level="READ COMMITTED",',
        f"{_PROMOTION}::test_an_id_that_somebody_is_publishing_waits_until_that_is_decided",
    ),
    mutation(
        "an id that is not certainly in the log is not dropped",
        "the publisher rolls back, and neither his message nor the scheduled one comes",
        "protocol/promoting.py",
        "sure = garbage.lock_free(cursor, sorted(set(stored.values()))) if stored else set()",
        "sure = set(stored.values())",
        f"{_PROMOTION}::test_an_id_that_somebody_is_publishing_waits_until_that_is_decided",
    ),
    mutation(
        "what is promoted is locked by its id, too",
        "who cancels a message that falls due at that moment has his transaction rolled back by a deadlock",
        "protocol/promoting.py",
        "free = garbage.lock_free(cursor, [row.offset for row in rows]) if rows else set()",
        "free = {row.offset for row in rows}",
        f"{_RACES}::test_changed_between_two_statements_it_is_told_that_it_comes_too_late[cancel]",
    ),
    mutation(
        "an id that is published between two statements is looked up again",
        "the promotion fails, and its worker ends",
        "protocol/promoting.py",
        "if code == DUPLICATE_ENTRY and not session.in_transaction(self.using):",
        "if False:",
        f"{_RACES}::test_an_id_that_is_published_between_two_statements_is_dropped",
    ),
    mutation(
        "what was set aside comes if the log has forgotten it",
        "a message that waits for a retry is lost when its group begins anew",
        "protocol/promoting.py",
        "row.before in there or row.before <= lives[row.group][1]",
        "True",
        f"{_RACES}::test_what_was_set_aside_comes_after_a_reset_if_the_log_has_forgotten_it",
    ),
    mutation(
        "the log is asked after a message was scheduled",
        "of two of one id one is told that it will come, and never does: the other fell due at that moment",
        "service/storing.py",
        "there_now = log.stored_now(cursor, topic, one.place)",
        "there_now = None",
        f"{_BY_ID}::test_due_first_the_change_is_told_that_it_comes_too_late[replace]",
    ),
    mutation(
        "what was set aside belongs to its registration",
        "after a reset a message comes twice: from the log, and when its retry falls due",
        "protocol/promoting.py",
        "row.life != lives[row.group][0]",
        "False",
        f"{_ASIDE}::test_reset_forgets_what_was_set_aside_before",
    ),
    mutation(
        "a long postponement leaves another token behind",
        "an ack of the same delivery, from another thread, is taken for it",
        "protocol/acknowledging/parked_retries.py",
        "token = new_token() if error is None else None",
        "token = None",
        f"{_ASIDE}::test_a_commit_that_was_not_heard_of_sets_aside_once[postpone]",
    ),
    mutation(
        "in strict order nothing is set aside",
        "the key goes on while one of its messages waits for hours",
        "protocol/acknowledging/parked_retries.py",
        "not (context.options.strict or kept)",
        "not kept",
        f"{_ASIDE}::test_strict_order_is_kept_by_staying_in_place",
    ),
    mutation(
        "a letter forgets what its message waited for",
        "redriven, it goes on counting attempts where it died, and dies again at once",
        "store/dead_letter_copies.py",
        "metadata = without_retry(metadata)",
        "pass",
        f"{_ASIDE}::test_a_dead_letter_of_one_that_waited_long_begins_anew_when_it_is_redriven",
    ),
)
