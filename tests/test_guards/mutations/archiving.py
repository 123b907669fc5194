"""Guards of archive runs: a gap is noticed, one runs at a time, nothing is deleted before its history is archived."""

from __future__ import annotations

from .mutation import Mutation, mutation

_STANDING = "test_spark/test_archive_standing.py"

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
)
