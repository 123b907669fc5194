"""A worker process is stopped for longer than its lease, and then continues."""

from __future__ import annotations

import signal

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die, stop_between_transactions

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_that_wakes_up_starts_nothing_of_what_it_had_claimed_ahead() -> None:
    """The worker has one thread and many messages claimed ahead. Another worker handles them while it is stopped."""
    for n in range(30):
        publish("orders", {"n": n}, key="k")
    publish("orders", {"n": 30, "do": "wait", "door": "exit"}, key="k")
    for n in range(31, 60):
        publish("orders", {"n": n}, key="k")
    with Workers() as workers:
        sleeper = workers.start("orders:billing", "--threads", "1", call_seconds=0.001)
        wait_until(lambda: Step.objects.filter(number=30).exists(), "it has come to the door")
        ahead = DeliveryState.objects.filter(in_flight=True, handed=False).count()
        assert ahead, "it has claimed ahead"
        stop_between_transactions(sleeper)
        let_worker_die(sleeper)
        heir = workers.start("orders:billing", "--threads", "1")
        Door.objects.create(name="exit")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 60, "the other has done all")
        sleeper.send(signal.SIGCONT)
        publish("orders", {"n": 60}, key="k")
        wait_until(lambda: Step.objects.filter(what="end", number=60).exists(), "life goes on")
        wait_until(
            lambda: Step.objects.filter(what="end", number=30, pid=sleeper.pid).exists(),
            "the sleeper has ended its own",
        )
        assert [sleeper.stop(), heir.stop()] == [0, 0]
        assert "meanwhile delivered again or finished" in sleeper.output()
    starts = Step.objects.filter(what="start", number__gt=30).values_list("number", "pid", "attempt")
    assert sorted(starts) == sorted({(n, starts.get(number=n)[1], 1) for n in range(31, 61)}), (
        "each began once"
    )
    assert {pid for n, pid, _ in starts if n < 60} == {heir.pid}
    assert not DeliveryState.objects.filter(acked=False).exists()
