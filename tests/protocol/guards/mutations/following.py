"""Guards of groups that read the log directly: one reader, no worker, and a start position that stays correct."""

from __future__ import annotations

from .mutation import Mutation, mutation

_FOLLOWING = "spark/test_following.py"
_CHECKPOINT = "spark/test_checkpoint.py"
_PAGES = "spark/test_pages.py"
_ONE = "spark/test_one_reader.py"
_SET_BACK = "spark/test_archive_restored_log.py"
_LET_GO = "spark/test_removed_topics.py"
_GOING_ON = "spark/test_fail_on_data_loss.py"
_RACES = "protocol/interleavings/test_following.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "workers deliver nothing to a group that reads the log directly",
        "their watermarks allow deletion of messages that the group has not read",
        "protocol/membership.py",
        "        if registration.reads_log:\n",
        "        if registration is None:\n",
        f"{_FOLLOWING}::test_workers_cannot_consume_for_it",
    ),
    mutation(
        "a group with workers cannot start to read the log directly",
        "it starts far behind its watermarks, and the messages there are deleted while it reads",
        "spark/database/following.py",
        "    if alive or offsets.was_delivered_to(cursor, group, topic):\n",
        "    if alive:\n",
        f"{_FOLLOWING}::test_a_group_of_workers_is_refused",
    ),
    mutation(
        "a group that starts to read the log directly gets a new registration generation",
        "a worker that has just joined claims messages and moves watermarks until its next check",
        "spark/database/following.py",
        "    if found:\n        offsets.unregister(cursor, group, topic, members_stay=True)\n",
        "    if found:\n"
        '        cursor.execute("UPDATE queue_offsets SET scan_offset = -1 WHERE id = %s", [found.generation])\n'
        "        return ReaderPosition(found.generation, found.start)\n",
        f"{_FOLLOWING}::test_a_worker_that_has_just_joined_claims_nothing_any_more",
    ),
    mutation(
        "a reader that registers its group again checks that it is still the reader",
        "two readers run, and the faster reader allows deletion of messages that the other has not read",
        "spark/streams/group_reader.py",
        "[self._members[topic]], list(self._members.values())",
        "[self._members[topic]], []",
        f"{_GOING_ON}::test_who_was_replaced_does_not_begin_anew",
    ),
    mutation(
        "only one reader at a time reads the log for a group",
        "the faster reader allows deletion of messages that the other reader has not read",
        "spark/database/following.py",
        "if key[1] != reader.name\n        }",
        "if not key\n        }",
        f"{_FOLLOWING}::test_a_second_query_is_refused_while_the_first_lives",
    ),
    mutation(
        "the start of a group moves only within one registration generation",
        "after a reset or a new registration, unread messages count as done",
        "store/offsets.py",
        "AND partition_key = '' AND id = %s AND scan_offset = %s",
        "AND partition_key = '' AND id + 1 > %s - 1 AND scan_offset + 1 > %s",
        f"{_FOLLOWING}::test_a_group_that_was_changed_by_hand_stops_its_query[subscribed again]",
    ),
    mutation(
        "the start of a group never moves back",
        "deleted messages count as not done",
        "store/offsets.py",
        '" SET offset_acked = GREATEST(offset_acked, %s), updated_at = {NOW_MS}"\n'
        "        \" WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND id = %s",
        '" SET offset_acked = %s, updated_at = {NOW_MS}"\n'
        "        \" WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND id = %s",
        f"{_FOLLOWING}::test_a_start_moves_forward_alone",
    ),
    mutation(
        "a checkpoint belongs to one registration generation",
        "messages that were deleted while the group was not registered are missing, without an error",
        "spark/streams/group_reader.py",
        "        if found is None or found.generation != generation:\n",
        "        if found is None:\n",
        f"{_FOLLOWING}::test_a_checkpoint_of_an_earlier_life_is_refused",
    ),
    mutation(
        "a query refuses a checkpoint that is behind its group",
        "messages that another query read and allowed to delete are missing, without an error",
        "spark/streams/group_reader.py",
        "        if found.above > above:\n",
        "        if not topic:\n",
        f"{_FOLLOWING}::test_a_query_that_fell_behind_its_group_stops",
    ),
    mutation(
        "a group's batch ends at the settled offset",
        "a message that commits late below the end of a batch is in no batch",
        "spark/streams/query.py",
        "        settler.advance()\n",
        "        settler.advance()\n        return settler._noted.offset\n",
        f"{_FOLLOWING}::test_a_batch_does_not_pass_what_may_still_commit",
    ),
    mutation(
        "a group that starts to read the log directly locks the topic",
        "garbage collection deletes messages that the new group was just promised",
        "spark/database/following.py",
        "    settled = max(offsets.lock_topic(cursor, topic), settled)\n"
        "    offsets.advance_settled(cursor, topic, settled)\n",
        "    settled = max(offsets.settled(using, topic), settled)\n",
        f"{_RACES}::test_a_reader_registers_while_a_collection_is_under_way",
    ),
    mutation(
        "a group that reads the log directly starts at or below the settled offset",
        "a message that commits late below its start is not read, and is deleted",
        "spark/database/following.py",
        "    start = min(above, settled)\n",
        "    start = above\n",
        f"{_FOLLOWING}::test_no_start_lies_above_what_is_settled",
    ),
    mutation(
        "a process that becomes the reader of a group locks the topic",
        "two processes see no reader, and both become the reader",
        "spark/database/following.py",
        "            offsets.lock_topic(cursor, topic)\n        for reader in joined:",
        "            assert topic\n        for reader in joined:",
        f"{_RACES}::test_two_become_the_reader_at_once",
    ),
    mutation(
        "a reader that leaves deregisters only itself",
        "a second reader joins while the reader that replaced a silent reader still works",
        "store/heartbeats.py",
        "    if cursor.fetchone():\n",
        "    if True:\n",
        f"{_FOLLOWING}::test_who_leaves_does_not_take_another_along",
    ),
    mutation(
        "a reader process that ends deregisters only its own incarnation",
        "a process that ends slowly deregisters its successor, and a third process joins",
        "spark/streams/group_reader.py",
        "Holder(self.group, topic, name, created_at.incarnation)",
        "Holder(self.group, topic, name, start.query)",
        f"{_ONE}::test_a_process_that_ends_leaves_its_successor_alone",
        f"{_ONE}::test_a_process_whose_successor_reads_moves_nothing",
    ),
    mutation(
        "a process that joins another topic checks that it still reads its other topics",
        "a suspended process takes one topic from its successor, and both end",
        "spark/streams/group_reader.py",
        "        joined = list(self._members.values())\n",
        "        joined: list[Holder] = []\n",
        f"{_ONE}::test_a_process_that_is_back_joins_no_new_topic_in_place_of_its_successor",
    ),
    mutation(
        "a process behind its group replaces no other reader",
        "a suspended process ends its successor, and then ends because it is behind",
        "spark/streams/group_reader.py",
        "using=using, before=before)",
        "using=using)",
        f"{_ONE}::test_a_process_that_is_back_behind_its_successor_leaves_it_alone",
    ),
    mutation(
        "of two processes with one checkpoint, the newer process reads",
        "a suspended process ends its successor during the first batch, and Spark then ends the process"
        " itself",
        "spark/streams/group_reader.py",
        "                following.check_newest(reader, created_at.is_before, using=using)\n",
        "                pass\n",
        f"{_ONE}::test_a_process_that_is_back_in_its_successor_s_first_batch_leaves_it_alone[true]",
        f"{_ONE}::test_a_process_that_is_back_in_its_successor_s_first_batch_leaves_it_alone[false]",
    ),
    mutation(
        "a query joins all of its topics or none",
        "two processes that start at once take a topic from each other, and both end",
        "spark/database/following.py",
        "    _wait_until_alone(new[0].group, lambda: session.run(using, work))\n",
        "    every = tuple(new)\n"
        "    for new in ([me] for me in every):\n"
        "        _wait_until_alone(every[0].group, lambda: session.run(using, work))\n",
        f"{_RACES}::test_two_processes_of_one_query_join_its_topics_at_once",
    ),
    mutation(
        "a silent reader that was replaced is no longer the reader",
        "it continues and allows deletion of messages that its successor has not read",
        "spark/database/following.py",
        "                heartbeats.delete_others(cursor, reader)\n",
        "",
        f"{_ONE}::test_a_reader_that_was_replaced_moves_nothing",
        f"{_ONE}::test_a_reader_that_was_replaced_reads_nothing",
    ),
    mutation(
        "only the group's reader moves the group's start",
        "a silent reader that was replaced allows deletion of messages that its successor has not read",
        "spark/database/following.py",
        "        if reader is not None:\n            check_reader(reader, using=using)\n",
        "",
        f"{_ONE}::test_a_reader_that_was_replaced_moves_nothing",
    ),
    mutation(
        "no group is done above the highest settled offset",
        "in a restored database, new messages count as settled before they are stored, and no group gets"
        " them",
        "spark/database/following.py",
        "        if to > settled:\n",
        "        offsets.advance_settled(cursor, topic, to)\n        if to < 0:\n",
        f"{_ONE}::test_a_query_of_a_database_that_was_set_back_settles_nothing[False]",
        f"{_ONE}::test_a_query_of_a_database_that_was_set_back_settles_nothing[True]",
        f"{_ONE}::test_what_commits_late_in_a_database_that_was_set_back_comes_to_every_group[False]",
        f"{_ONE}::test_what_commits_late_in_a_database_that_was_set_back_comes_to_every_group[True]",
        f"{_SET_BACK}::test_what_is_not_settled_any_more_is_not_settled_by_its_archive",
    ),
    mutation(
        "a group's batch ends at the settled offset that the database stores",
        "after a restart its checkpoint is above that offset, and the query reports a restored database",
        "spark/streams/query.py",
        "        return settler.shared_settled if self._group_reader else settler.settled\n",
        "        return settler.settled\n",
        f"{_ONE}::test_a_batch_ends_at_what_all_know_to_be_settled[False]",
    ),
    mutation(
        "a query that ends by itself ends at the settled offset that the database stores",
        "its last batch is not marked as done, and after a restart the query reports a restored database",
        "spark/reader/settling.py",
        "settler.shared_settled if shared else settler.settled",
        "settler.settled",
        f"{_ONE}::test_a_batch_ends_at_what_all_know_to_be_settled[True]",
    ),
    mutation(
        "a group starts to read all of its topics directly, or none",
        "a refused start takes a group from its workers or holds back deletion forever",
        "spark/database/following.py",
        "    return session.run(using, work)\n\n\ndef _follow(",
        "    return {\n"
        "        topic: session.run(using, lambda cursor: _follow(using, cursor, topic, group, *target, lower))\n"
        "        for topic, target in sorted(targets.items())\n"
        "    }\n\n\ndef _follow(",
        f"{_ONE}::test_a_start_that_is_refused_for_one_topic_changes_none[registered]",
        f"{_ONE}::test_new_topics_of_which_one_is_refused_change_none",
    ),
    mutation(
        "a process that repeats a batch becomes the group's reader first",
        "another process reads for the group and allows deletion of the batch's messages",
        "spark/streams/query.py",
        "        group_reader.resume(using, batch)\n",
        "",
        f"{_ONE}::test_who_runs_a_batch_again_is_the_reader",
    ),
    mutation(
        "after it counts a batch's rows, the planner checks that none was deleted",
        "messages that were deleted during planning are missing, and no task notices",
        "spark/streams/query.py",
        "            group_reader.check(using, topic, batch)\n",
        "            group_reader.generations\n",
        f"{_ONE}::test_what_is_deleted_while_a_batch_is_planned_is_told",
        f"{_ONE}::test_a_reader_that_was_replaced_reads_nothing",
    ),
    mutation(
        "a query releases a topic that its options no longer include",
        "its log is kept forever, because unsubscribing the group stops the query or registers the group"
        " again",
        "spark/streams/group_reader.py",
        "for topic in offsets.next if self.options.reads(topic)]\n",
        "for topic in offsets.next]\n",
        f"{_LET_GO}::test_a_topic_that_is_read_no_more_is_let_go[false]",
        f"{_LET_GO}::test_a_topic_that_is_read_no_more_is_let_go[true]",
    ),
    mutation(
        "a planned batch is read whole, even if the options no longer include one of its topics",
        "a later query on that topic continues after the batch, which was never read",
        "spark/streams/query.py",
        "or (above < upto and group_reader.holds_back_deletion(using, topic, batch))\n",
        "\n",
        f"{_LET_GO}::test_a_batch_that_was_planned_is_whole",
    ),
    mutation(
        "a planner that must stop releases its locks first",
        "it waits minutes for its own lock, and every change of the topic waits for it",
        "spark/streams/query.py",
        "        self._connection.close()\n",
        "",
        "spark/test_planner_signals.py::"
        "test_a_planner_that_is_told_to_end_while_it_holds_the_topic_ends_at_once",
    ),
    mutation(
        "when a batch begins, the group is done with everything before it",
        "the last batch of a stream stays in the log until the next batch, perhaps forever",
        "spark/streams/query.py",
        "        self.done(start)\n        if (wait",
        "        if (wait",
        f"{_FOLLOWING}::test_what_a_batch_begins_with_is_done",
    ),
    mutation(
        "a group follows its checkpoint through a batch that another process planned",
        "finished messages stay in the log until the query plans the next batch, perhaps forever",
        "spark/streams/query.py",
        "            self._group_reader.note_planned(ended)\n",
        "            self._group_reader.generations\n",
        f"{_CHECKPOINT}::test_a_batch_that_is_run_again_is_done_when_it_is_durable[stopped]",
    ),
    mutation(
        "a group follows only the checkpoint of its own query",
        "it counts messages as done that only another query has read",
        "spark/streams/checkpoint.py",
        '                if found.get("query") == query and "topics" in found:\n',
        '                if "topics" in found:\n',
        f"{_CHECKPOINT}::test_another_query_s_checkpoint_moves_nobody",
    ),
    mutation(
        "only committed batches of a checkpoint count",
        "a batch that was planned before a kill is deleted before it is read",
        "spark/streams/checkpoint.py",
        'self._names("commits")',
        'self._names("offsets")',
        f"{_CHECKPOINT}::test_a_batch_that_is_planned_and_not_durable_is_not_done",
        f"{_CHECKPOINT}::test_a_query_that_is_stopped_is_done_with_its_last_durable_batch",
    ),
    mutation(
        "a checkpoint moves a group only within its registration generation",
        "after a reset or a new registration, unread messages count as done",
        "spark/streams/group_reader.py",
        "found.generations[topic], found.above(topic)",
        "self._positions[topic].generation, found.above(topic)",
        f"{_CHECKPOINT}::test_a_group_that_was_changed_by_hand_is_not_moved_by_a_checkpoint",
    ),
    mutation(
        "a page must contain as many lines as rows",
        "if the server cut off the end of a page, its last messages are missing, without an error",
        "spark/reader/batches.py",
        "        if table.num_rows != block.rows:\n",
        "        if table.num_rows < 0:\n",
        f"{_PAGES}::test_a_block_without_its_last_lines_is_noticed",
    ),
    mutation(
        "a payload in a line must have its stored length",
        "a payload that contains a separator or the null marker is read wrongly",
        "spark/reader/batches.py",
        "    if not pc.all(pc.equal(found, lengths), min_count=0).as_py():\n",
        "    if len(found) < len(lengths):\n",
        rf"{_PAGES}::test_each_odd_payload_is_told_or_noticed[b'\\x1e']",
    ),
    mutation(
        "joined payloads must have the sum of their stored lengths",
        "if the server cut off a page, its last payloads are read from unrelated memory",
        "spark/reader/batches.py",
        "    if ends[-1].as_py() != len(joined):\n",
        "    if ends[-1].as_py() < 0:\n",
        f"{_PAGES}::test_a_block_without_its_last_payloads_is_noticed",
    ),
    mutation(
        "a query's heartbeats wait for no lock of the topic",
        "another query replaces it while a caller's transaction keeps the topic's row locked",
        "spark/database/heartbeating.py",
        "                with lock_waits_of_a_second(using):  # The next heartbeat must not wait for it.\n",
        "                if True:\n",
        f"{_CHECKPOINT}::test_heartbeats_continue_while_the_topics_row_is_locked",
    ),
)
