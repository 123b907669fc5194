"""Signals of real worker processes that are stopped, or killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from django_mqueue import OutgoingMessage, publish, publish_many
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.processes import FAST, Worker, Workers, database_url, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers() as started:
        yield started


def start(workers: Workers, **environment: str) -> Worker:
    worker = Worker(
        ("told:listeners",),
        {
            "DJANGO_SETTINGS_MODULE": "tests.features.signals.worker_app.settings", "DATABASE_URL": database_url(),
            "TEST_MQUEUE": json.dumps(FAST), **environment,
        },
    )  # fmt: skip
    workers.all.append(worker)
    return worker


def done() -> int:
    return DeliveryState.objects.filter(topic="told", acked=True).count()


def has_no_owner() -> bool:
    return not PartitionLease.objects.exclude(holder="").exists()


def numbers(group: str) -> Counter[int]:
    return Counter(Step.objects.filter(consumer_group=group).values_list("number", flat=True))


def test_a_worker_that_is_stopped_leaves_its_group_at_once_and_sends_all_signals(workers: Workers) -> None:
    """The first receiver waits for a door, which opens when the worker has left. All others then get their signals.

    The second worker waits only some seconds, because the door stays shut.
    """
    worker = start(workers, TEST_LINGER=str(PATIENCE))
    publish("told", {"n": 0}, id="0", kind="hang")
    publish_many("told", [OutgoingMessage({"n": n}, id=str(n)) for n in range(1, 30)])
    wait_until(lambda: done() == 30, "all are handled")
    worker.send(signal.SIGTERM)
    wait_until(has_no_owner, "it has left")
    assert sum(numbers("heard").values()) < 30
    door = Door.objects.create(name="receiver")
    assert worker.wait() == 0
    assert numbers("heard") == Counter(range(30))

    door.delete()
    worker = start(workers)
    publish("told", {"n": 100}, id="100", kind="hang")
    wait_until(lambda: done() == 31, "it is handled")
    worker.send(signal.SIGTERM)
    wait_until(has_no_owner, "it has left")
    assert worker.wait() == 0
    assert numbers("heard")[100] == 0


def test_a_worker_that_is_killed_loses_signals_and_no_message(workers: Workers) -> None:
    """Each signal is sent at most once. The next worker sends no signal for messages that the dead worker handled."""
    worker = start(workers)
    publish("told", {"n": 0}, id="0", kind="hang")
    publish_many("told", [OutgoingMessage({"n": n}, id=str(n)) for n in range(1, 20)])
    wait_until(lambda: done() == 20, "all are handled, while the first receiver hangs")
    worker.kill()
    let_worker_die(worker)
    Door.objects.create(name="receiver")
    heir = start(workers, TEST_LINGER=str(PATIENCE))
    publish_many("told", [OutgoingMessage({"n": n}, id=str(n)) for n in range(20, 30)])
    wait_until(lambda: done() == 30, "the heir handles the rest")
    assert heir.stop() == 0
    assert numbers("listeners") == Counter(range(30))
    told = numbers("heard")
    assert set(told) >= set(range(20, 30))
    assert max(told.values()) == 1
    assert len(told) < 30
