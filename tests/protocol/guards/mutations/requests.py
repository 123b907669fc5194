"""Guards of request and reply."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_FIRST, _LATE, _FAILED = (
    "features/request/test_first_reply.py",
    "features/request/test_leftovers.py",
    "features/request/test_failures.py",
)
_SNAPSHOTS = "features/request/test_snapshots.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a reply checks that it is the first",
        "a second reply overwrites the first, and both callers get True",
        "store/replies.py",
        " AND failure_count IS NULL",
        "",
        f"{_FIRST}::test_the_second_reply_of_a_delivery_is_none",
    ),
    mutation(
        "a reply checks the deadline",
        "it returns True although its requester has given up, or is about to",
        "store/replies.py",
        " AND available_at > {NOW_MS} FOR",
        " FOR",
        f"{_LATE}::test_the_deadline_is_held_by_the_database_whatever_the_requester_does",
    ),
    mutation(
        "a reply fills only a reply box, whatever its header names",
        "a publisher that can choose headers can overwrite other messages",
        "store/replies.py",
        "AND id = %s AND partition_key = %s",
        "AND id = %s AND partition_key <> CONCAT(%s, 'x')",
        "features/request/test_request.py::test_no_header_makes_another_message_a_box",
    ),
    mutation(
        "a reply box takes only a reply to its own request",
        "a user who can read the table can make a message of another topic send the reply",
        "store/replies.py",
        " AND original_topic = %s AND original_id = %s",
        " AND %s <> '' AND %s <> ''",
        "features/request/test_request.py::test_a_box_takes_no_reply_to_another_message[prices-another]",
        "features/request/test_request.py::test_a_box_takes_no_reply_to_another_message[other-asked]",
    ),
    mutation(
        "publish refuses the header that names a reply box",
        "a publisher can create a message whose reply goes to another request",
        "service/publish.py",
        "    check_headers(message.headers)\n",
        "",
        "features/request/test_request.py::test_publish_refuses_the_header_that_names_a_box",
    ),
    mutation(
        "a reply waits for the transaction that has locked its reply box",
        "if an earlier reply is rolled back, the second reply is lost",
        "protocol/acknowledging/replying.py",
        "found.failures is None and found.left_ms > 0",
        "found.failures is None and found.left_ms > 1 << 40",
        f"{_FIRST}::test_two_groups_at_once_the_second_waits_until_the_first_has_ended[False]",
    ),
    mutation(
        "a waiting reply reads committed data",
        "in a transaction that has read before, it waits until the deadline for a reply box that is gone",
        "protocol/acknowledging/replying.py",
        "    with outside_snapshot(using) as fresh:\n",
        "    with outside_snapshot(using) as fresh:\n        fresh = using\n",
        f"{_SNAPSHOTS}::test_a_second_group_s_reply_is_none_at_once",
    ),
    mutation(
        "a second reply in the same transaction returns False at once",
        "at REPEATABLE READ, it waits until the deadline for a reply box that it filled itself",
        "protocol/acknowledging/replying.py",
        "if found is not None and found.failures is not None:",
        "if found is not None and found.failures == -1:",
        f"{_SNAPSHOTS}::test_a_second_reply_in_the_same_transaction_is_none_at_once",
    ),
    mutation(
        "a requester reads its reply box once more at the deadline",
        "it misses a reply that was in time and returned True",
        "service/requesting.py",
        "            found = self._take_at_deadline()",
        "            found = self.abandon()",
        f"{_LATE}::test_a_reply_that_commits_while_the_requester_takes_its_last_looks_is_got",
    ),
    mutation(
        "a requester that gives up skips a locked reply box",
        "it waits past its time limit until the transaction of the replying handler ends",
        "store/replies.py",
        "{_CONTENT} {_BOX} FOR UPDATE SKIP LOCKED",
        "{_CONTENT} {_BOX} FOR UPDATE",
        f"{_LATE}::test_a_reply_s_transaction_is_open_over_the_deadline_and_commits_then",
    ),
    mutation(
        "a dead letter reports a failure to the requester only if no group can reply",
        "the failure of one group discards the reply that another group would have sent",
        "protocol/acknowledging/replying.py",
        "if replies.is_last_replier(cursor, offset, group) and replies.lock_open(cursor, box):",
        "if replies.lock_open(cursor, box):",
        f"{_FAILED}::test_another_group_may_still_reply",
    ),
    mutation(
        "a worker that reports a failure skips a locked reply box",
        "a handler that hangs after its reply blocks another group's worker, which loses its leases",
        "store/replies.py",
        "available_at > {NOW_MS} FOR UPDATE SKIP LOCKED",
        "available_at > {NOW_MS} FOR UPDATE",
        f"{_FAILED}::test_the_worker_waits_for_nobody_who_is_just_replying",
    ),
    Mutation(
        "the cleanup of reply boxes checks their deadline",
        "a reply box is deleted while its requester waits, and the reply is lost",
        (
            Edit("store/replies.py", "available_at <= {NOW_MS} - %s FROM", "0 <= %s FROM"),
            Edit("store/replies.py", "AND m.available_at <= {NOW_MS} - %s FOR", "AND 0 <= %s FOR"),
        ),
        (f"{_LATE}::test_a_sweep_takes_none_that_is_waited_for",),
    ),
    mutation(
        "the cleanup keeps a reply box for a minute after its deadline",
        "a reply that was just in time is deleted before its requester reads it",
        "protocol/retention/expired_replies.py",
        "LINGER_MS = 60_000",
        "LINGER_MS = 0",
        f"{_LATE}::test_what_was_replied_in_time_is_got_also_after_the_deadline",
    ),
    mutation(
        "workers delete reply boxes of dead requesters",
        "these reply boxes stay forever",
        "protocol/retention/garbage_collection.py",
        "        if has_replies:",
        "        if has_replies is None:",
        f"{_LATE}::test_a_requester_that_is_killed_leaves_a_box_that_workers_sweep",
    ),
    mutation(
        "the cleanup skips locked reply boxes",
        "a worker loses its leases while a handler hangs after its reply",
        "store/replies.py",
        "{NOW_MS} - %s FOR UPDATE SKIP LOCKED",
        "{NOW_MS} - %s FOR UPDATE",
        f"{_LATE}::test_a_sweep_waits_for_nobody",
    ),
    mutation(
        "a group with a parked retry may still reply",
        "the requester gets RequestFailed hours before the reply",
        "store/replies.py",
        " AND s.invisible_until <> {PARKED_AT}",
        "",
        f"{_FAILED}::test_a_group_with_a_parked_retry_may_still_reply",
    ),
)
