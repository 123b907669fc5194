"""Real workers with an atomic handler are killed repeatedly: each message takes effect exactly once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from functools import partial

import pytest

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import DeliveryState, Message
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Sale
from tests.support.steps import has_sold

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGES = 1500


@pytest.mark.timeout(180)
def test_effects_happen_once_however_often_workers_are_killed() -> None:
    """Kill one of two workers every few messages. Each message has exactly one sale and one receipt."""
    dice = random.Random(11)
    publish_many("sales", [OutgoingMessage({"n": n}, key=f"k{n % 13}") for n in range(MESSAGES)])
    kills = 0
    with Workers() as workers:
        crew = [workers.start("sales:till", "--threads", "3", "--name", f"till-{n}") for n in range(2)]
        while (sold := Sale.objects.count()) < MESSAGES:
            enough = partial(has_sold, min(sold + dice.randint(20, 120), MESSAGES))
            wait_until(enough, "they go on")
            place = dice.randrange(2)
            crew[place].send(signal.SIGKILL)
            crew[place].wait()
            kills += 1
            crew[place] = workers.start("sales:till", "--threads", "3", "--name", f"till-{place}")
        wait_until(lambda: not DeliveryState.objects.filter(acked=False).exists(), "all are acked")
        for worker in crew:
            worker.stop()
    assert kills >= 1  # The number of messages between two kills depends on the machine.
    assert set(Counter(Sale.objects.values_list("number", flat=True)).values()) == {1}
    assert Sale.objects.count() == MESSAGES == Message.objects.filter(topic="receipts").count()
    assert not Message.objects.filter(topic="sales_dlq").exists()
