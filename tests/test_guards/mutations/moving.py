"""Guards of messages that are moved by hand: taken out of a group's way, or sent to its front."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_INSPECT = "test_inspect"

MUTATIONS: tuple[Mutation, ...] = (
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
        "service/moving.py",
        "there = garbage.lock_free(cursor, [found.offset for found, _ in batch])",
        "there = {found.offset for found, _ in batch}",
        f"{_INSPECT}/test_races.py::TestDeletion"
        "::test_a_dead_letter_is_purged_that_a_consumer_is_to_be_spared",
    ),
    mutation(
        "what waits is not undelivered, too",
        "a message at the front is tried twice, and more are out at once than batch_size allows",
        "service/partition.py",
        "if not known.isdisjoint(self.fresh):",
        "if len(known) < 0:",
        f"{_INSPECT}/test_to_front.py::test_no_more_are_out_at_once_than_before",
    ),
    mutation(
        "in strict order nothing goes before what was not read yet",
        "a message that was sent to the front overtakes the others of its key",
        "service/claiming.py",
        "if strict and (name in context.stale_waiting or name in context.thin):",
        "if strict and name in context.stale_waiting:",
        f"{_INSPECT}/test_to_front.py::test_in_strict_order_what_was_not_read_yet_comes_first",
    ),
)
