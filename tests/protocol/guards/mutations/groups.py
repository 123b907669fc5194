"""Guards of registration, deletion, dead letters and names: which messages are kept, and for which group."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_REGISTRATION = "features/groups/test_registration.py"
_RACES = "features/groups/test_races.py"
_RETENTION = "features/groups/test_retention.py"
_STARTS = "features/groups/test_starts.py"
_LETTERS = "features/dead_letters/test_dead_letters.py"
_LIVES = "protocol/hostile/test_generations.py"
_NAMES = "features/publish/test_names.py"

_FOLDED = 'db_collation="utf8mb4_general_ci"'
_EXACT = 'db_collation="utf8mb4_bin"'

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a start at a time includes messages whose times are out of order",
        "messages that were published while the server's clock was behind are skipped",
        "service/registration.py",
        "return start_before(using",
        "return last_before(using",
        f"{_STARTS}::test_what_was_published_while_the_clock_was_behind_is_not_skipped[minutes-subscribe]",
        f"{_STARTS}::test_what_was_published_while_the_clock_was_behind_is_not_skipped[still behind-reset]",
    ),
    mutation(
        "the search for a start time allows clock errors of up to an hour",
        "if the clock was behind for many messages, the messages before them are skipped",
        "service/registration.py",
        "CLOCK_SPREAD = timedelta(hours=1)",
        "CLOCK_SPREAD = timedelta(minutes=1)",
        f"{_STARTS}::test_a_clock_that_was_behind_for_thousands_of_messages",
    ),
    mutation(
        "a group without a watermark counts as at its start",
        "a group that never ran loses messages that the other groups have finished",
        "protocol/retention/garbage_collection.py",
        "starts[group]) for group in waiting):",
        "starts[group]) for group in waiting if (partition, group) in marks):",
        f"{_REGISTRATION}::test_a_registered_group_that_is_down_gets_everything",
    ),
    mutation(
        "garbage collection deletes nothing from a topic without a group",
        "messages that are published before the first group registers are lost",
        "protocol/retention/garbage_collection.py",
        "settled, PAGE) if groups.starts else []",
        "settled, PAGE)",
        f"{_REGISTRATION}::test_unsubscribing_the_last_group_keeps_what_is_left",
    ),
    mutation(
        "garbage collection waits for the watermarks of the groups",
        "messages that a group has not finished are deleted",
        "protocol/retention/garbage_collection.py",
        "offset <= max(marks.get((partition, group), 0), starts[group])",
        "offset <= max(marks.get((partition, group), 0), starts[group], rows[-1][0])",
        f"{_RETENTION}::test_what_is_not_done_is_kept_however_old",
    ),
    mutation(
        "garbage collection waits for the retention time",
        "finished messages are deleted before their retention ends, and their ids can be stored again",
        "protocol/retention/garbage_collection.py",
        "old = set(garbage.old_enough(cursor, sorted(asked), retention))",
        "old = {o for o in asked if retention >= 0}",
        f"{_RETENTION}::test_what_is_done_is_kept_for_the_retention",
    ),
    mutation(
        "garbage collection skips dead-letter topics",
        "a dead letter is deleted when its first group has finished it",
        "protocol/retention/garbage_collection.py",
        "        if is_kept(self.topic):\n",
        "        if not self.topic:\n",
        f"{_RETENTION}::test_dead_letters_are_no_garbage",
    ),
    mutation(
        "garbage collection locks the topic",
        "a group registers between the check and the delete, and loses messages that it was promised",
        "store/garbage.py",
        "{TOPIC_ROW} FOR UPDATE SKIP LOCKED",
        "{TOPIC_ROW}",
        "protocol/guards/test_held_locks.py::test_deletion_holds_the_topic",
    ),
    mutation(
        "each page of garbage collection is one transaction",
        "the topic is unlocked during the delete, and a message may be deleted only in part",
        "protocol/retention/garbage_collection.py",
        "more = session.run(self.using, work)",
        "more = session.run_statement(self.using, work)",
        "protocol/guards/test_held_locks.py::test_deletion_holds_the_topic",
        "protocol/guards/test_held_locks.py::test_state_and_message_are_deleted_together",
    ),
    mutation(
        "a registration locks the topic",
        "a group registers while garbage collection deletes, and loses messages that it was promised",
        "service/registration.py",
        "settled = max(offsets.lock_topic(cursor, topic), known)",
        "settled = max(offsets.settled(alias, topic), known)",
        f"{_RACES}::test_registration_waits_for_a_collection_that_is_under_way",
    ),
    mutation(
        "a registration is one transaction",
        "the topic is unlocked before the group is stored",
        "service/registration.py",
        "is_new, has_rows_left = session.run(alias, work)",
        "is_new, has_rows_left = session.run_statement(alias, work)",
        "protocol/guards/test_held_locks.py::test_registration_holds_the_topic",
    ),
    mutation(
        "a delayed unsubscribe checks the registration again",
        "it deletes the state of a group that subscribed again, and the group gets every message twice",
        "protocol/retention/removing.py",
        "            if not removal.lock(cursor, self.group, self.topic, wait=wait):\n                return None\n",
        "            removal.lock(cursor, self.group, self.topic, wait=wait)\n",
        f"{_RACES}::test_an_unsubscribe_that_ends_late_takes_nothing_from_those_who_came_again",
    ),
    mutation(
        "garbage collection deletes the delivery state together with the message",
        "delivery state of deleted messages stays forever",
        "store/garbage.py",
        "    for group in groups:\n",
        "    for group in groups[:0]:\n",
        f"{_REGISTRATION}::test_a_registered_group_that_is_down_gets_everything",
    ),
    mutation(
        "delivery state is kept until the watermark covers it",
        "finished messages are delivered again by the next owner or after the next read",
        "protocol/watermarks.py",
        "        advance = session.run(state.using, work)\n",
        "        session.run_statement(state.using, lambda cursor: cursor.execute(\n"
        '            "DELETE FROM queue_delivery_state WHERE consumer_group = %s AND topic = %s AND acked = 1"\n'
        '            " AND message_offset <= %s",\n'
        "            [state.group, state.topic, settled],\n"
        "        ))\n"
        "        advance = session.run(state.using, work)\n",
        "protocol/guards/test_watermark.py::test_what_is_done_behind_an_open_message_stays_done",
    ),
    mutation(
        "only the owner of a partition moves its watermark",
        "a former owner writes positions of an earlier registration generation, and messages of the new"
        " generation are lost",
        "protocol/watermarks.py",
        "owned = leases.lock_owned(cursor, state.holder, state.registration_generation, names)",
        "owned = leases.LockedLeases(set(names), set())",
        f"{_LIVES}::test_before_it_has_noticed_a_worker_of_an_earlier_life_can_do_nothing",
    ),
    mutation(
        "a watermark moves in one transaction",
        "another worker takes the lease, or the group unsubscribes, between the check and the update",
        "protocol/watermarks.py",
        "advance = session.run(state.using, work)",
        "advance = session.run_statement(state.using, work)",
        "protocol/guards/test_held_locks.py::test_a_moving_watermark_holds_its_lease",
    ),
    mutation(
        "a claim compares the registration generation",
        "a worker of an earlier generation claims for the new generation, with old positions",
        "store/leases.py",
        "AND r.id = %s AND r.paused = 0",
        "AND r.id <> -%s AND r.paused = 0",
        "protocol/guards/test_generations.py::test_a_lease_of_an_earlier_life_claims_nothing",
    ),
    Mutation(
        "consumer state ends with the registration generation and with the lease",
        "after the group subscribes again, a worker skips messages that it finished before",
        (
            Edit(
                "protocol/membership.py",
                "if known and generation != known:",
                "if not generation:",
            ),
            Edit("protocol/membership.py", "self._drop([name for _, name in some])", "self._drop([])"),
            Edit("protocol/membership.py", "self._drop(names)", "self._drop([])"),
        ),
        ("protocol/guards/test_generations.py::test_a_partition_that_comes_back_in_a_new_life_is_read_anew",),
    ),
    mutation(
        "the id of a dead letter contains the group",
        "if two groups dead-letter one message, one of the dead letters is lost",
        "store/dead_letters.py",
        'f"{offset}:{group}"',
        'f"{offset}"',
        f"{_LETTERS}::test_two_groups_that_fail_one_message_make_two_dead_letters",
    ),
    mutation(
        "the id of a dead letter contains the offset",
        "if a reused id fails again, its second dead letter is lost",
        "store/dead_letters.py",
        'f"{offset}:{group}"',
        'f"{original_id[:99]}:{group}"',
        f"{_LETTERS}::test_an_id_used_again_loses_no_letter",
    ),
    mutation(
        "one transaction stores a dead letter and finishes its delivery",
        "if the worker dies between them, the message is done but in no dead-letter topic",
        "protocol/acknowledging/acknowledger.py",
        "session.run(self.state.using, work) if todo else set()",
        "session.run_statement(self.state.using, work) if todo else set()",
        "protocol/guards/test_held_locks.py::test_a_dead_letter_and_being_done_are_committed_together",
    ),
    mutation(
        "keys and ids are compared byte by byte",
        "`Order-1` and `order-1` are one key, and of two ids that differ only in case, one is never stored",
        "migrations/0001_initial.py",
        f'("partition_key", models.CharField({_EXACT}, max_length=255)),\n'
        f'                ("message_id", models.CharField({_EXACT}, db_column="id", max_length=255)),',
        f'("partition_key", models.CharField({_FOLDED}, max_length=255)),\n'
        f'                ("message_id", models.CharField({_FOLDED}, db_column="id", max_length=255)),',
        f"{_NAMES}::test_ids_that_look_alike_are_different_messages[False]",
    ),
    mutation(
        "a worker picks an unfinished removal at random",
        "a removal that cannot continue blocks all other removals of the topic",
        "protocol/retention/removing.py",
        "random.choice(groups)",
        "groups[0]",
        "features/groups/test_removal.py::test_a_removal_that_cannot_go_on_hinders_no_other[a]",
    ),
    mutation(
        "a group counts as registered only if it is now",
        "in a transaction at REPEATABLE READ, subscribe registers nothing, and later messages are deleted",
        "service/registration.py",
        "if all(offsets.registration(one, group, topic) for one in {alias, fresh}):",
        "if offsets.registration(alias, group, topic):",
        f"{_REGISTRATION}::test_a_group_that_was_unsubscribed_since_the_snapshot_is_registered_again",
    ),
    mutation(
        "the dead letter of a message that fails again after a reset replaces its old one",
        "a purge of the dead letters of before the reset deletes the only record of the new failure",
        "store/dead_letters.py",
        "if cursor.rowcount > 1:",
        "if cursor.rowcount > 2:",
        "features/dead_letters/test_redrive.py::test_a_message_that_fails_again_after_a_reset_has_its_new_failure",
    ),
    mutation(
        "a reset leaves a reader of the log a reader",
        "messages for other groups are deleted before it has read them",
        "service/group_positions.py",
        "reads_log=found.reads_log",
        "reads_log=False",
        "features/groups/test_log_readers.py::test_a_reset_leaves_it_a_reader",
    ),
    mutation(
        "a pass of garbage collection is due if the last one ended in the future",
        "after a clock that was ahead is set back, nothing is deleted until its time comes",
        "store/garbage.py",
        " OR updated_at > {NOW_MS}",
        "",
        f"{_RETENTION}::test_a_pass_that_ended_before_the_clock_was_set_back_delays_nothing",
    ),
    mutation(
        "the command gc waits for a topic that another transaction has locked",
        "it ends early, and says nothing",
        "protocol/retention/garbage_collection.py",
        "                offsets.lock_topic(cursor, self.topic)\n",
        "                pass\n",
        f"{_RETENTION}::test_gc_waits_for_the_topic[1]",
    ),
    mutation(
        "the command gc begins at the first message",
        "it leaves garbage that lies before the place where the workers have stopped",
        "protocol/retention/garbage_collection.py",
        "        session.run(self.using, lambda cursor: garbage.move_cursor(cursor, self.topic, 0, done=False))\n",
        "",
        f"{_RETENTION}::test_gc_begins_at_the_first_message_and_ends_at_the_last",
    ),
)
