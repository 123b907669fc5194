"""Guards of operator actions: messages removed or sent to the front, and leases released."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_INSPECT = "features/inspect"

_RELEASES = "protocol/interleavings/test_releases.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a lease is released of who was seen to hold it",
        "the lease of a worker that has just taken over is released in the place of the hung one's",
        "store/leases.py",
        'one = "(id = %s AND holder = %s)"',
        'one = "(id = %s AND holder <> CONCAT(%s, holder))"',
        f"{_RELEASES}::test_a_theft_between_the_look_and_the_release",
    ),
    mutation(
        "a release holds the lease that it sets free",
        "a worker takes the lease between the look and the change, and has lost it without a word",
        "service/releasing.py",
        "    return session.run(alias, work)\n",
        "    return session.single(alias, work)\n",
        "protocol/guards/test_moved_by_hand.py::test_a_release_holds_the_lease",
    ),
    mutation(
        "a release waits for no answer",
        "a page stands until a handler's transaction, which hangs, is ended",
        "store/leases.py",
        "' OR '.join([one] * len(seen))} FOR UPDATE SKIP LOCKED",
        "' OR '.join([one] * len(seen))} FOR UPDATE",
        f"{_RELEASES}::test_a_release_leaves_what_an_open_transaction_has_answered",
    ),
    mutation(
        "a release fences whose lease it was",
        "the one that hangs answers when another has its message, and both count",
        "store/leases.py",
        " SET holder = '', leased_by = '', lease_renewed_at = {NOW_MS} WHERE id IN ({marks(ids)})",
        " SET leased_by = '', lease_renewed_at = 0 WHERE id IN ({marks(ids)})",
        f"{_RELEASES}::test_an_answer_before_anybody_has_taken_it_is_refused_too",
    ),
    mutation(
        "a group is moved in the life that was shown",
        "who has looked at a preview undoes what somebody else has chosen meanwhile",
        "service/group_positions.py",
        "if life is not None and _registration(alias, topic, group).life != life:",
        "if life == 0:",
        "admin/test_resetting.py::test_what_was_shown_of_another_life_is_not_done[moved]",
    ),
    mutation(
        "a place beyond the end of the log is pointed out before a group is moved there",
        "whoever mistypes an offset sees a preview without a warning, and skips all that is open",
        "admin/groups/resetting.py",
        "    if _is_beyond_the_end(asked, seen):\n",
        "    if False:\n",
        "admin/test_resetting.py::test_an_offset_beyond_the_end_is_pointed_out",
    ),
    mutation(
        "workers are told that messages were moved by hand",
        "what was sent to the front waits until all that a worker knows is done; what was taken out holds back the"
        " watermark until its retry would have been due",
        "store/moving.py",
        "SET updated_at = GREATEST(updated_at + 1, {NOW_MS})",
        "SET updated_at = updated_at",
        f"{_INSPECT}/test_to_front.py::test_a_running_worker_finds_out[False]",
    ),
    mutation(
        "messages are moved within one life of their group",
        "after a reset, or for a group that is gone, what was found before is delivered, or is not, all the same",
        "store/moving.py",
        'AND id = %s",\n        [group, topic, life],',
        'AND id > %s",\n        [group, topic, 0],',
        f"{_INSPECT}/test_races.py::TestOthersThatChangeIt::test_the_group_begins_anew[to front-reset]",
    ),
    Mutation(
        "what a handler has is not moved",
        "a message is done for the group, and its handler's answer refused, while it is at work",
        (
            Edit(
                "store/moving.py",
                'AND acked = 0 AND in_flight = 0"\n        " FOR UPDATE SKIP LOCKED',
                'AND acked = 0"\n        " FOR UPDATE SKIP LOCKED',
            ),
            Edit("store/moving.py", "AND s.acked = 0 AND s.in_flight = 0", "AND s.acked = 0"),
        ),
        (
            f"{_INSPECT}/test_races.py::TestClaims::test_it_is_delivered_between_the_search_and_the_change[remove-False]",
        ),
    ),
    mutation(
        "who moves messages waits for no answer",
        "a removal stands until a handler's transaction, which somebody forgot, is ended",
        "store/moving.py",
        'in_flight = 0"\n        " FOR UPDATE SKIP LOCKED',
        'in_flight = 0"\n        " FOR UPDATE',
        f"{_INSPECT}/test_races.py::TestAnswers::test_a_stale_answer_that_holds_the_row_is_not_waited_for",
    ),
    mutation(
        "messages that are moved are in the log until that is committed",
        "state stays behind of a dead letter that is purged at that moment",
        "browse/operations.py",
        "there = garbage.lock_free(cursor, [found.offset for found, _ in batch])",
        "there = {found.offset for found, _ in batch}",
        f"{_INSPECT}/test_races.py::TestDeletion"
        "::test_a_dead_letter_is_purged_that_a_consumer_is_to_be_spared",
    ),
    Mutation(
        "what waits is not undelivered, too",
        "a message at the front is tried twice, and more are out at once than batch_size allows",
        (
            Edit("protocol/partition_state.py", "if not known.isdisjoint(self.fresh):", "if len(known) < 0:"),
            # Without this edit, a message in flight that is claimed twice stays in flight.
            Edit(
                "protocol/claiming.py", "if flying is None or flying", "if offset or flying is None or flying"
            ),
        ),
        (f"{_INSPECT}/test_to_front.py::test_no_more_are_out_at_once_than_before",),
    ),
    mutation(
        "in strict order nothing goes before what was not read yet",
        "a message that was sent to the front overtakes the others of its key",
        "protocol/claiming.py",
        "if strict and (name in context.stale_waiting or name in context.thin):",
        "if strict and name in context.stale_waiting:",
        f"{_INSPECT}/test_to_front.py::test_in_strict_order_what_was_not_read_yet_comes_first",
    ),
)
