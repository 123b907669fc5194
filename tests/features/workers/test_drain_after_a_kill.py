"""``runconsumer --drain`` starts after a worker with another name was killed."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState
from tests.support.processes import FAST, Worker, Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGES = 12
SLOW_TO_REPLACE = {**FAST, "DISCOVERY_INTERVAL": 3600, "LEASE_DURATION": 36_000}
"""The drain replaces a killed worker only if the worker's heartbeat is older than this interval."""


def killed(workers: Workers) -> Worker:
    """Start a worker, and kill it in its first handler while it holds the lease of all messages."""
    for n in range(MESSAGES):
        publish("orders", {"n": n, "do": "wait", "door": "go"}, key="k")
    worker = workers.start("orders:billing", "--threads", "1")
    wait_until(lambda: Step.objects.filter(what="start").exists(), "a handler has started")
    worker.kill()
    Door.objects.create(name="go")
    return worker


def test_it_waits_for_the_dead_workers_lease_and_does_all() -> None:
    with Workers(SLOW_TO_REPLACE) as workers:
        dead = killed(workers)
        drain = workers.start("orders:billing", "--drain", "--drain-timeout", "120")
        wait_until(lambda: "drain: waiting for messages" in drain.output(), "it waits")
        let_worker_die(dead)
        assert drain.wait(120) == 0
        assert f"stopped: ack {MESSAGES}" in drain.output()
    assert DeliveryState.objects.filter(acked=True).count() == MESSAGES


def test_it_says_what_is_left_and_exits_with_3() -> None:
    with Workers(SLOW_TO_REPLACE) as workers:
        killed(workers)
        drain = workers.start("orders:billing", "--drain", "--drain-timeout", "0.5")
        assert drain.wait(120) == 3
        assert f"{MESSAGES} messages are left" in drain.output()
        assert "stopped: nothing to do" in drain.output()
    assert not DeliveryState.objects.filter(acked=True).exists()
