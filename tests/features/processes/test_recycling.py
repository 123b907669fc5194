"""Children are replaced after a number of messages, or if they use too much memory."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, Offset
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Step

from .children import pids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]


def test_a_child_is_replaced_after_its_number_of_messages() -> None:
    """The messages that it has claimed and not started are free at once. No message is delivered twice."""
    for n in range(20):
        publish("orders", {"n": n}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--max-messages-per-child", "5", "--drain")
        assert worker.wait() == 0
        assert "stopped: ack 20" in worker.output()
        assert worker.output().count(": handled 5 messages") == 4
    ended = Step.objects.filter(what="end")
    assert sorted(Counter(ended.values_list("pid", flat=True)).values()) == [5, 5, 5, 5]
    assert set(ended.values_list("attempt", flat=True)) == {1}


def test_a_child_that_uses_too_much_memory_is_replaced() -> None:
    """The handler keeps memory, as a leak does. The message is done, and the next one is done by another process."""
    publish("orders", {"n": 1, "do": "keep", "mib": 300}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--max-memory-per-child", "250")
        used = r"worker process replaced: \S+ \(pid (\d+)\): uses (\d+) MiB, more than 250 MiB"
        found = wait_until(lambda: re.search(used, worker.output()), "the child is replaced")
        assert {int(found[1])} == pids()
        assert int(found[2]) > 300
        publish("orders", {"n": 2}, key="k")
        wait_until(lambda: len(pids("end")) == 2, "another process handles the next message")
        assert worker.stop() == 0
        assert worker.output().count("worker process replaced") == 1
    assert DeliveryState.objects.filter(acked=True).count() == 2
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}


def test_a_limit_of_memory_that_no_child_can_keep_is_an_error() -> None:
    with Workers() as workers:
        worker = workers.start("orders:billing", "--max-memory-per-child", "5")
        assert worker.wait() == 1
        assert re.search(
            r"CommandError: --max-memory-per-child is 5 MiB, and this process uses \d+ MiB", worker.output()
        )
    assert not Offset.objects.filter(topic="orders").exists(), "a group was registered"
