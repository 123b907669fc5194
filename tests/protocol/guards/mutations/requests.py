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
        "a reply asks whether it is the first",
        "a redelivery's reply, or another group's, overwrites the answer, and both are told that theirs counts",
        "store/replies.py",
        " AND failure_count IS NULL",
        "",
        f"{_FIRST}::test_the_second_reply_of_a_delivery_is_none",
    ),
    mutation(
        "a reply asks whether it is in time",
        "it is told that it counts when its requester has given up, or is about to",
        "store/replies.py",
        " AND available_at > {NOW_MS} FOR",
        " FOR",
        f"{_LATE}::test_the_deadline_is_held_by_the_database_whatever_the_requester_does",
    ),
    mutation(
        "a reply goes into a box, whatever the headers name",
        "whoever can choose a message's headers can have other messages overwritten",
        "store/replies.py",
        "AND id = %s AND partition_key = %s",
        "AND id = %s AND partition_key <> CONCAT(%s, 'x')",
        "features/request/test_request.py::test_no_header_makes_another_message_a_box",
    ),
    mutation(
        "a box takes a reply to its own request alone",
        "a reader of the table has the reply given by a message of another topic",
        "store/replies.py",
        " AND original_topic = %s AND original_id = %s",
        " AND %s <> '' AND %s <> ''",
        "features/request/test_request.py::test_a_box_takes_no_reply_to_another_message[prices-another]",
        "features/request/test_request.py::test_a_box_takes_no_reply_to_another_message[other-asked]",
    ),
    mutation(
        "publish refuses the header that names a box",
        "a publisher can make a message that takes the reply of another's request",
        "service/publish.py",
        "    check_headers(message.headers)\n",
        "",
        "features/request/test_request.py::test_publish_refuses_the_header_that_names_a_box",
    ),
    mutation(
        "a reply whose box is locked waits for who has it",
        "an answer is lost where another's, given first, is rolled back",
        "protocol/acknowledging/replying.py",
        "found.failures is None and found.left_ms > 0",
        "found.failures is None and found.left_ms > 1 << 40",
        f"{_FIRST}::test_two_groups_at_once_the_second_waits_until_the_first_has_ended[False]",
    ),
    mutation(
        "who waits with a reply looks at what is committed now",
        "in a transaction that has read before, it stands still until the deadline, for a box that is gone",
        "protocol/acknowledging/replying.py",
        "    with outside_snapshot(using) as now:\n",
        "    with outside_snapshot(using) as now:\n        now = using\n",
        f"{_SNAPSHOTS}::test_a_second_group_s_reply_is_none_at_once",
    ),
    mutation(
        "a second reply in the same transaction is none at once",
        "at REPEATABLE READ it stands still until the deadline, for a box that it has filled itself",
        "protocol/acknowledging/replying.py",
        "if found is not None and found.failures is not None:",
        "if found is not None and found.failures == -1:",
        f"{_SNAPSHOTS}::test_a_second_reply_in_the_same_transaction_is_none_at_once",
    ),
    mutation(
        "a requester looks once more at its deadline",
        "an answer that was just in time, and was told so, is not got",
        "service/requesting.py",
        "            found = self._last_look()",
        "            found = self.abandon()",
        f"{_LATE}::test_a_reply_that_commits_while_the_requester_takes_its_last_looks_is_got",
    ),
    mutation(
        "a requester waits for nobody's lock when it leaves",
        "its time limit is as long as the transaction of a handler that has replied",
        "store/replies.py",
        "{_CONTENT} {_BOX} FOR UPDATE SKIP LOCKED",
        "{_CONTENT} {_BOX} FOR UPDATE",
        f"{_LATE}::test_a_reply_s_transaction_is_open_over_the_deadline_and_commits_then",
    ),
    mutation(
        "a dead letter tells a requester only that no group can reply",
        "one group's failure takes the answer away that another would have given",
        "protocol/acknowledging/replying.py",
        "if box is None or not replies.is_last_hope(cursor, offset, group):",
        "if box is None:",
        f"{_FAILED}::test_another_group_may_still_reply",
    ),
    mutation(
        "a worker that tells a requester waits for nobody",
        "a handler that stands still with its reply in a transaction keeps another group's worker from its leases",
        "store/replies.py",
        "available_at > {NOW_MS} FOR UPDATE SKIP LOCKED",
        "available_at > {NOW_MS} FOR UPDATE",
        f"{_FAILED}::test_the_worker_waits_for_nobody_who_is_just_replying",
    ),
    Mutation(
        "a sweep asks for the deadline",
        "a box is gone while its requester waits, and the answer with it",
        (
            Edit("store/replies.py", "available_at <= {NOW_MS} - %s FROM", "0 <= %s FROM"),
            Edit("store/replies.py", "AND m.available_at <= {NOW_MS} - %s FOR", "AND 0 <= %s FOR"),
        ),
        (f"{_LATE}::test_a_sweep_takes_none_that_is_waited_for",),
    ),
    mutation(
        "a sweep lets some time pass after the deadline",
        "an answer that came just in time is deleted before its requester looks",
        "protocol/retention/expired_replies.py",
        "LINGER_MS = 60_000",
        "LINGER_MS = 0",
        f"{_LATE}::test_what_was_replied_in_time_is_got_also_after_the_deadline",
    ),
    mutation(
        "workers sweep up after requesters that died",
        "the boxes of the dead stay for ever",
        "protocol/retention/garbage_collection.py",
        "        if replies:",
        "        if replies is None:",
        f"{_LATE}::test_a_requester_that_is_killed_leaves_a_box_that_workers_sweep",
    ),
    mutation(
        "a sweep waits for nobody",
        "a worker loses its leases while a handler that has replied stands still",
        "store/replies.py",
        "{NOW_MS} - %s FOR UPDATE SKIP LOCKED",
        "{NOW_MS} - %s FOR UPDATE",
        f"{_LATE}::test_a_sweep_waits_for_nobody",
    ),
)
