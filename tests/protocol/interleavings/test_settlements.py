"""An ack or another answer meets another step with the same delivery. Each test runs one order of the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_mqueue import Delivery, StaleDelivery, publish
from django_mqueue.models import Message
from tests.support.subscribers import engine_of, in_log, poll_until
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until

from .sides import ends
from .steps import COMMIT, Stopped
from .workers import TOPIC, acquire, claim, claim_suspect, expire, run_out, start, state, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("still")]

VERBS: dict[str, Callable[[Delivery], bool]] = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(error="no"),
    "reject": lambda delivery: delivery.reject("no"),
    "postpone": lambda delivery: delivery.postpone(0),
    "extend": lambda delivery: delivery.extend(60),
}
ENDING = ("ack", "nack", "reject", "postpone")

AFTER: dict[str, tuple[list[int], int]] = {
    "ack": ([], 0),
    "nack": ([2], 1),
    "reject": ([], 1),
    "postpone": ([1], 0),
    "extend": ([2], 0),
}
"""For the answer that comes first: the attempts that the next owner gets, and the failure count."""


def outcome() -> dict[str, Any]:
    """Return the effects of the answers. A second answer must not change them."""
    row = state()
    return {
        "acked": row.acked,
        "in_flight": row.in_flight,
        "failures": row.failure_count,
        "letters": len(in_log(f"{TOPIC}_dlq")),
    }


@pytest.mark.parametrize("verb", VERBS)
def test_a_theft_does_not_wait_for_an_answer(verb: str) -> None:
    """A answers and does not commit. B tries to take over, gets nothing, and returns. A commits. B takes over.

    The answer counts. B gets what A put back and what A still had. A postponed message keeps its attempt number.
    ``protocol/fencing/test_races.py`` tests an answer before the takeover commits.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = claim(a)
        expire()
        with Stopped(lambda: VERBS[verb](delivery), COMMIT) as answer:
            assert ends(lambda: acquire(b)) == 0
            assert answer.go()
        assert acquire(b) == 1
        attempts, failures = AFTER[verb]
        got = poll_until(b, len(attempts)) if attempts else b.poll()
        assert [(d.offset, d.attempt) for d in got] == [(delivery.offset, n) for n in attempts]
        assert state().failure_count == failures
        assert len(in_log(f"{TOPIC}_dlq")) == (verb == "reject")


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_waits_for_the_redelivery_and_is_refused(verb: str) -> None:
    """B has taken over, claims A's unanswered message, and does not commit. A answers and waits. B commits.

    A's answer is refused and has no effect. The message belongs to B.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = claim(a)
        expire()
        assert acquire(b) == 1
        with (
            Stopped(lambda: claim_suspect(b), COMMIT) as redelivery,
            Background(lambda: VERBS[verb](delivery)) as answer,
        ):
            wait_for_lock_wait(answer)
            (again,) = redelivery.go()
            with pytest.raises(StaleDelivery):
                answer.result()
        assert outcome() == {"acked": False, "in_flight": True, "failures": 0, "letters": 0}
        assert (again.attempt, state().delivered_to) == (2, "b")
        assert again.ack()


@pytest.mark.parametrize("verb", ENDING)
def test_a_redelivery_by_the_same_worker_does_not_wait_for_a_late_answer(verb: str) -> None:
    """A answers an expired delivery and does not commit. A's poll, in another thread, does not claim it, and returns.

    The answer commits and counts. The poll does not claim the message after the commit.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a:
        (delivery,) = claim(a)
        run_out(a)
        with Stopped(lambda: VERBS[verb](delivery), COMMIT) as answer:
            assert ends(lambda: claim_suspect(a)) == []
            assert answer.go()
        engine_of(a).state.quarantined["k"] = None
        assert claim_suspect(a) == []
        attempts, failures = AFTER[verb]
        assert state().failure_count == failures
        assert not state().in_flight
        assert state().acked == (not attempts)


def test_a_redelivery_that_was_skipped_is_tried_again_by_itself() -> None:
    """A acks an expired delivery, does not commit, and rolls back. A's poll then gets the message."""
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a:
        (delivery,) = claim(a)
        run_out(a)
        with HeldTransaction(delivery.ack) as answer:
            assert ends(a.poll) == []
            answer.rollback()
        (again,) = wait_until(a.poll, "it comes again")
        assert (again.offset, again.attempt) == (delivery.offset, 2)


