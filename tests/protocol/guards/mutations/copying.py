"""Guards of replay and backfill: each copy is stored once, and a group gets all of its past in order."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_COPYING = "spark/test_copying.py"
_SEAM = "spark/test_backfilling.py"
_BORDER = "spark/test_originals.py"
_AGAIN = "spark/test_replay_again.py"
_SETTINGS = "spark/test_session_settings.py"
_LOST = "spark/test_replay_lost_server.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a replay reads its progress in the transaction that stores the copies",
        "a repeated replay stores copies again that were consumed and deleted",
        "spark/database/copying.py",
        "        rest = [copy for copy in copies if copy.offset > mark.position]\n",
        "        rest = list(copies)\n",
        f"{_COPYING}::test_what_was_eaten_and_deleted_is_not_stored_again",
    ),
    mutation(
        "a process that stores copies locks the progress row of its lane",
        "two processes at once store the same copies, if the first copies are deleted in between",
        "spark/sql/copies.py",
        'cursor.execute(f"{_MARK} FOR UPDATE", [topic, name])',
        "cursor.execute(_MARK, [topic, name])",
        f"{_COPYING}::test_of_two_at_once_the_second_believes_the_first_whose_copies_are_gone",
    ),
    mutation(
        "a backfill stores the past only for the registration generation with which it began",
        "a group that was registered again gets the past after the present",
        "spark/database/copying.py",
        "        if run.generation is not None:\n            check_group(cursor, run)\n",
        "",
        f"{_SEAM}::test_the_past_is_not_stored_for_another_life_of_the_group",
    ),
    mutation(
        "a message that is copied behind its past is done for the group",
        "the group gets it twice, first before its past",
        "spark/database/backfilling.py",
        "            copies.acknowledge(cursor, self.run.group, self.run.topic, done)\n",
        "",
        f"{_SEAM}::test_the_past_comes_before_the_present",
    ),
    mutation(
        "a backfill ends only after it has read beyond its newest copy",
        "a message that another publisher committed meanwhile is delivered before its past",
        "spark/database/backfilling.py",
        "        return self._done >= self._newest\n",
        "        return True\n",
        f"{_SEAM}::test_what_commits_between_the_look_and_the_copies_is_found",
    ),
    mutation(
        "a process that copies knows the copies of other processes",
        "it takes an older copy for the newest, and a message is delivered before its past",
        "spark/database/backfilling.py",
        "            self._newest_copies.clear()\n            self._newest = max",
        "            self._newest = max",
        f"{_SEAM}::test_two_processes_sew_the_same_seam",
    ),
    mutation(
        "a backfill ends only if no other process has made copies since",
        "the group is resumed while messages lie below these copies",
        "spark/database/backfilling.py",
        "        if mark is not None and mark.number != number:\n            return False\n",
        "",
        f"{_SEAM}::test_two_processes_sew_the_same_seam",
    ),
    mutation(
        "a backfill counts as done only up to the settled offset",
        "a message that commits late is delivered before its past",
        "spark/database/backfilling.py",
        "            time.sleep(0.02)\n        return found\n",
        "            time.sleep(0.02)\n        return log.newest(self.using, self.run.topic)\n",
        f"{_SEAM}::test_what_commits_late_is_waited_for",
    ),
    mutation(
        "a group stays paused while its past is stored",
        "the group gets the present before the past, and its messages are copied while it consumes them",
        "spark/database/copying.py",
        "    if (found.generation, found.paused) != (run.generation, True):\n",
        "    if found.generation != run.generation:\n",
        f"{_SEAM}::test_a_group_that_was_changed_by_hand_is_given_nothing_more[resumed]",
    ),
    mutation(
        "a replay reads the archive again after it holds back deletion",
        "a batch that was archived and deleted meanwhile is in neither part",
        "spark/replays/originals.py",
        "        archive = open_archive(self.source)\n"
        "        archived = archive.upto(topic) if archive else 0\n"
        "        if archive and not begun",
        "        archive, archived = first.archive, first.archived\n        if archive and not begun",
        f"{_BORDER}::test_the_archive_is_looked_at_again_when_deletion_is_held_back",
    ),
    mutation(
        "a backfill reports a topic that the archive lacks before it registers a group",
        "it fails later, and its paused group holds back deletion forever",
        "spark/replays/originals.py",
        "        if archive and not archived:\n            archive.select_topics(topic)",
        "        if not archived:\n            pass",
        f"{_BORDER}::test_an_archive_that_lacks_the_topic_is_told_and_nothing_is_held",
    ),
    mutation(
        "a replay checks that the archive's group has held back deletion all the time",
        "messages that were deleted above the archive are missing, without an error",
        "spark/archives/topic_state.py",
        "    if position is not None and position.generation == state.generation and position.above <= upto:\n",
        "    if position is not None:\n",
        f"{_BORDER}::test_a_gap_is_an_error_and_nothing_is_held[registered anew]",
        f"{_BORDER}::test_a_gap_is_an_error_and_nothing_is_held[moved]",
    ),
    Mutation(
        "a run that was killed before it began checks for a gap again",
        "the repeated run ends without the deleted messages, and reports no error",
        (
            Edit(
                "spark/replays/originals.py",
                "        generation = following.follow(",
                "        known = following.position(topic, group, using=using)\n        generation = following.follow(",
            ),
            Edit(
                "spark/replays/originals.py", "not begun and gap_is_error", "known is None and gap_is_error"
            ),
        ),
        (
            f"{_BORDER}::test_a_gap_is_an_error_though_a_killed_run_has_left_its_guard",
            f"{_BORDER}::test_a_gap_is_an_error_though_the_connection_is_lost_while_it_is_looked_for",
        ),
    ),
    mutation(
        "a run that has begun checks that its own group has held back deletion",
        "messages that were deleted while this group was unsubscribed are missing, without an error",
        "spark/replays/originals.py",
        "        if begun and gap_is_error:\n",
        "        if begun and gap_is_error and following.position(topic, group, using=using):\n",
        f"{_BORDER}::test_a_guard_that_was_unsubscribed_has_held_nothing",
    ),
    mutation(
        "a run begins only under the registration generation that checked for a gap",
        "messages that were deleted between two registrations are missing, without an error",
        "spark/replays/replay_run.py",
        "(position is not None and position.generation == originals.generation)\n",
        "(position is not None)\n",
        f"{_AGAIN}::test_what_was_given_up_meanwhile_is_not_begun[registered anew]",
    ),
    mutation(
        "a continued run checks that the archive reaches the start of its own group",
        "messages between an older copy of the archive and this start are missing, without an error",
        "spark/replays/originals.py",
        "    if found.above > archived:\n",
        "    if found.above < 0:\n",
        f"{_BORDER}::test_an_archive_that_ends_below_the_guard_leaves_a_gap",
    ),
    mutation(
        "a run's own group starts at or below the settled offset, wherever the archive ends",
        "in a restored database, new messages count as settled before they are stored, and no group gets"
        " them",
        "spark/replays/originals.py",
        "first.archived, first.settled,",
        "first.archived, first.upto,",
        f"{_BORDER}::test_an_archive_above_what_is_settled_settles_nothing",
    ),
    mutation(
        "a run moves its leftover group back to the end of the archive",
        "messages in between are deleted before the run reads them",
        "store/offsets.py",
        ' SET offset_acked = %s, updated_at = {NOW_MS}"\n',
        ' SET updated_at = {NOW_MS} + 0 * %s"\n',
        f"{_BORDER}::test_a_guard_that_is_left_over_goes_back_to_where_this_archive_ends",
    ),
    mutation(
        "times in a condition are UTC",
        "a run that continues in another time zone leaves out messages that neither part selects",
        "spark/reader/conditions.py",
        'IN_UTC = {"spark.sql.session.timeZone": "UTC"}\n',
        "IN_UTC: dict[str, str] = {}\n",
        f"{_SETTINGS}::test_times_in_a_condition_are_utc_wherever_it_is_asked[compared]",
    ),
    mutation(
        "a run gives up a replay only if a message cannot answer its condition",
        "if a Spark Connect server is away for a moment, the messages to replay are released and deleted",
        "spark/replays/replay_run.py",
        "        except ConditionFailed:  # For other errors the replay can continue later.\n",
        "        except Exception:\n",
        f"{_LOST}::test_a_server_that_is_lost_gives_no_replay_up[server]",
    ),
    mutation(
        "a process that gives up a run locks the progress rows of its lanes",
        "copies that another process stores meanwhile are forgotten and stored again",
        "spark/database/copying.py",
        "    lanes = [sql.locked_mark(cursor, run.topic, name) for name in run.all_lanes]\n",
        "    lanes = [sql.mark(cursor.db.alias, run.topic, name) for name in run.all_lanes]\n",
        f"{_COPYING}::test_a_run_that_has_stored_something_is_not_given_up",
    ),
    mutation(
        "a call that ends a finished backfill again succeeds",
        "a backfill whose commit result was lost fails, and a user who starts again delivers everything"
        " twice",
        "spark/database/backfilling.py",
        "        if head is not None and head.finished and head.number == run.generation:\n",
        "        if head is None:\n",
        f"{_SEAM}::test_the_end_may_be_said_twice",
    ),
)
