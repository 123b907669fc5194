"""Guards of operator actions: messages removed or sent to the front, and leases released."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_INSPECT = "features/inspect"

_RELEASES = "protocol/interleavings/test_releases.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a release applies only to the holder that it saw",
        "it releases the lease of a worker that has just taken over from the hanging worker",
        "store/leases.py",
        'one = "(id = %s AND holder = %s)"',
        'one = "(id = %s AND holder <> CONCAT(%s, holder))"',
        f"{_RELEASES}::test_a_theft_between_the_look_and_the_release",
    ),
    mutation(
        "a release locks the lease",
        "a worker takes the lease between the check and the release, and loses it without notice",
        "service/releasing.py",
        "freed_now = session.run(alias, partial(set_free, some=some))",
        "freed_now = session.run_statement(alias, partial(set_free, some=some))",
        "protocol/guards/test_operator_actions.py::test_a_release_holds_the_lease",
    ),
    mutation(
        "a release skips leases that another transaction has locked",
        "an admin page waits until the transaction of a hanging handler ends",
        "store/leases.py",
        "' OR '.join([one] * len(seen))} FOR UPDATE SKIP LOCKED",
        "' OR '.join([one] * len(seen))} FOR UPDATE",
        f"{_RELEASES}::test_a_release_leaves_what_an_open_transaction_has_answered",
    ),
    mutation(
        "a release fences the former holder",
        "a hanging handler and the new owner both settle the message",
        "store/leases.py",
        " SET holder = '', leased_by = '', lease_renewed_at = {NOW_MS} WHERE id IN ({placeholders(ids)})",
        " SET leased_by = '', lease_renewed_at = 0 WHERE id IN ({placeholders(ids)})",
        f"{_RELEASES}::test_an_answer_before_anybody_has_taken_it_is_refused_too",
    ),
    mutation(
        "a reset applies only to the registration generation that was shown",
        "it undoes a change that another operator made after the preview",
        "service/group_positions.py",
        "if generation is not None and found.generation != generation:",
        "if generation == 0:",
        "admin/test_resetting.py::test_what_was_shown_of_another_life_is_not_done[moved]",
    ),
    mutation(
        "the reset page warns of a position beyond the end of the log",
        "an operator who mistypes an offset sees no warning and skips all open messages",
        "admin/groups/resetting.py",
        "    if _is_beyond_the_end(data, preview):\n",
        "    if False:\n",
        "admin/test_resetting.py::test_an_offset_beyond_the_end_is_pointed_out",
    ),
    mutation(
        "workers notice messages that an operator has moved",
        "a message sent to the front waits behind known messages, and a removed message holds back the"
        " watermark",
        "store/moving.py",
        "SET updated_at = GREATEST(updated_at + 1, {NOW_MS})",
        "SET updated_at = updated_at",
        f"{_INSPECT}/test_to_front.py::test_a_running_worker_finds_out[False]",
    ),
    mutation(
        "messages are moved within one registration generation",
        "after a reset or an unsubscribe, the change still applies to messages that were found before",
        "store/moving.py",
        'AND id = %s",\n        [group, topic, generation],',
        'AND id > %s",\n        [group, topic, 0],',
        f"{_INSPECT}/test_races.py::TestOthersThatChangeIt::test_the_group_begins_anew[to front-reset]",
    ),
    Mutation(
        "an operator cannot move a message that a handler processes",
        "the message is done for the group while its handler runs, and the handler's ack is refused",
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
        "moving messages skips locked rows",
        "a removal waits until a handler's forgotten transaction ends",
        "store/moving.py",
        'in_flight = 0"\n        " FOR UPDATE SKIP LOCKED',
        'in_flight = 0"\n        " FOR UPDATE',
        f"{_INSPECT}/test_races.py::TestAnswers::test_a_stale_answer_that_holds_the_row_is_not_waited_for",
    ),
    mutation(
        "moving a message locks its log row until the commit",
        "delivery state of a dead letter that is purged meanwhile stays behind",
        "browse/operations.py",
        "free = garbage.lock_unlocked(cursor, [found.offset for found, _ in batch])",
        "free = {found.offset for found, _ in batch}",
        f"{_INSPECT}/test_races.py::TestDeletion"
        "::test_a_dead_letter_is_purged_that_a_consumer_is_to_be_spared",
    ),
    Mutation(
        "a message that waits for a retry is not also listed as undelivered",
        "a message at the front is delivered twice, and more messages than `batch_size` are in flight",
        (
            Edit("protocol/partition_state.py", "if not known.isdisjoint(self.fresh):", "if len(known) < 0:"),
            # Without this edit, a message in flight that is claimed twice stays in flight.
            Edit("protocol/choosing.py", "if here is None or here", "if offset or here is None or here"),
        ),
        (f"{_INSPECT}/test_to_front.py::test_no_more_are_out_at_once_than_before",),
    ),
    mutation(
        "in strict order, a key wakes when its lowest waiting message is due",
        "after a later message was sent to the front, the key stops until a new message arrives",
        "protocol/choosing.py",
        "partition.next_due(strict=strict)",
        "partition.next_due(strict=False)",
        "features/strict/test_by_hand.py"
        "::test_a_retry_comes_when_it_is_due_although_a_later_message_was_sent_to_the_front",
    ),
    mutation(
        "in strict order, a waiting message is not delivered before unread messages",
        "a message sent to the front overtakes earlier messages of its key",
        "protocol/choosing.py",
        "if strict and (name in state.stale_waiting or name in state.needs_log_read):",
        "if strict and name in state.stale_waiting:",
        f"{_INSPECT}/test_to_front.py::test_in_strict_order_what_was_not_read_yet_comes_first",
    ),
    mutation(
        "a message is erased while no claim of its groups is in progress",
        "a worker claims the message while it is erased, and its delivery state stays behind",
        "browse/erasing.py",
        "        offsets.lock_registration(cursor, group, topic)\n",
        "        pass\n",
        f"{_INSPECT}/test_races.py::TestErasing::test_it_is_being_erased[True]",
    ),
    mutation(
        "a held message is not delivered although its worker knows it",
        "a worker that has read the message delivers it before `unhold`",
        "store/delivery_state.py",
        "AND in_flight = 0 AND invisible_until <= {NOW_MS})",
        "AND in_flight = 0)",
        f"{_INSPECT}/test_races.py::TestHolding::test_it_is_held_between_the_choice_and_the_claim",
    ),
)
