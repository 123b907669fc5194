"""SIGKILL ends workers. A message that kills its workers is dead-lettered, and the others are handled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.models import DeliveryState, Message
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die
from tests.support.threads import Background
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

POISON, TEN = 4, range(10)


@contextmanager
def supervised(workers: Workers, *arguments: str) -> Iterator[list[int]]:
    """Run one worker, and restart it each time it dies. Yield the list of its exit codes."""
    codes: list[int] = []
    worker, done = workers.start(*arguments), threading.Event()

    def watch() -> None:
        nonlocal worker
        while not done.wait(0.05):
            if not worker.running:
                codes.append(worker.wait())
                let_worker_die(worker)
                worker = workers.start(*arguments)

    watching = Background(watch).start()
    try:
        yield codes
    finally:
        done.set()
        watching.result()
        worker.stop()


def all_done(count: int, group: str = "billing") -> bool:
    return DeliveryState.objects.filter(consumer_group=group, acked=True).count() == count


def starts(number: int) -> list[int]:
    found = Step.objects.filter(what="start", number=number).order_by("id")
    return list(found.values_list("attempt", flat=True))


def assert_the_poison_is_buried_and_the_others_done(topic: str, numbers: range) -> None:
    with Subscription(f"{topic}_dlq", "undertaker") as subscription:
        (letter,) = subscription.poll()
    assert (letter.payload["n"], letter.failure_count) == (POISON, 3)
    assert "worker died" in letter.last_error
    ended = set(Step.objects.filter(what="end").values_list("number", flat=True))
    assert ended == set(numbers) - {POISON}
    for number in numbers:
        assert starts(number) == list(range(1, len(starts(number)) + 1)), (
            "an attempt is a start of the handler"
        )


@pytest.mark.parametrize("name", [["--name", "pod-0"], []], ids=["same name", "new names"])
def test_ten_held_at_once_one_kills_its_worker_again_and_again(name: list[str]) -> None:
    """Ten handlers run at once when the first worker dies. Then the poison runs alone and is dead-lettered."""
    for n in TEN:
        action = {"do": "die_last", "others": 9} if n == POISON else {"do": "wait"}
        publish("orders", {"n": n, "door": "first death", **action}, key="k")
    with Workers() as workers, supervised(workers, "orders:billing", "--threads", "10", *name) as codes:
        wait_until(lambda: codes, "the first worker has died")
        Door.objects.create(name="first death")
        wait_until(lambda: all_done(10), "all ten are done or buried", seconds=4 * PATIENCE)
        assert codes == [-9] * len(codes)
        assert len(codes) <= 4
    assert_the_poison_is_buried_and_the_others_done("orders", TEN)
    assert len(starts(POISON)) == len(codes)
    assert {len(starts(n)) for n in TEN if n != POISON} == {2}


def test_what_was_claimed_ahead_and_reached_no_handler_has_used_no_attempt() -> None:
    """One thread runs quick handlers, so the worker has claimed many messages ahead when the poison starts."""
    numbers = range(-40, 40)
    for n in numbers:
        publish("orders", {"n": n, **({"do": "die"} if n == POISON else {})}, key="k")
    arguments = ("orders:billing", "--threads", "1", "--name", "pod-0")
    with Workers() as workers:
        assert workers.start(*arguments, call_seconds=0.001).wait() == -9
        ahead = {state.message_offset for state in DeliveryState.objects.filter(in_flight=True, handed=False)}
        assert ahead, "some were claimed ahead"
        with supervised(workers, *arguments):
            wait_until(lambda: all_done(len(numbers)), "all are done or buried")
    assert_the_poison_is_buried_and_the_others_done("orders", numbers)
    delivered_ahead = Step.objects.filter(message_offset__in=ahead, what="start")
    assert set(delivered_ahead.values_list("attempt", flat=True)) == {1}
    assert delivered_ahead.count() == len(ahead)


def test_a_poison_message_of_a_strict_handler_is_found_out_too() -> None:
    """The poison blocks its key until it is dead-lettered. The other keys continue."""
    for n in TEN:
        publish("ledger", {"n": n, **({"do": "die"} if n == POISON else {})}, key="bad")
        publish("ledger", {"n": 100 + n}, key=f"good-{n}")
    with Workers() as workers, supervised(workers, "ledger:books", "--name", "pod-0"):
        wait_until(lambda: all_done(20, "books"), "all are done or buried")
    with Subscription("ledger_dlq", "undertaker") as subscription:
        (letter,) = subscription.poll()
    assert letter.payload["n"] == POISON
    order = list(Step.objects.filter(what="end", key="bad").order_by("id").values_list("number", flat=True))
    assert [n for place, n in enumerate(order) if n not in order[:place]] == [n for n in TEN if n != POISON]


def at_work(pid: int, handlers: int) -> bool:
    return Step.objects.filter(pid=pid, what="start").count() == handlers


def test_sigkill_by_somebody_else_buries_nobody() -> None:
    """Two workers are killed from outside, with four handlers and then one at work. The third handles all messages."""
    for n in range(4):
        publish("orders", {"n": n, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        arguments = ("orders:billing", "--threads", "4", "--name", "pod-0")
        for handlers in (4, 1):
            worker = workers.start(*arguments)
            wait_until(partial(at_work, worker.pid, handlers), f"{handlers} handlers are at work")
            worker.kill()
        assert DeliveryState.objects.filter(in_flight=True).count() == 4
        Door.objects.create(name="exit")
        assert workers.start(*arguments, "--drain").wait() == 0
    assert sorted(Step.objects.filter(what="end").values_list("number", flat=True)) == [0, 1, 2, 3]
    assert not Message.objects.filter(topic="orders_dlq").exists()
    for n in range(4):
        assert starts(n) == list(range(1, len(starts(n)) + 1))
