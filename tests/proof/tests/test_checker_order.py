"""The checker's rules about order: strict groups follow the publishing order, and a key has one worker at a time."""

from __future__ import annotations

from tests.proof.tests.stories import Tale


def strict() -> Tale:
    """A was committed before B was sent."""
    return Tale(strict=True).sent(1, "a").sent(2, "b")


def test_one_after_the_other() -> None:
    assert strict().run(3, "a").run(4, "b").breaches() == []


def test_the_later_one_first() -> None:
    assert strict().run(3, "b").run(4, "a").wrong() == {("order", "a"), ("order", "b")}


def test_the_later_one_while_the_earlier_one_waits_for_its_retry() -> None:
    tale = strict().run(3, "a", outcome="failed").run(4, "b").run(5, "a", attempt=2)
    assert tale.wrong() == {("order", "a"), ("order", "b")}


def test_the_earlier_one_again_after_the_later_one() -> None:
    """The ack of A was lost with its worker. In that case, B must not have started."""
    tale = (
        strict()
        .run(3, "a")
        .fault(3.1, "killed", "w1")
        .run(4, "b", worker="w2")
        .run(5, "a", attempt=2, worker="w2")
    )
    assert tale.wrong() == {("order", "a")}


def test_a_key_goes_on_after_a_dead_letter() -> None:
    tale = strict().run(3, "a", outcome="rejected").dead(3.2, "a", 1).run(3.1, "b")
    assert tale.breaches() == []


def test_a_key_does_not_go_on_long_before_a_dead_letter() -> None:
    tale = strict().run(3, "a", outcome="rejected").run(3.1, "b").dead(9, "a", 1)
    assert tale.wrong() == {("order", "b")}


def test_a_far_pair_is_seen_behind_neighbours_in_order() -> None:
    """The group runs B to F in order, and A last. A check of neighbours would report only A and B."""
    tale = Tale(strict=True)
    for place, message in enumerate("abcdef"):
        tale.sent(1 + place, message)
    for place, message in enumerate("bcdefa"):
        tale.run(10 + place, message)
    assert {message for rule, message in tale.wrong() if rule == "order"} == set("abcdef")


def test_transactions_that_overlap_have_no_order() -> None:
    tale = Tale(strict=True).sent(1, "a", closed=3).sent(2, "b", closed=2.5)
    assert tale.run(4, "b").run(5, "a").breaches() == []


def test_a_delivery_tells_that_a_message_had_committed() -> None:
    """A's publisher never learned the result of its commit, but the queue delivered A before B was sent."""
    tale = Tale(strict=True).sent(1, "a", end=None).run(2, "a", outcome="failed").sent(3, "b")
    assert tale.run(4, "b").run(5, "a", attempt=2).wrong() == {("order", "a"), ("order", "b")}


def test_one_transaction_has_an_order() -> None:
    assert Tale(strict=True).sent(1, "a", "b").run(2, "a").run(3, "b").breaches() == []
    assert ("order", "b") in Tale(strict=True).sent(1, "a", "b").run(2, "b").run(3, "a").wrong()


def test_a_later_message_may_overtake_one_that_was_not_due() -> None:
    assert Tale(strict=True).sent(1, "a", delay=5).sent(2, "b").run(3, "b").run(6, "a").breaches() == []
    assert Tale(strict=True).sent(1, "a", delay=5).sent(2, "b").run(6, "a").run(7, "b").breaches() == []


def test_a_scheduled_message_does_not_overtake_an_earlier_message() -> None:
    """A was in the log before B was sent, so also before B was due."""
    tale = Tale(strict=True).sent(1, "a").sent(2, "b", delay=1)
    assert tale.run(4, "b").run(5, "a").wrong() == {("order", "a"), ("order", "b")}
    retried = Tale(strict=True).sent(1, "a").sent(2, "b", delay=1)
    retried.run(3, "a", outcome="failed").run(4, "b").run(5, "a", attempt=2)
    assert retried.wrong() == {("order", "a"), ("order", "b")}


def test_a_delivery_tells_that_a_scheduled_message_was_in_the_log() -> None:
    tale = Tale(strict=True).sent(1, "a", delay=1).run(2.5, "a", outcome="failed").sent(3, "b")
    assert tale.run(4, "b").run(5, "a", attempt=2).wrong() == {("order", "a"), ("order", "b")}


def one_transaction(*, first: float = 0.0, last: float = 0.0) -> Tale:
    """A, B and C in one transaction. The delays of A and C may differ from 0."""
    tale = Tale(strict=True).sent(1, "a", transaction="x", end=None, delay=first)
    return tale.sent(1.1, "b", transaction="x", end=None).sent(1.2, "c", transaction="x", delay=last)


def test_scheduled_messages_of_one_transaction_follow_the_others() -> None:
    assert one_transaction(first=1).run(2, "b").run(3, "c").run(4, "a").breaches() == []
    assert one_transaction(last=1).run(2, "a").run(3, "b").run(4, "c").breaches() == []
    overtaken = one_transaction(last=1).run(2, "a").run(3, "c").run(4, "b").wrong()
    assert overtaken == {("order", "b"), ("order", "c")}
    behind = one_transaction(first=1).run(2, "c").run(3, "b").run(4, "a").wrong()
    assert behind == {("order", "b"), ("order", "c")}


def test_other_keys_and_groups_that_are_not_strict_have_none() -> None:
    assert Tale().sent(1, "a").sent(2, "b").run(3, "b").run(4, "a").breaches() == []
    keys = Tale(strict=True).sent(1, "a", key="x").sent(2, "b", key="y")
    assert keys.run(3, "b").run(4, "a").breaches() == []


