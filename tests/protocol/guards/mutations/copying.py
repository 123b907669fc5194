"""Guards of copies: each is stored once, and a group that is given the past gets all of it in order."""

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
        "how far copies are is read in the transaction that stores them",
        "a replay that is run again stores anew what was eaten and deleted",
        "spark/database/copying.py",
        "        rest = [copy for copy in copies if copy.offset > mark.position]\n",
        "        rest = list(copies)\n",
        f"{_COPYING}::test_what_was_eaten_and_deleted_is_not_stored_again",
    ),
    mutation(
        "who stores copies of a lane locks it",
        "two that run at once store the same, if the first one's are deleted in between",
        "spark/sql/copies.py",
        '"SELECT offset_acked, scan_offset, paused, updated_at FROM queue_offsets {_INDEX}{_ROW} FOR UPDATE"',
        '"SELECT offset_acked, scan_offset, paused, updated_at FROM queue_offsets {_INDEX}{_ROW}"',
        f"{_COPYING}::test_of_two_at_once_the_second_believes_the_first_whose_copies_are_gone",
    ),
    mutation(
        "the past is stored for the life of the group that was registered for it",
        "a group that somebody has registered anew is given the past, too, behind the present",
        "spark/database/copying.py",
        "        if run.life is not None:\n            check_group(cursor, run)\n",
        "",
        f"{_SEAM}::test_the_past_is_not_stored_for_another_life_of_the_group",
    ),
    mutation(
        "a message that is copied behind its past is done for the group",
        "it is given to the group twice, first before its past",
        "spark/database/backfilling.py",
        "            seam.finish(cursor, self.run.group, self.run.topic, done)\n",
        "",
        f"{_SEAM}::test_the_past_comes_before_the_present",
    ),
    mutation(
        "the seam is whole when it has looked beyond its newest copy",
        "what another publisher committed between a look and the copies comes before its past",
        "spark/database/backfilling.py",
        "        return self._done >= self._newest\n",
        "        return True\n",
        f"{_SEAM}::test_what_commits_between_the_look_and_the_copies_is_found",
    ),
    mutation(
        "the seam is done with no more than what is settled",
        "a message that commits late comes before its past",
        "spark/database/backfilling.py",
        "            time.sleep(0.02)\n        return found\n",
        "            time.sleep(0.02)\n        return log.newest(self.using, self.run.topic)\n",
        f"{_SEAM}::test_what_commits_late_is_waited_for",
    ),
    mutation(
        "while the past is stored the group stays paused",
        "it is given the present before the past, and its messages are copied under its hands",
        "spark/database/copying.py",
        "    if found != (run.life, True):\n",
        "    if found[0] != run.life:\n",
        f"{_SEAM}::test_a_group_that_was_changed_by_hand_is_given_nothing_more[resumed]",
    ),
    mutation(
        "an archive is looked at again when deletion is held back",
        "a batch that was archived and deleted meanwhile is in neither part",
        "spark/replays/originals.py",
        "    archive = opened(path)\n    archived = archive.upto(topic) if archive else 0\n    if archive",
        "    archive, archived = first.archive, first.archived\n    if archive",
        f"{_BORDER}::test_the_archive_is_looked_at_again_when_deletion_is_held_back",
    ),
    mutation(
        "an archive that lacks the topic is told before anything is held",
        "a backfill fails when its group is registered: paused, and deletion waits for it for ever",
        "spark/replays/originals.py",
        "    if not archived and archive is not None:\n        archive.chosen(topic)",
        "    if not archived:\n        pass",
        f"{_BORDER}::test_an_archive_that_lacks_the_topic_is_told_and_nothing_is_held",
    ),
    mutation(
        "the archive's group has held back deletion all the time",
        "what was deleted above the archive is missing, and nobody is told",
        "spark/archives/topic_state.py",
        "    if place is not None and place.life == standing.life and place.above <= upto:\n",
        "    if place is not None:\n",
        f"{_BORDER}::test_a_gap_is_an_error_and_nothing_is_held[registered anew]",
        f"{_BORDER}::test_a_gap_is_an_error_and_nothing_is_held[moved]",
    ),
    Mutation(
        "a gap is looked for until the run has begun",
        "one that was killed while it looked is run again, and ends without what was deleted; nobody is told",
        (
            Edit(
                "spark/replays/originals.py",
                "    life = following.follow(",
                "    known = following.place(topic, group, using=using)\n    life = following.follow(",
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
        "since a run has begun its guard has held back deletion",
        "what was deleted while the guard was unsubscribed is missing, and nobody is told",
        "spark/replays/originals.py",
        "    if begun and gap_is_error:\n",
        "    if begun and gap_is_error and following.place(topic, group, using=using):\n",
        f"{_BORDER}::test_a_guard_that_was_unsubscribed_has_held_nothing",
    ),
    mutation(
        "a run is begun behind the life of its guard that looked for a gap",
        "what was deleted while the guard was given up and registered anew is missing, and nobody is told",
        "spark/replays/replay_run.py",
        "        return place is not None and place.life == found.life\n",
        "        return place is not None\n",
        f"{_AGAIN}::test_what_was_given_up_meanwhile_is_not_begun[registered anew]",
    ),
    mutation(
        "an archive reaches the guard of the run that goes on with it",
        "what lies between an older copy of the archive and the guard is missing, and nobody is told",
        "spark/replays/originals.py",
        "    if found.above > archived:\n",
        "    if found.above < 0:\n",
        f"{_BORDER}::test_an_archive_that_ends_below_the_guard_leaves_a_gap",
    ),
    mutation(
        "a guard begins no higher than what is settled, wherever the archive ends",
        "in a database that was set back new messages count as settled before they are stored, and come to no group",
        "spark/replays/originals.py",
        "first.archived, first.settled,",
        "first.archived, first.upto,",
        f"{_BORDER}::test_an_archive_above_what_is_settled_settles_nothing",
    ),
    mutation(
        "a guard that is left over goes back to where the archive ends",
        "what lies between is deleted while it is to be read",
        "store/offsets.py",
        ' SET offset_acked = %s, updated_at = {NOW_MS}"\n',
        ' SET updated_at = {NOW_MS} + 0 * %s"\n',
        f"{_BORDER}::test_a_guard_that_is_left_over_goes_back_to_where_this_archive_ends",
    ),
    mutation(
        "times in a condition are UTC",
        "a run that goes on in another time zone leaves out what neither part of it has chosen",
        "spark/replays/choice.py",
        'IN_UTC = {"spark.sql.session.timeZone": "UTC"}\n',
        "IN_UTC: dict[str, str] = {}\n",
        f"{_SETTINGS}::test_times_in_a_condition_are_utc_wherever_it_is_asked[compared]",
    ),
    mutation(
        "a replay is given up where a message cannot answer its condition, and for nothing else",
        "a Spark Connect server that is away for a moment lets go what is to be replayed, and it is deleted",
        "spark/replays/replay_run.py",
        "        except ConditionFailed:  # For other errors the replay can continue later.\n",
        "        except Exception:\n",
        f"{_LOST}::test_a_server_that_is_lost_gives_no_replay_up[server]",
    ),
    mutation(
        "who gives up a run locks its lanes",
        "copies that another process stores at this moment are forgotten, and are stored again",
        "spark/database/copying.py",
        "    lanes = [store.locked_mark(cursor, run.topic, name) for name in run.all_lanes]\n",
        "    lanes = [store.mark(cursor.db.alias, run.topic, name) for name in run.all_lanes]\n",
        f"{_COPYING}::test_a_run_that_has_stored_something_is_not_given_up",
    ),
    mutation(
        "what has ended is ended, whoever says so again",
        "a backfill that was not told of its COMMIT fails, and who follows its advice gives the group everything twice",
        "spark/database/backfilling.py",
        "        if head is not None and head.finished and head.number == run.life:\n",
        "        if head is None:\n",
        f"{_SEAM}::test_the_end_may_be_said_twice",
    ),
)