@pytest.mark.parametrize("verb", VERBS)
def test_a_late_answer_waits_for_the_redelivery_by_the_same_worker_and_is_refused(verb: str) -> None:
    """A's poll claims an expired delivery again and does not commit. A answers in another thread, and waits.

    The claim commits. The answer is refused and has no effect.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a:
        (delivery,) = claim(a)
        run_out(a)
        with (
            Stopped(lambda: claim_suspect(a), COMMIT) as redelivery,
            Background(lambda: VERBS[verb](delivery)) as answer,
        ):
            wait_for_lock_wait(answer)
            (again,) = redelivery.go()
            with pytest.raises(StaleDelivery):
                answer.result()
        assert outcome() == {"acked": False, "in_flight": True, "failures": 0, "letters": 0}
        assert again.attempt == 2
        assert again.ack()


@pytest.mark.parametrize("second", ENDING)
@pytest.mark.parametrize("first", ENDING)
def test_two_answers_at_once(first: str, second: str) -> None:
    """A answers and does not commit. B, another thread with the same delivery, answers and waits. A commits.

    The first answer counts once. The second answer changes nothing. It returns True if it is the same verb. Otherwise
    it is refused.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)
        with (
            Stopped(lambda: VERBS[first](delivery), COMMIT) as one,
            Background(lambda: VERBS[second](delivery)) as other,
        ):
            wait_for_lock_wait(other)
            assert one.go()
            if first == second:
                assert other.result()
            else:
                with pytest.raises(StaleDelivery):
                    other.result()
        attempts, failures = AFTER[first]
        letters = int(first == "reject")
        assert outcome() == {
            "acked": not attempts, "in_flight": False, "failures": failures, "letters": letters,
        }  # fmt: skip
        if attempts:
            wait_until(lambda: claim(a), "it is delivered again")


@pytest.mark.parametrize("first", ["nack", "postpone"])
def test_a_refused_answer_hides_no_retry(first: str) -> None:
    """A puts a message back and commits, but has not yet updated memory. B, another thread, acks and is refused.

    B updates memory first, then A. The worker still knows the retry, and delivers the message again.
    """
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="k")
    with worker("a") as a:
        (delivery, other) = claim(a)
        assert other.postpone(600), "so memory has one that waits"
        second = Background(delivery.ack)

        def put_back() -> bool:
            transaction.on_commit(second.join)
            return VERBS[first](delivery)

        with HeldTransaction(put_back) as one, second:
            wait_for_lock_wait(second)
            assert one.commit()
            with pytest.raises(StaleDelivery):
                second.result()
        (again,) = wait_until(lambda: claim(a), "it is delivered again")
        assert again.payload == 1
        assert again.ack()


def alone_for_the_last_time(a: Any) -> Delivery:
    """Return an expired delivery that ran alone. Without an answer, the next claim dead-letters the message."""
    claim(a)
    run_out(a)
    (delivery,) = claim_suspect(a)
    run_out(a)
    return delivery


def test_a_burial_does_not_wait_for_a_late_ack() -> None:
    """A acks a message after its last attempt expired, and does not commit. A's poll would dead-letter it.

    The poll returns without a change. The ack counts, and there is no dead letter.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01, max_attempts=1) as a:
        delivery = alone_for_the_last_time(a)
        with Stopped(delivery.ack, COMMIT) as ack:
            assert ends(lambda: claim_suspect(a)) == []
            assert ack.go()
        engine_of(a).state.quarantined["k"] = None
        assert claim_suspect(a) == []
        assert outcome() == {"acked": True, "in_flight": False, "failures": 0, "letters": 0}


def test_a_late_ack_after_a_burial() -> None:
    """A's poll dead-letters a message whose last attempt expired, and does not commit.

    A acks in another thread, and waits. The poll commits. The ack is refused.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01, max_attempts=1) as a:
        delivery = alone_for_the_last_time(a)
        with Stopped(lambda: claim_suspect(a), COMMIT) as burial, Background(delivery.ack) as ack:
            wait_for_lock_wait(ack)
            assert burial.go() == []
            with pytest.raises(StaleDelivery):
                ack.result()
        assert outcome() == {"acked": True, "in_flight": False, "failures": 1, "letters": 1}
        assert Message.objects.get(topic=f"{TOPIC}_dlq").failure_count == 1


def test_a_theft_does_not_wait_for_the_start_of_what_was_claimed_ahead() -> None:
    """A starts a handler for a message that was claimed ahead, and does not commit.

    B tries to take over and gets nothing. A commits, and its handler starts. B takes over and gets attempt 2.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = claim(a, start_now=0)
        expire()
        with Stopped(lambda: start(a, delivery), COMMIT) as starting:
            assert ends(lambda: acquire(b)) == 0
            assert starting.go()
        assert acquire(b) == 1
        (stolen,) = b.poll()
        assert stolen.attempt == 2
        assert stolen.ack()


def test_the_start_of_what_was_claimed_ahead_waits_for_a_theft() -> None:
    """B takes over and does not commit. A tries to start a message that was claimed ahead, and waits. B commits.

    A must not start it, and B gets attempt 1. ``protocol/guards/test_claimed_ahead.py`` tests a start after the commit.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = claim(a, start_now=0)
        expire()
        with Stopped(lambda: acquire(b), COMMIT) as theft, Background(lambda: start(a, delivery)) as starting:
            wait_for_lock_wait(starting)
            assert theft.go() == 1
            assert not starting.result()
        (stolen,) = poll_until(b, 1)
        assert stolen.attempt == 1
        assert stolen.ack()
