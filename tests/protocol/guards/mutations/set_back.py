"""Guards of a restored database: workers do not rely on what they remember of its later state."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_SET_BACK = "protocol/settling/test_set_back.py"
_HIDDEN = "protocol/settling/test_hidden_set_back.py"
_ANEW = "protocol/settling/test_read_anew.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a watermark goes on from where the tables have it",
        "offsets that a worker remembers as done are given anew, and what has them is never delivered, and deleted",
        "protocol/watermarks.py",
        "        look.went_back = any(\n",
        "        look.went_back = found.settled < 0 and any(\n",
        f"{_SET_BACK}::test_a_watermark_that_is_remembered_is_not_written_over_an_earlier_one",
    ),
    mutation(
        "a watermark stays at or below what the tables call settled",
        "it passes a message that is not committed yet, at an offset that was settled before the set-back",
        "protocol/watermarks.py",
        "        settled = min(settled, found.settled)\n",
        "",
        f"{_SET_BACK}::test_a_watermark_goes_by_what_is_settled_now",
    ),
    mutation(
        "what is told as settled was noted in this log",
        "a round that was begun before the set-back settles offsets that are yet to be given, for all workers",
        "store/offsets.py",
        "if known >= newest.offset or not there:",
        "if known >= newest.offset:",
        f"{_SET_BACK}::test_a_round_of_settling_that_was_begun_before_tells_nothing",
    ),
    mutation(
        "a message is known again by its time, too",
        "published once more with the same ids, messages have the same offsets: slots that were free before count, and"
        " one that is not committed yet is lost",
        "store/offsets.py",
        " AND m.published_at = %s",
        " AND %s",
        f"{_HIDDEN}::test_a_round_of_settling_is_of_no_use_where_the_same_is_published_again",
    ),
    mutation(
        "a claim takes what is of the partitions that it has locked",
        "what was read ahead is another partition's message now: its owner is not given it, and the worker ends",
        "store/delivery_state.py",
        'f" AND m.partition_key IN ({marks(names)}) AND',
        "f\" AND m.partition_key NOT IN ({marks(names)}, '') AND",
        f"{_SET_BACK}::test_an_offset_that_is_another_partition_s_now_is_its_owner_s",
    ),
    mutation(
        "a claim takes each message for the partition that it was chosen in",
        "two offsets that memory has in two partitions are of one by now: two of a strict key are out at once",
        "protocol/claiming.py",
        "for name, _ in got - wanted_now}",
        "for name, _ in got - got}",
        f"{_HIDDEN}::test_two_of_a_strict_key_are_not_delivered_at_once",
    ),
    mutation(
        "for a new connection all is read anew",
        "the same, where other workers have settled as much again before this one looks",
        "protocol/tailer.py",
        "        is_new = self._connection.is_new() and",
        "        is_new = False and",
        f"{_SET_BACK}::test_what_others_have_settled_meanwhile_is_found_by_a_new_connection",
    ),
    mutation(
        "for each connection that is lost all is read anew",
        "a failover that loses two within half a minute leaves what is known of the other log: order is broken",
        "protocol/tailer.py",
        " or self._connection.was_lost())",
        ")",
        f"{_SET_BACK}::test_each_connection_that_is_lost_has_all_read_anew",
    ),
    mutation(
        "what is settled is looked up before all is read anew",
        "what commits in between is in no hole: in strict order what was sent after it comes first",
        "protocol/tailer.py",
        "            listener.reload(tail.position)\n",
        "            listener.reload(tail.position)\n"
        "        tail.settler.start_over()\n"
        "        settled = tail.settler.settled\n",
        f"{_ANEW}::test_what_commits_while_all_is_read_anew_comes_before_what_is_sent_then",
    ),
    mutation(
        "who reads all anew renews its leases in between",
        "after an outage they run out meanwhile, others take all, and what handlers have in hand is run twice",
        "protocol/membership.py",
        "            self.feed.send_heartbeat_if_due()\n            load_again",
        "            load_again",
        f"{_ANEW}::test_reading_anew_outlasts_no_lease",
    ),
    mutation(
        "what handlers have in hand stays theirs when partitions are read anew",
        "each connection that is lost has messages handled twice at the same time",
        "protocol/fetching.py",
        "        if mine.pop(ticket, None):\n",
        "        if mine.pop(ticket, None) and not ticket.token:\n",
        f"{_SET_BACK}::test_a_new_connection_takes_nothing_from_handlers",
    ),
    Mutation(
        "what a handler has in hand stays so when it is told as news again",
        "each connection that is lost while a transaction is open has its partitions shared out, and it is run twice",
        (
            Edit(
                "protocol/partition_state.py",
                "            if offset <= self.top and self._is_known(offset):\n",
                "            if offset <= min(self.top, 0) and self._is_known(offset):\n",
            ),
            Edit(
                "protocol/claiming.py", "if flying is None or flying", "if offset or flying is None or flying"
            ),
        ),
        (f"{_ANEW}::test_what_a_handler_has_in_hand_is_its_own_though_it_is_told_as_news_again",),
    ),
)
