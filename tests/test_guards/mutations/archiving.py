"""Guards of archives: a gap is noticed, nothing is deleted before its history is archived, and of compactions and
cleanings at once each knows what the others have done, or comes too late."""

from __future__ import annotations

from .mutation import Mutation, mutation

_STANDING = "test_spark/test_archive_standing.py"
_AT_ONCE = "test_spark/test_archive_at_once.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a run goes on in the life of its group that the manifests tell",
        "what was deleted while the group was not registered is missing, and nobody is told",
        "spark/archiving/standing.py",
        "    if found is None or found.life != standing.life:\n",
        "    if found is None:\n",
        f"{_STANDING}::test_a_group_that_does_not_fit_the_manifests_is_a_gap[followed again]",
    ),
    mutation(
        "a group is not ahead of its archive",
        "what was deleted for another archive is missing in this one, and nobody is told",
        "spark/archiving/standing.py",
        "    if found.above > standing.position:\n",
        "    if found.above < 0:\n",
        f"{_STANDING}::test_a_group_that_does_not_fit_the_manifests_is_a_gap[read on]",
    ),
    mutation(
        "a batch is added if its group has held back deletion all the time",
        "what was deleted while it was archived is missing, and the manifest says that it is whole",
        "spark/archiving/standing.py",
        "    if found is None or found.life != standing.life or found.above > standing.position:\n",
        "    if found is None:\n",
        f"{_STANDING}::test_a_group_that_was_changed_meanwhile_has_held_back_nothing[followed again]",
        f"{_STANDING}::test_a_group_that_was_changed_meanwhile_has_held_back_nothing[read on]",
    ),
    mutation(
        "of several topics none is held before a run is refused for another",
        "the log of a topic that is never archived is kept for ever",
        "spark/archiving/running.py",
        "                    self._line.run(partial(self._check_free, topic))\n",
        "",
        "test_spark/test_archive_beginning_and_end.py::test_a_run_that_is_refused_for_one_topic_holds_no_other",
    ),
    mutation(
        "a group that a killed run has not moved is moved by the next one",
        "the log keeps what is archived until there is something new, perhaps for ever",
        "spark/archiving/standing.py",
        "    if place.above < standing.position <= settled:\n",
        "    if place.above < standing.position < 0:\n",
        f"{_STANDING}::test_a_group_that_a_killed_run_has_not_moved_is_moved",
    ),
    mutation(
        "delivery history waits for groups that are not done",
        "messages are deleted whose history was archived as it was before they were done",
        "service/finished.py",
        "        upto = upto if first is None else first - 1\n",
        "        upto = min(upto, upto if first is None else upto)\n",
        f"{_STANDING}::test_history_is_finished_when_all_groups_are_done",
    ),
    mutation(
        "delivery history waits no longer than it should",
        "one message that nobody handles keeps the whole topic in the log for ever",
        "service/finished.py",
        "    old = max(above, last_before(using, topic, unfinished.now_ms(using) - age_ms, upto))\n",
        "    old = above\n",
        f"{_STANDING}::test_history_is_finished_when_all_groups_are_done",
    ),
    mutation(
        "history waits for those groups that a message is for",
        "a message for one group alone holds up history for another one, which is never given it",
        "store/unfinished.py",
        "AND m.consumer_group IN ('', %s)",
        "AND m.consumer_group <> CONCAT('-', %s)",
        f"{_STANDING}::test_what_is_for_another_group_holds_up_no_history",
    ),
    mutation(
        "a compaction takes the number after those that it knew when it began",
        "two that replace some of the same both count, and the archive cannot be read until one is deleted by hand",
        "spark/archiving/compacting.py",
        "        compaction=number,\n",
        "        compaction=next_compaction(Archive.open(files.uri, spark), topic)[0],\n",
        f"{_AT_ONCE}::test_a_compaction_that_comes_later_than_another_one_changes_nothing",
        f"{_AT_ONCE}::test_a_compaction_whose_files_were_cleaned_away_changes_nothing",
    ),
    mutation(
        "a compaction looks whether it counts, when its manifest is there",
        "one whose number was free again, long after it was another one's, says that it has done what it has not",
        "spark/archiving/compacting.py",
        "    _check_there(Archive.open(files.uri, spark), [manifest])\n",
        "",
        f"{_AT_ONCE}::test_a_compaction_whose_number_is_free_again_changes_nothing",
    ),
    mutation(
        "what does not count itself replaces nothing",
        "what a compaction that stood still for long wrote takes files out of the archive that nothing else holds",
        "spark/archiving/manifest.py",
        "            replaced.update(manifest.replaces)\n",
        "        replaced.update(manifest.replaces)\n",
        "test_spark/test_archive_catalog.py::test_what_comes_late_is_replaced_already",
    ),
    mutation(
        "cleaning takes a number before it deletes what no manifest names",
        "files of a compaction that is under way are deleted, or of one that was done a moment ago: messages are lost",
        "spark/archiving/checking.py",
        "        if doubtful and self._take_number(archive):\n",
        "        if doubtful:\n",
        f"{_AT_ONCE}::test_a_compaction_whose_files_were_cleaned_away_changes_nothing",
        f"{_AT_ONCE}::test_cleaning_leaves_the_files_of_a_compaction_that_is_done_while_it_looks[_clean]",
    ),
    mutation(
        "a report on archive and log looks whether deletion was held back, when it has read",
        "what was deleted between the archive's end and the log while it was read is missing, and nobody is told",
        "spark/reporting/reading.py",
        "            gaps = _gaps(wanted, archive, extents)  # What was held back until now was there.\n",
        "",
        "test_spark/test_report.py::test_deletion_that_is_let_go_while_a_report_reads_is_told",
    ),
    mutation(
        "a report looks for what was set aside when it has read delivery history",
        "a message that was set aside meanwhile counts as dead, though it waits for a retry",
        "spark/reporting/reading.py",
        "            apart.look_again(wanted, extents)\n",
        "            pass\n",
        "test_spark/test_report.py"
        "::test_what_waits_long_for_a_retry_is_neither_dead_nor_done_though_its_history_was_archived",
    ),
    mutation(
        "what Spark has written is counted when it is read back",
        "where only Hadoop has a way to, rows that were not stored are said to be archived, and are deleted",
        "spark/archiving/indirect.py",
        "            if counted != goal.rows:\n",
        "            if counted == {}:\n",
        "test_spark/test_archive_hadoop.py::test_a_file_that_was_not_stored_as_it_was_written_is_not_named",
    ),
)
