"""Guards of groups that read the log by themselves: one reader, no worker, a start that is never where it was not."""

from __future__ import annotations

from .mutation import Mutation, mutation

_FOLLOWING = "test_spark/test_following.py"
_CHECKPOINT = "test_spark/test_checkpoint.py"
_PAGES = "test_spark/test_pages.py"
_ONE = "test_spark/test_one_reader.py"
_SET_BACK = "test_spark/test_archive_set_back.py"
_LET_GO = "test_spark/test_topics_let_go.py"
_GOING_ON = "test_spark/test_going_on.py"
_RACES = "test_interleavings/test_following.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "nothing is delivered to a group that reads the log by itself",
        "its workers' watermarks let messages be deleted that it has not read",
        "service/membership.py",
        "        if registration.reads_log:\n",
        "        if registration is None:\n",
        f"{_FOLLOWING}::test_workers_cannot_consume_for_it",
    ),
    mutation(
        "a group that workers consume for does not begin to read the log by itself",
        "it is at its start, far behind its watermarks, and reads what is deleted meanwhile",
        "service/following.py",
        "    if alive or offsets.was_delivered_to(cursor, group, topic):\n",
        "    if alive:\n",
        f"{_FOLLOWING}::test_a_group_of_workers_is_refused",
    ),
    mutation(
        "a group begins to read the log by itself in a new life",
        "a worker that has just joined it claims, and moves watermarks, until it looks at its group again",
        "service/following.py",
        "    if found:\n        offsets.unregister(cursor, group, topic, members_stay=True)\n",
        "    if found:\n"
        '        cursor.execute("UPDATE queue_offsets SET scan_offset = -1 WHERE id = %s", [found.life])\n'
        "        return Place(found.life, found.start)\n",
        f"{_FOLLOWING}::test_a_worker_that_has_just_joined_claims_nothing_any_more",
    ),
    mutation(
        "who begins to read anew is the group's reader still",
        "two read for it: the one ahead lets messages be deleted that the other one is about to read",
        "spark/follower.py",
        "[self._members[topic]], list(self._members.values())",
        "[self._members[topic]], []",
        f"{_GOING_ON}::test_who_was_replaced_does_not_begin_anew",
    ),
    mutation(
        "one reads the log for a group at a time",
        "the one ahead lets messages be deleted that the other one is about to read",
        "service/following.py",
        "if key[1] != me.name}",
        "if not key}",
        f"{_FOLLOWING}::test_a_second_query_is_refused_while_the_first_lives",
    ),
    mutation(
        "a start is moved in the life that it was read in",
        "a group that was reset or registered anew is done with what nobody has read for it",
        "store/offsets.py",
        "AND partition_key = '' AND id = %s AND scan_offset = %s",
        "AND partition_key = '' AND id + 1 > %s - 1 AND scan_offset + 1 > %s",
        f"{_FOLLOWING}::test_a_group_that_was_changed_by_hand_stops_its_query[subscribed again]",
    ),
    mutation(
        "a start is never moved back",
        "what is deleted already counts as not done",
        "store/offsets.py",
        '" SET offset_acked = GREATEST(offset_acked, %s), updated_at = {NOW_MS}"\n'
        "        \" WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND id = %s",
        '" SET offset_acked = %s, updated_at = {NOW_MS}"\n'
        "        \" WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND id = %s",
        f"{_FOLLOWING}::test_a_start_moves_forward_alone",
    ),
    mutation(
        "a checkpoint is of its group's life",
        "what was deleted while the group was not registered is missing, and nobody is told",
        "spark/follower.py",
        "        if found is None or found.life != life:\n",
        "        if found is None:\n",
        f"{_FOLLOWING}::test_a_checkpoint_of_an_earlier_life_is_refused",
    ),
    mutation(
        "a checkpoint is not behind its group",
        "what another query let be deleted is missing, and nobody is told",
        "spark/follower.py",
        "        if found.above > above:\n",
        "        if not topic:\n",
        f"{_FOLLOWING}::test_a_query_that_fell_behind_its_group_stops",
    ),
    mutation(
        "a batch ends at what is settled",
        "a message that commits late, below a batch's end, is in no batch",
        "spark/query.py",
        "        settler.advance()\n",
        "        settler.advance()\n        return settler._noted[0]\n",
        f"{_FOLLOWING}::test_a_batch_does_not_pass_what_may_still_commit",
    ),
    mutation(
        "a group that begins to read the log locks the topic",
        "a collection that has looked at the groups deletes what the new one was just promised",
        "service/following.py",
        "    known = max(offsets.lock_topic(using, cursor, topic), settled)\n"
        "    offsets.raise_settled(cursor, topic, known)\n",
        "    known = max(offsets.settled(using, topic), settled)\n",
        f"{_RACES}::test_a_reader_registers_while_a_collection_is_under_way",
    ),
    mutation(
        "a group begins to read no higher than what is settled",
        "a message that commits late, below its start, is not read, and deleted",
        "service/following.py",
        "    start = min(above, known)\n",
        "    start = above\n",
        f"{_FOLLOWING}::test_no_start_lies_above_what_is_settled",
    ),
    mutation(
        "who becomes the reader of a group locks the topic",
        "two see that nobody reads for it, and both do",
        "service/following.py",
        "            offsets.lock_topic(using, cursor, topic)\n        for me in held:",
        "            assert topic\n        for me in held:",
        f"{_RACES}::test_two_become_the_reader_at_once",
    ),
    mutation(
        "who leaves a group leaves for itself",
        "a second reader is let in while the first, which took the place of a silent one, is at work",
        "store/heartbeats.py",
        'SET deregistered_at = {NOW_MS}{_ROW} AND incarnation = %s",\n'
        "        [me.group, me.topic, me.name, me.incarnation],\n",
        "SET deregistered_at = {NOW_MS}{_ROW} AND %s > ''\",\n"
        "        [me.group, me.topic, me.name, me.incarnation],\n",
        f"{_FOLLOWING}::test_who_leaves_does_not_take_another_along",
    ),
    mutation(
        "a process that reads for a group leaves it for itself",
        "one that ends slowly leaves for its successor, from the same checkpoint, and a third is let in beside that",
        "spark/follower.py",
        "Holder(self.group, topic, name, self._incarnation)",
        "Holder(self.group, topic, name, begun.query)",
        f"{_ONE}::test_a_process_that_ends_leaves_its_successor_alone",
        f"{_ONE}::test_a_process_whose_successor_reads_moves_nothing",
    ),
    mutation(
        "who joins a topic more is the reader of the others still",
        "a process that stood still takes one topic from its successor, which has taken the others from it: both end",
        "spark/follower.py",
        "        held = list(self._members.values())\n",
        "        held: list[Holder] = []\n",
        f"{_ONE}::test_a_process_that_is_back_joins_no_new_topic_in_place_of_its_successor",
    ),
    mutation(
        "who is behind its group takes nobody's place",
        "a process that stood still ends its successor, which is ahead, and then itself, for it is behind",
        "spark/follower.py",
        "using=using, before=before)",
        "using=using)",
        f"{_ONE}::test_a_process_that_is_back_behind_its_successor_leaves_it_alone",
    ),
    mutation(
        "a query joins its topics all or none",
        "of two processes that are started at once each takes a topic from the other, and both end",
        "service/following.py",
        "    _wait_for_silence(new[0].group, lambda: session.run(using, work))\n",
        "    every = tuple(new)\n"
        "    for new in ([me] for me in every):\n"
        "        _wait_for_silence(every[0].group, lambda: session.run(using, work))\n",
        f"{_RACES}::test_two_processes_of_one_query_join_its_topics_at_once",
    ),
    mutation(
        "a reader that was silent and replaced is the reader no more",
        "it comes back and lets messages be deleted that the one in its place is about to read",
        "service/following.py",
        "                heartbeats.forget_silent(cursor, me)\n",
        "",
        f"{_ONE}::test_a_reader_that_was_replaced_moves_nothing",
        f"{_ONE}::test_a_reader_that_was_replaced_reads_nothing",
    ),
    mutation(
        "a start is moved by the group's reader",
        "one that was silent and replaced lets messages be deleted that the other is about to read",
        "service/following.py",
        "        if me is not None:\n            check_reader(me, using=using)\n",
        "",
        f"{_ONE}::test_a_reader_that_was_replaced_moves_nothing",
    ),
    mutation(
        "no group is done with more than was ever settled",
        "in a database that was set back new messages count as settled before they are stored, and come to no group",
        "service/following.py",
        "        if to > known:\n",
        "        offsets.raise_settled(cursor, topic, to)\n        if to < 0:\n",
        f"{_ONE}::test_a_query_of_a_database_that_was_set_back_settles_nothing[False]",
        f"{_ONE}::test_a_query_of_a_database_that_was_set_back_settles_nothing[True]",
        f"{_ONE}::test_what_commits_late_in_a_database_that_was_set_back_comes_to_every_group[False]",
        f"{_ONE}::test_what_commits_late_in_a_database_that_was_set_back_comes_to_every_group[True]",
        f"{_SET_BACK}::test_what_is_not_settled_any_more_is_not_settled_by_its_archive",
    ),
    mutation(
        "a batch of a group ends at what all know to be settled",
        "its checkpoint is above that when it is started again, and is taken for one of a database that was set back",
        "spark/query.py",
        "        return settler.told if self._follower else settler.settled\n",
        "        return settler.settled\n",
        f"{_ONE}::test_a_batch_ends_at_what_all_know_to_be_settled[False]",
    ),
    mutation(
        "a query that ends by itself ends at what all know to be settled",
        "its last batch is not done, and it is taken for one of a database that was set back when it is started again",
        "spark/planning.py",
        "    return settler.told if told else settler.settled\n",
        "    return settler.settled\n",
        f"{_ONE}::test_a_batch_ends_at_what_all_know_to_be_settled[True]",
    ),
    mutation(
        "a group begins to read the log of all its topics, or of none",
        "a start that is refused has taken a group from its workers, or holds back deletion for ever",
        "service/following.py",
        "    return session.run(using, work)\n\n\ndef _follow(",
        "    return {\n"
        "        topic: session.run(using, lambda cursor: _follow(using, cursor, topic, group, *known))\n"
        "        for topic, known in sorted(wanted.items())\n"
        "    }\n\n\ndef _follow(",
        f"{_ONE}::test_a_start_that_is_refused_for_one_topic_changes_none[registered]",
        f"{_ONE}::test_new_topics_of_which_one_is_refused_change_none",
    ),
    mutation(
        "who runs a batch again becomes the group's reader first",
        "another reads for the group meanwhile, and lets be deleted what the batch is made of",
        "spark/query.py",
        "        follower.resume(using, batch)\n",
        "",
        f"{_ONE}::test_who_runs_a_batch_again_is_the_reader",
    ),
    mutation(
        "nothing above a batch's beginning was deleted when its rows had been counted",
        "what was deleted meanwhile is missing, and no task can know",
        "spark/query.py",
        "            follower.check(using, topic, batch)\n",
        "            follower.lives\n",
        f"{_ONE}::test_what_is_deleted_while_a_batch_is_planned_is_told",
        f"{_ONE}::test_a_reader_that_was_replaced_reads_nothing",
    ),
    mutation(
        "a topic that is read no more is not read for its group",
        "its log is kept for ever: who unsubscribes the group ends the query, or has it registered again",
        "spark/follower.py",
        "for topic in told.next if self.options.reads(topic)]\n",
        "for topic in told.next]\n",
        f"{_LET_GO}::test_a_topic_that_is_read_no_more_is_let_go[false]",
        f"{_LET_GO}::test_a_topic_that_is_read_no_more_is_let_go[true]",
    ),
    mutation(
        "a batch that was planned is read whole, also of a topic that is read no more",
        "who reads that topic again goes on behind the batch, of which nobody has read it",
        "spark/query.py",
        "or (above < upto and follower.holds(using, topic, batch))\n",
        "\n",
        f"{_LET_GO}::test_a_batch_that_was_planned_is_whole",
    ),
    mutation(
        "a planner that is told to end lets go of its locks first",
        "it waits for a lock of its own, for minutes, and all that changes the topic waits for it",
        "spark/query.py",
        "        self._line.close()\n",
        "",
        "test_spark/test_planner_signals.py::"
        "test_a_planner_that_is_told_to_end_while_it_holds_the_topic_ends_at_once",
    ),
    mutation(
        "where a batch begins all is done",
        "the last batch of a stream is kept in the log until another one comes, perhaps for ever",
        "spark/query.py",
        "        self.done(begun)\n        if (wait",
        "        if (wait",
        f"{_FOLLOWING}::test_what_a_batch_begins_with_is_done",
    ),
    mutation(
        "a group follows its checkpoint through a batch that another process has planned",
        "what was done is kept in the log until the query looks for the next batch, perhaps for ever",
        "spark/query.py",
        "            self._follower.planned(ended)\n",
        "            self._follower.lives\n",
        f"{_CHECKPOINT}::test_a_batch_that_is_run_again_is_done_when_it_is_durable[stopped]",
    ),
    mutation(
        "a group follows its own query's checkpoint",
        "it is done with what another query has read",
        "spark/checkpoint.py",
        '                if found.get("query") == query and "topics" in found:\n',
        '                if "topics" in found:\n',
        f"{_CHECKPOINT}::test_another_query_s_checkpoint_moves_nobody",
    ),
    mutation(
        "of a checkpoint what is committed counts",
        "a batch that was planned when its query was killed is deleted before it was read",
        "spark/checkpoint.py",
        'self._files.names("commits")',
        'self._files.names("offsets")',
        f"{_CHECKPOINT}::test_a_batch_that_is_planned_and_not_durable_is_not_done",
        f"{_CHECKPOINT}::test_a_query_that_is_stopped_is_done_with_its_last_durable_batch",
    ),
    mutation(
        "a checkpoint moves a group in the life that it was read in",
        "a group that was reset, or registered anew, is done with what nobody has read for it",
        "spark/follower.py",
        "found.lives[topic], found.above(topic)",
        "self._places[topic].life, found.above(topic)",
        f"{_CHECKPOINT}::test_a_group_that_was_changed_by_hand_is_not_moved_by_a_checkpoint",
    ),
    mutation(
        "a page has as many lines as rows",
        "messages at the end of a page that the server cut off are not read, and nobody is told",
        "spark/batches.py",
        "        if table.num_rows != block.rows:\n",
        "        if table.num_rows < 0:\n",
        f"{_PAGES}::test_a_block_without_its_last_lines_is_noticed",
    ),
    mutation(
        "a payload in a line is as long as it is stored",
        "one that holds what stands between values, or for null, is read as something else",
        "spark/batches.py",
        "    if not pc.all(pc.equal(found, lengths), min_count=0).as_py():\n",
        "    if len(found) < len(lengths):\n",
        rf"{_PAGES}::test_each_odd_payload_is_told_or_noticed[b'\\x1e']",
    ),
    mutation(
        "payloads that are joined are as long together as they are stored",
        "those at the end of a page that the server cut off are read as whatever lies behind it in memory",
        "spark/batches.py",
        "    if ends[-1].as_py() != len(joined):\n",
        "    if ends[-1].as_py() < 0:\n",
        f"{_PAGES}::test_a_block_without_its_last_payloads_is_noticed",
    ),
)
