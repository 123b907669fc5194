"""Guards of what messages can do besides being delivered: effects in one commit, ways back, new beginnings."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_ATOMIC = "test_atomic/test_handlers.py"
_REDRIVE = "test_dead_letters/test_redrive.py"
_BY_HAND = "test_guards/test_moved_by_hand.py"
_POSITIONS = "test_groups/test_positions.py"
_TARGETS = "test_publish/test_targets.py"

_CLAIMS_OTHERS = Edit(
    "store/state.py",
    "AND m.consumer_group IN ('', %s)\"\n        \" ON DUP",
    "AND (m.consumer_group = '' OR %s <> '')\"\n        \" ON DUP",
)
"""A claim looks at that, too."""

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a dead letter has the mask of the topic that its row names",
        "after DLQ_SUFFIX has changed, everybody sees what the mask hides",
        "admin/masking.py",
        "for topic in (message.original_topic, message.topic) if topic",
        "for topic in (message.topic,) if topic",
        "test_admin/test_letters_masked.py::"
        "test_after_another_ending_of_dead_letters_is_set_they_are_still_masked[masked1]",
    ),
    mutation(
        "an atomic handler's ack is in its transaction",
        "a worker that dies between the two runs the handler again, and its effects are there twice",
        "service/atomically.py",
        "acked = answering.ack(deliveries, whole=True)",
        "acked = True",
        f"{_ATOMIC}::test_no_commit_of_its_own_for_the_ack",
    ),
    mutation(
        "an atomic handler's transaction is one from its beginning to its end",
        "after a deadlock that the handler keeps to itself, or a COMMIT of its own, half of it goes with the ack",
        "service/atomically.py",
        "with _still_there(), transaction.atomic(using=using):",
        "with _still_there():",
        f"{_ATOMIC}::test_a_deadlock_that_the_handler_keeps_to_itself",
    ),
    mutation(
        "a database error in a verb breaks the caller's transaction",
        "after a deadlock that the caller swallows, earlier publishes are gone, and later writes are committed",
        "store/session.py",
        "            if joined and locks:",
        "            if joined and locks and not error:",
        "test_publish/test_broken_transactions.py"
        "::test_a_publish_that_is_the_victim_of_a_deadlock_takes_the_earlier_ones_with_it",
        "test_publish/test_broken_transactions.py"
        "::test_with_autocommit_turned_off_a_deadlock_breaks_the_transaction[cancel]",
    ),
    mutation(
        "a connection whose charset cannot spell every key is refused",
        "messages of a key that a worker's connection cannot spell are never delivered to it",
        "store/session.py",
        "        if name != CHARSET:",
        "        if name is None:",
        "test_publish/test_charset.py::test_nothing_is_published[utf8]",
        "test_publish/test_charset.py::test_nothing_is_consumed_by_hand[latin1]",
    ),
    mutation(
        "an atomic handler writes to the queue's database alone",
        "what it writes elsewhere stays when the rest is rolled back, and is written again",
        "service/atomically.py",
        'if writes(text, mysql=context["connection"].vendor == "mysql"):',
        "if writes(text, mysql=True) and not sql:",
        f"{_ATOMIC}::test_a_write_to_another_database_is_refused_before_it_is_made",
    ),
    mutation(
        "an atomic handler's transaction can be committed",
        "what failed in a block of the handler's is rolled back with all that it wrote, and acked",
        "service/atomically.py",
        "if transaction.get_rollback(using=using):",
        "if transaction.get_rollback(using=using) is None:",
        "test_atomic/test_by_hand.py::test_a_block_whose_transaction_can_only_be_rolled_back",
    ),
    mutation(
        "an atomic handler's ack is known once it is committed",
        "a hook of the handler's that fails after the commit counts as a failed attempt of what is done",
        "service/atomically.py",
        "answering.note_ack(deliveries) if acked else None",
        "None",
        f"{_ATOMIC}::test_a_hook_that_fails_after_the_commit_changes_nothing",
    ),
    mutation(
        "keeping visible waits for nobody",
        "a handler that has asked for more time in a transaction of its own stops its worker, which loses its leases",
        "store/answers.py",
        '" AND s.acked = 0 AND s.in_flight = 1 FOR UPDATE SKIP LOCKED",',
        '" AND s.acked = 0 AND s.in_flight = 1 FOR UPDATE",',
        f"{_ATOMIC}::test_a_handler_that_asks_for_more_time_does_not_hold_up_its_worker[False]",
    ),
    mutation(
        "what is redriven is locked first",
        "two who redrive at once send each letter back twice",
        "service/redrive.py",
        "sorted(garbage.lock_free(cursor, page))",
        "sorted(page)",
        f"{_REDRIVE}::test_two_at_once_send_each_back_once",
    ),
    mutation(
        "redrive ends with the letters that were there",
        "a message that fails at once goes round and round, and redrive never ends",
        "service/redrive.py",
        "last = 0, log.newest(self.using, self.dead_topic)",
        "last = 0, 1 << 62",
        f"{_REDRIVE}::test_what_comes_while_it_runs_is_left_for_another_time",
    ),
    mutation(
        "a run in steps ends with the letters that were shown",
        "a message that fails at once goes round and round, and the operator's run never ends",
        "service/mending.py",
        "(above, min(up_to, END - 1) + 1)",
        "(above, END)",
        "test_admin/test_letters_back.py::test_what_fails_again_meanwhile_makes_no_endless_loop",
    ),
    mutation(
        "an edited letter is the one that was seen",
        "what somebody else has changed meanwhile is overwritten with what was made of the old one",
        "service/mending.py",
        "super().wanted(letter) and fingerprint(letter) == self.seen",
        "super().wanted(letter)",
        "test_admin/test_letters_edit.py::test_what_changes_between_the_look_and_the_lock",
    ),
    mutation(
        "redrive asks who is registered",
        "what is sent back to a group that has gone is nobody's, and its letter is deleted",
        "service/redrive.py",
        'if letter.row["failed_group"] in there]',
        "if letter.row]",
        f"{_REDRIVE}::test_a_group_that_unsubscribes_meanwhile_keeps_its_letters",
    ),
    mutation(
        "redrive locks those registrations",
        "the group goes between the question and the sending",
        "store/letters.py",
        '        " LOCK IN SHARE MODE",\n',
        '        "",\n',
        f"{_BY_HAND}::test_redrive_holds_the_registrations_that_it_needs",
    ),
    mutation(
        "a letter goes as its message comes",
        "who dies between the two has sent it back, and sends it again the next time",
        "service/redrive.py",
        "done = session.run(self.using, one)",
        "done = session.single(self.using, one)",
        f"{_BY_HAND}::test_a_letter_goes_as_its_message_comes",
    ),
    mutation(
        "what goes back goes through the gate",
        "one whose transaction commits late lies below the watermark, and is lost with its letter",
        "store/letters.py",
        "gate, gate_params = locking_topic(topic)",
        'gate, gate_params = "%s", [topic]',
        "test_guards/test_gate.py::test_what_is_redriven_holds_a_slot_until_its_transaction_ends",
    ),
    mutation(
        "what goes back has an id of its own",
        "one that fails again while the log still holds its first return cannot be sent back",
        "service/redrive.py",
        'Return(row["partition"], uuid7(), row["failed_group"]',
        'Return(row["partition"], row["original_id"], row["failed_group"]',
        f"{_REDRIVE}::test_it_may_fail_again_and_again",
    ),
    mutation(
        "a claim asks whether the group is paused",
        "what workers had read ahead is delivered after pause has returned",
        "store/leases.py",
        "AND r.id = %s AND r.paused = 0",
        "AND r.id = %s",
        f"{_POSITIONS}::test_no_claim_is_under_way_when_pause_returns",
    ),
    mutation(
        "pausing a topic locks its own registrations alone",
        "it waits for whoever moves a watermark of any other topic",
        "store/offsets.py",
        'index = "queue_offsets_partition" if group is not None else "queue_offsets_groups"',
        'index = "queue_offsets_partition"',
        f"{_POSITIONS}::test_pausing_a_topic_waits_for_no_other_topic",
    ),
    mutation(
        "reset keeps the pause",
        "a group that stands still for a reason goes on because it was moved",
        "service/positions.py",
        "            if paused:\n",
        "            if paused is None:\n",
        f"{_POSITIONS}::test_a_reset_keeps_the_pause",
    ),
    mutation(
        "reset is one transaction",
        "the group is not registered for a moment, or for ever if its operator's process dies",
        "service/positions.py",
        "return session.run(alias, work)\n\n\ndef pause",
        "return session.single(alias, work)\n\n\ndef pause",
        f"{_BY_HAND}::test_a_reset_is_one_transaction",
    ),
    mutation(
        "reset locks the topic first",
        "it and a collection each wait for what the other has locked, and one of them is rolled back",
        "service/positions.py",
        "settled = max(offsets.lock_topic(alias, cursor, topic), known)",
        "settled = max(offsets.settled(alias, topic), known)",
        f"{_BY_HAND}::test_a_reset_holds_the_topic",
    ),
    Mutation(
        "reset registers nobody who has gone",
        "a group that was unsubscribed for good holds back deletion for ever",
        (
            Edit(
                "service/positions.py",
                "if not offsets.is_registered(cursor, group, topic):",
                "if offsets.is_registered(cursor, group, topic) is None:",
            ),
            Edit(
                "service/positions.py",
                "paused = _registration(alias, topic, group).paused",
                "paused = getattr(offsets.registration(alias, group, topic), 'paused', False)",
            ),
        ),
        (f"{_BY_HAND}::test_a_reset_registers_nobody_who_has_unsubscribed_meanwhile",),
    ),
    mutation(
        "reset begins at or below what is settled",
        "a message that commits late, below the new place, is never delivered",
        "service/positions.py",
        "start = min(above, settled)",
        "start = above",
        f"{_POSITIONS}::test_forward_and_back",
    ),
    mutation(
        "reset forgets what the group has done",
        "what is to be replayed counts as done, and does not come",
        "service/positions.py",
        "while state.delete_group(cursor, group, topic):",
        "while not state.NOW_MS:",
        f"{_POSITIONS}::test_to_the_earliest",
    ),
    mutation(
        "reset asks who runs",
        "a group is moved under its running workers by mistake",
        "service/positions.py",
        "if running and not force:",
        "if running and force is None:",
        f"{_POSITIONS}::test_refused_while_its_subscribers_run_and_nothing_is_changed",
    ),
    mutation(
        "a message for one group needs that group",
        "a mistyped group's messages are stored, and deleted before anybody was given them",
        "store/log.py",
        "return _REGISTERED if self.group else",
        'return _REGISTERED.replace("SELECT consumer_group", "SELECT COALESCE(MAX(consumer_group), 0)")'
        " if self.group else",
        f"{_TARGETS}::test_a_group_that_is_not_registered_is_an_error_that_names_it[True]",
    ),
    Mutation(
        "a worker hears of what is for its group alone",
        "a message for one group goes to all of them",
        (
            Edit(
                "service/engine.py",
                "if target and target != context.group:",
                "if target and not context.group:",
            ),
            _CLAIMS_OTHERS,
        ),
        (f"{_TARGETS}::test_a_group_that_runs_is_not_told_of_anothers",),
    ),
    Mutation(
        "a partition is read for one's group alone",
        "the same, where a worker takes over a partition or works off a backlog",
        (
            Edit(
                "store/log.py",
                "AND m.consumer_group IN ('', %s)",
                "AND (m.consumer_group = '' OR %s <> '')",
            ),
            _CLAIMS_OTHERS,
        ),
        (f"{_TARGETS}::test_it_is_kept_for_that_group_and_pins_nothing_of_the_others",),
    ),
    mutation(
        "a watermark passes what is for others",
        "a message for one group holds back the deletion of all that the others have done",
        "store/watermarks.py",
        "\" AND m.consumer_group IN ('', %s) AND (s.acked IS NULL OR s.acked = 0) ORDER BY",
        "\" AND m.consumer_group <> CONCAT(%s, '?') AND (s.acked IS NULL OR s.acked = 0) ORDER BY",
        f"{_TARGETS}::test_it_is_kept_for_that_group_and_pins_nothing_of_the_others",
    ),
    mutation(
        "deletion waits for those alone that a message is for",
        "the same: what the others will never be given is kept until their watermarks pass it",
        "store/garbage.py",
        "        return self.readers | ({target} & self.starts.keys())\n",
        "        return self.readers\n",
        f"{_TARGETS}::test_it_is_kept_for_that_group_and_pins_nothing_of_the_others",
    ),
    mutation(
        "deletion waits for who reads the log, whoever a message is for",
        "what one group alone was given, and is done with, is missing in archives, and nobody is told",
        "store/garbage.py",
        "        return self.readers | ({target} & self.starts.keys())\n",
        "        return {target} & self.starts.keys()\n",
        "test_groups/test_log_readers.py::test_a_message_for_another_group_is_kept_until_it_is_read",
    ),
    mutation(
        "a span of a masked topic exports no text of an error",
        "what the mask hides in the admin is sent to whoever keeps the traces",
        "tracing.py",
        "        return conf.mask(topic) is not None\n",
        "        return False\n",
        "test_tracing/test_handling.py::test_a_masked_topics_errors_are_exported_without_their_text"
        "[orders-tests.test_tracing.test_handling.mask-False]",
    ),
)