def late_start() -> Tale:
    """W1 claims A and starts it only at 9 s. Meanwhile, W2 has done A and started B."""
    return strict().run(8, "a", worker="w2", attempt=2).run(8.5, "b", worker="w2").run(9, "a", worker="w1")


def test_a_stalled_worker_may_start_late() -> None:
    assert ("order", "a") in late_start().wrong()
    assert late_start().stopped(2.9, 8.8).breaches() == []
    assert late_start().stolen(8.4).breaches() == []
    assert late_start().server_down(3, 8.2).breaches() == []


def test_what_was_long_ago_or_of_others_excuses_no_late_start() -> None:
    assert ("order", "a") in late_start().stopped(2.9, 7).wrong()
    assert ("order", "a") in late_start().stopped(2.9, 8.8, worker="w3").wrong()
    assert ("order", "a") in late_start().stolen(8.4, key="other").wrong()
    assert ("order", "a") in late_start().fault(8.8, "disconnected", "7").wrong()


def test_nothing_excuses_the_later_one_before_the_earlier_is_over() -> None:
    """Even a stalled worker can claim B only after A is over."""
    tale = strict().run(8, "b", worker="w1").run(9, "a", worker="w1").stopped(2.9, 7.9)
    assert ("order", "b") in tale.wrong()


def overlapping(**other: str) -> Tale:
    """W1 runs A from 3 to 9 s. W2 starts B of the same key at 8 s."""
    return Tale().sent(1, "a", "b").run(3, "a", until=9).run(8, "b", worker=other.get("worker", "w2"))


def test_two_workers_with_one_key() -> None:
    assert overlapping().wrong() == {("overlap", "b")}


def test_one_worker_may_have_several_messages_of_a_key_unless_strict() -> None:
    assert overlapping(worker="w1").breaches() == []
    tale = Tale(strict=True).sent(1, "a", closed=3).sent(2, "b", closed=3).run(4, "a", until=6).run(5, "b")
    assert tale.wrong() == {("overlap", "b")}


def test_two_groups_or_two_keys_may() -> None:
    tale = (
        Tale(groups=("billing", "stock"))
        .sent(1, "a")
        .run(3, "a", until=9)
        .run(4, "a", worker="w2", group="stock")
    )
    assert tale.breaches() == []
    keys = Tale().sent(1, "a", key="x").sent(1, "b", key="y").run(3, "a", until=9).run(4, "b", worker="w2")
    assert keys.breaches() == []


def test_a_former_owner_that_was_stalled_may_still_be_running() -> None:
    for tale in (
        overlapping().stopped(3.5, 8.5),
        overlapping().server_down(4, 7),
        overlapping().fault(2.9, "silent", "w1").fault(8.5, "heard", "w1").fault(8.6, "abandoned", "w1"),
        overlapping().stolen(7.5),
        overlapping().stopped(1, 2.5),  # The worker woke just before it started its claim.
        overlapping().stopped(2, 7.8, worker="w2"),  # The later run is the stalled one.
    ):
        assert tale.breaches() == []


def test_what_was_before_or_after_excuses_no_overlap() -> None:
    for tale in (
        overlapping().stopped(0.5, 1.5),
        overlapping().stopped(8.2, 8.5),
        overlapping().stolen(8.5),
        overlapping().stolen(7.5, key="other"),
        overlapping().stopped(1, 5, worker="w2"),
        overlapping().fault(7, "disconnected", "w1"),
        overlapping().fault(8.6, "abandoned", "w1"),
    ):
        assert tale.wrong() == {("overlap", "b")}


def test_a_killed_worker_has_ended() -> None:
    tale = Tale().sent(1, "a").started(2, "a").fault(3, "killed", "w1").run(8, "a", worker="w2", attempt=2)
    assert tale.breaches() == []


def test_a_kill_may_be_noted_late() -> None:
    tale = Tale().sent(1, "a").started(2, "a").fault(8.5, "killed", "w1").run(8, "a", worker="w2", attempt=2)
    assert tale.breaches() == []


def test_a_run_that_nobody_ended_goes_on() -> None:
    """The handler hangs in a healthy worker. No other worker may receive the message."""
    tale = Tale().sent(1, "a").started(2, "a").run(20, "a", worker="w2", attempt=2)
    assert tale.wrong() == {("overlap", "a")}


def test_a_start_that_is_noted_just_after_the_kill_is_no_new_life() -> None:
    tale = (
        Tale().sent(1, "a").fault(2, "killed", "w1").started(2.001, "a").run(8, "a", worker="w2", attempt=2)
    )
    assert tale.breaches() == []


def test_a_worker_of_the_same_name_is_another_one() -> None:
    tale = Tale().fault(0, "joined", "w1").sent(1, "a").started(2, "a").fault(3, "joined", "w1")
    assert tale.run(4, "a", attempt=2).breaches() == []


def test_two_runs_of_one_message_without_a_key() -> None:
    tale = Tale().sent(1, "a", key=None).run(2, "a", until=9).run(8, "a", worker="w2", attempt=2)
    assert tale.wrong() == {("overlap", "a")}
    same = (
        Tale().sent(1, "a", key=None).run(2, "a", until=9, outcome="failed").run(8, "a", until=8.5, attempt=2)
    )
    assert same.wrong() == {("overlap", "a")}
    assert tale.stolen(7.5, key=" 0003").breaches() == []
