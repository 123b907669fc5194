"""Processes that die in a batch: the message that is blamed, and the effects that stay."""

from __future__ import annotations

import random
import signal
from collections import Counter
from functools import partial

import pytest

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import DeliveryState, Message
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Sale, Step
from tests.support.steps import has_sold

pytestmark = pytest.mark.django_db(transaction=True)


def all_done(count: int) -> bool:
    return DeliveryState.objects.filter(acked=True).count() == count


def dead_or_done(worker: Worker, count: int) -> bool:
    return not worker.running or all_done(count)


@pytest.mark.timeout(120)
def test_after_a_death_in_a_batch_its_messages_come_one_by_one_and_alone() -> None:
    """One of five messages kills its process each time.

    It is dead-lettered, and the second delivery completes the others.
    """
    publish_many(
        "pallets", [OutgoingMessage({"n": n, "do": "die" if n == 2 else ""}, key="k") for n in range(5)]
    )
    deaths = 0
    with Workers() as workers:
        worker = workers.start("pallets:depot", "--name", "depot")
        while not all_done(5):
            wait_until(partial(dead_or_done, worker, 5), "it goes on")
            if not worker.running:
                deaths += 1
                worker = workers.start("pallets:depot", "--name", "depot")
        assert worker.stop() == 0
    assert deaths == 3, "once in the batch, twice alone"
    state = {s.message_offset: s for s in DeliveryState.objects.all()}
    (letter,) = Message.objects.filter(topic="pallets_dlq")
    assert (letter.payload, letter.failure_count) == (b'{"n":2,"do":"die"}', 2)
    assert [(s.failure_count, s.acked) for _, s in sorted(state.items())] == [
        (0, True), (0, True), (2, True), (0, True), (0, True),
    ]  # fmt: skip
    ends = Step.objects.filter(what="end").order_by("id")
    assert set(ends.values_list("number", flat=True)) == {0, 1, 3, 4}
    for step in Step.objects.filter(what="start"):
        assert step.attempt == Step.objects.filter(what="start", number=step.number, id__lte=step.id).count()


@pytest.mark.timeout(120)
def test_effects_of_atomic_batches_happen_once_however_often_workers_are_killed() -> None:
    rounds, each, dice = 8, 200, random.Random(5)
    messages = rounds * each
    with Workers() as workers:
        crew = [workers.start("crates:till", "--threads", "2", "--name", f"till-{n}") for n in range(2)]
        for begun in range(0, messages, each):
            sold = Sale.objects.count()
            new = [OutgoingMessage({"n": n}, key=f"k{n % 7}") for n in range(begun, begun + each)]
            publish_many("crates", new)
            wait_until(partial(has_sold, sold + dice.randint(20, 100)), "they go on")
            place = dice.randrange(2)
            crew[place].send(signal.SIGKILL)
            crew[place].wait()
            crew[place] = workers.start("crates:till", "--threads", "2", "--name", f"till-{place}")
        wait_until(partial(has_sold, messages), "all are sold")
        wait_until(lambda: not DeliveryState.objects.filter(acked=False).exists(), "all are acked")
        for worker in crew:
            worker.stop()
    assert set(Counter(Sale.objects.values_list("number", flat=True)).values()) == {1}
    assert Sale.objects.count() == messages == Message.objects.filter(topic="receipts").count()
    assert not Message.objects.filter(topic="crates_dlq").exists()
