"""Guards of a restored database: workers do not rely on state that they remember from before the restore."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_SET_BACK = "protocol/settling/test_lost_commits.py"
_HIDDEN = "protocol/settling/test_restore_behind_proxy.py"
_ANEW = "protocol/settling/test_new_connections.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a watermark continues from the position in the tables",
        "a restored server uses offsets again that a worker remembers as done, and their messages are"
        " deleted undelivered",
        "protocol/watermarks.py",
        "        advance.was_restored = any(\n",
        "        advance.was_restored = found.settled < 0 and any(\n",
        f"{_SET_BACK}::test_a_watermark_that_is_remembered_is_not_written_over_an_earlier_one",
    ),
    mutation(
        "a watermark stays at or below the settled offset in the tables",
        "it passes an uncommitted message at an offset that was settled before the restore",
        "protocol/watermarks.py",
        "        settled = min(settled, found.settled)\n",
        "",
        f"{_SET_BACK}::test_a_watermark_goes_by_what_is_settled_now",
    ),
    mutation(
        "a settling round counts only if its newest message is still in the log",
        "a round that began before the restore settles offsets that the server has not handed out yet, for"
        " all workers",
        "store/offsets.py",
        "if known >= newest.offset or not exists:",
        "if known >= newest.offset:",
        f"{_SET_BACK}::test_a_round_of_settling_that_was_begun_before_tells_nothing",
    ),
    mutation(
        "a settling round compares the publish time of its newest message",
        "if the same ids are published again at the same offsets, old free slots count, and an uncommitted"
        " message is lost",
        "store/offsets.py",
        " AND m.published_at = %s",
        " AND %s",
        f"{_HIDDEN}::test_a_round_of_settling_is_of_no_use_where_the_same_is_published_again",
    ),
    mutation(
        "a claim takes only messages of the partitions that it has locked",
        "it takes an offset that now belongs to another partition: the owner never gets the message, and the"
        " worker stops",
        "store/delivery_state.py",
        '" AND m.partition_key IN ({partitions}) AND',
        "\" AND m.partition_key NOT IN ({partitions}, '') AND",
        f"{_SET_BACK}::test_an_offset_that_is_another_partition_s_now_is_its_owner_s",
    ),
    mutation(
        "a claim takes a message only for the partition for which it was chosen",
        "two offsets that now belong to one strict key are in flight at once",
        "protocol/claiming.py",
        "for name, _ in got - expected}",
        "for name, _ in got - got}",
        f"{_HIDDEN}::test_two_of_a_strict_key_are_not_delivered_at_once",
    ),
    mutation(
        "the tailer reads everything again on a new connection",
        "a restore stays unnoticed if other workers have settled as many offsets again",
        "protocol/tailer.py",
        "        is_new = self._connection.is_new() and",
        "        is_new = False and",
        f"{_SET_BACK}::test_what_others_have_settled_meanwhile_is_found_by_a_new_connection",
    ),
    mutation(
        "the tailer reads everything again after each lost connection",
        "a failover that loses two connections within half a minute leaves state of the old log, and order"
        " breaks",
        "protocol/tailer.py",
        " or self._connection.was_lost())",
        ")",
        f"{_SET_BACK}::test_each_connection_that_is_lost_has_all_read_anew",
    ),
    mutation(
        "the tailer takes the settled offset before it reads everything again",
        "the tailer does not search for a message that commits meanwhile, and strict order delivers later"
        " messages first",
        "protocol/tailer.py",
        "            listener.reload(tail.position)\n",
        "            listener.reload(tail.position)\n"
        "        tail.settler.start_over()\n"
        "        settled = tail.settler.settled\n",
        f"{_ANEW}::test_what_commits_while_all_is_read_anew_comes_before_what_is_sent_then",
    ),
    mutation(
        "a worker renews its leases while it reads everything again",
        "after an outage the leases expire meanwhile, other workers take over, and running messages are"
        " handled twice",
        "protocol/membership.py",
        "            self.tailer.send_heartbeat_if_due()\n            load_again",
        "            load_again",
        f"{_ANEW}::test_reading_anew_outlasts_no_lease",
    ),
    mutation(
        "messages that handlers process stay in flight when partitions are read again",
        "after each lost connection, messages are handled twice at the same time",
        "protocol/fetching.py",
        "        if deliveries.pop(receipt, None):\n",
        "        if deliveries.pop(receipt, None) and not receipt.token:\n",
        f"{_SET_BACK}::test_a_new_connection_takes_nothing_from_handlers",
    ),
    Mutation(
        "a message that a handler processes stays in flight when the tailer reports it again",
        "after a connection is lost during an open transaction, its partition moves away and the message is"
        " handled twice",
        (
            Edit(
                "protocol/partition_state.py",
                "            if offset <= self.top and self._is_known(offset):\n",
                "            if offset <= min(self.top, 0) and self._is_known(offset):\n",
            ),
            Edit("protocol/choosing.py", "if here is None or here", "if offset or here is None or here"),
        ),
        (f"{_ANEW}::test_what_a_handler_has_in_hand_is_its_own_though_it_is_told_as_news_again",),
    ),
)
