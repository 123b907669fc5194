"""The checker's rules about existence: lost messages, ghosts, messages stored twice, remaining rows."""

from __future__ import annotations

from tests.proof.history import Closed, Finished
from tests.proof.tests.stories import TOPIC, Tale, ns

GROUPS = ("billing", "stock")


def test_a_message_that_every_group_has_done_is_in_order() -> None:
    tale = (
        Tale(groups=GROUPS).sent(1, "a").run(2, "a").run(2, "a", group="stock", worker="w2").deleted(3, "a")
    )
    assert tale.breaches() == []


def test_a_message_is_lost_that_one_group_never_got() -> None:
    tale = Tale(groups=GROUPS).sent(1, "a").run(2, "a")
    [breach] = tale.breaches()
    assert (breach.rule, breach.subject) == ("lost", "a")
    assert "'stock'" in breach.text
    assert "never delivered" in breach.text


def test_a_message_is_lost_that_only_failed() -> None:
    tale = Tale().sent(1, "a").run(2, "a", outcome="failed").run(3, "a", outcome="postponed", attempt=2)
    assert tale.wrong() == {("lost", "a")}


def test_a_message_is_lost_whose_worker_died() -> None:
    tale = Tale().sent(1, "a").started(2, "a").fault(3, "killed", "w1")
    assert tale.wrong() == {("lost", "a")}


def test_a_dead_letter_is_an_end_for_its_group_only() -> None:
    tale = Tale(groups=GROUPS).sent(1, "a").run(2, "a", outcome="rejected").dead(2.1, "a", 1)
    assert tale.wrong() == {("lost", "a")}
    assert tale.run(3, "a", group="stock").breaches() == []


def test_nothing_is_asked_of_what_rolled_back_or_was_ignored() -> None:
    tale = Tale().sent(1, "a", end="rolled back").sent(2, "b").ignored(2.05, "b")
    assert tale.breaches() == []


def test_an_unknown_transaction_may_not_have_been() -> None:
    assert Tale().sent(1, "a", "b", end="unknown").sent(2, "c", end=None).breaches() == []


def test_an_unknown_transaction_is_there_wholly_once_any_of_it_was_seen() -> None:
    """A group received the first of its messages. So the transaction has committed, and the second message is lost."""
    for end in ("unknown", None):
        tale = Tale().sent(1, "a", "b", end=end).run(2, "a")
        assert tale.wrong() == {("lost", "b")}


def test_a_deletion_proves_an_unknown_transaction_too() -> None:
    tale = Tale().sent(1, "a", "b", end=None).run(2, "b").deleted(3, "a")
    assert tale.wrong() == {("lost", "a"), ("deleted early", "a")}


def test_a_message_sent_again_after_an_unknown_end_may_come_by_either() -> None:
    """The second sending proves nothing about the first transaction, whose other message may have rolled back."""
    tale = Tale().sent(1, "a", "b", transaction="x", end="unknown").sent(2, "a", transaction="y").run(3, "a")
    assert tale.breaches() == []
    ignored = (
        Tale()
        .sent(1, "a", "b", transaction="x", end="unknown")
        .sent(2, "a", transaction="y")
        .ignored(2.05, "a")
    )
    assert ignored.run(3, "a").wrong() == {("lost", "b")}


def test_ghosts() -> None:
    rolled_back = Tale().sent(1, "a", end="rolled back").run(2, "a")
    assert rolled_back.wrong() == {("ghost", "a")}
    ignored = Tale().sent(1, "a").ignored(1.05, "a").run(2, "a")
    assert ignored.wrong() == {("ghost", "a")}
    never_sent = Tale().run(2, "a")
    assert never_sent.wrong() == {("ghost", "a")}
    deleted = Tale().sent(1, "a", end="rolled back").deleted(2, "a")
    assert ("ghost", "a") in deleted.wrong()
    dead = Tale().sent(1, "a", end="rolled back").dead(2, "a", 3)
    assert ("ghost", "a") in dead.wrong()


def test_a_message_seen_before_it_can_have_committed_is_a_ghost() -> None:
    """The queue delivers a message before the publisher sends the next message of the same transaction."""
    tale = Tale().sent(1, "a", "b", closed=2).run(1.0005, "a").run(3, "b", worker="w1")
    assert tale.wrong() == {("ghost", "a")}


def test_a_message_seen_before_its_end_was_written_down_is_none() -> None:
    """A commit ends a moment before the publisher can note it."""
    assert Tale().sent(1, "a", closed=2).run(1.5, "a").breaches() == []


def test_a_scheduled_message_seen_before_it_is_due_is_a_ghost() -> None:
    assert Tale().sent(1, "a", delay=2).run(2.99, "a").wrong() == {("ghost", "a")}
    assert Tale().sent(1, "a", delay=2).run(3, "a").breaches() == []


def test_a_scheduled_message_waits_for_its_transaction_also_when_it_is_due() -> None:
    tale = Tale().sent(1, "a", transaction="x", end=None, delay=0.5).sent(3, "b", transaction="x")
    assert tale.run(2, "a").run(4, "b").wrong() == {("ghost", "a")}


def test_a_scheduled_message_that_is_never_delivered_is_lost() -> None:
    assert Tale().sent(1, "a", delay=2).wrong() == {("lost", "a")}
    assert Tale().sent(1, "a", delay=2).left(9, "a").wrong() == {("lost", "a"), ("left", "a")}


def test_a_message_of_another_key_or_to_a_strange_group_is_a_ghost() -> None:
    strange = Tale().sent(1, "a").run(2, "a").run(2, "a", group="nobody", worker="w2")
    assert strange.wrong() == {("ghost", "a")}
    tale = Tale().sent(1, "a", key="x").run(2, "a")
    [sent] = [event for event in tale.events if type(event).__name__ == "Sent"]
    tale.events.remove(sent)
    assert tale.sent(1, "a", key="other", end=None).wrong() == {("ghost", "a")}


def test_a_message_stored_twice() -> None:
    tale = Tale().sent(1, "a").run(2, "a", offset=5).run(3, "a", offset=6)
    assert ("twice", "a") in tale.wrong()
    deleted = Tale().sent(1, "a").run(2, "a", offset=5).deleted(3, "a", offset=6)
    assert ("twice", "a") in deleted.wrong()


def test_a_message_sent_twice_may_be_stored_twice() -> None:
    """The first copy was done and deleted before the second was sent."""
    tale = Tale().sent(1, "a", transaction="x").run(2, "a", offset=5).deleted(3, "a", offset=5)
    tale.sent(4, "a", transaction="y").run(5, "a", offset=6).deleted(6, "a", offset=6)
    assert tale.breaches() == []


def test_a_history_that_contradicts_itself() -> None:
    twice = Tale().sent(1, "a").run(2, "a")
    twice.events.append(Closed(ns(1.2), "of a", "rolled back"))
    assert ("history", "transaction of a") in twice.wrong()
    no_start = Tale().sent(1, "a").run(2, "a")
    no_start.events.append(Finished(ns(3), "w9", "billing", "a", 1, "done"))
    assert no_start.wrong() == {("history", "a")}


def test_whatever_is_left_is_a_breach() -> None:
    tale = Tale().sent(1, "a").run(2, "a").left(9, "a").left(9, "billing@7", table="queue_delivery_state")
    assert tale.wrong() == {("left", "a"), ("left", "billing@7")}
    assert TOPIC in tale.breaches()[0].text
