"""A worker that starts with the name of a running worker replaces it."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_older_worker_of_a_name_is_fenced_and_ends_with_an_error_that_says_so() -> None:
    """The newer worker gets the work at once, not after a lease. The older worker can no longer change anything."""
    publish("orders", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers({"DISCOVERY_INTERVAL": 0.1}) as workers:
        old = workers.start("orders:billing", "--name", "twin")
        wait_until(lambda: Step.objects.filter(pid=old.pid).exists(), "the old one has the message")
        new = workers.start("orders:billing", "--name", "twin")
        wait_until(lambda: Step.objects.filter(pid=new.pid).exists(), "the new one has the message")
        Door.objects.create(name="exit")
        assert old.wait() == 1
        assert "a newer subscriber named 'twin'" in old.output()
        assert "Traceback" not in old.output()
        publish("orders", {"n": 2}, key="k")
        wait_until(lambda: Step.objects.filter(what="end", number=2).exists(), "the new one goes on")
        assert SubscriberHeartbeat.objects.get().deregistered_at is None
        assert PartitionLease.objects.get().leased_by == "twin"
        assert new.stop() == 0
    assert set(Step.objects.filter(number=2).values_list("pid", flat=True)) == {new.pid}
    assert Step.objects.get(what="start", number=1, pid=new.pid).attempt == 2


def test_a_worker_that_restarts_under_its_name_need_not_wait_for_its_own_lease() -> None:
    """The lease lasts a minute. The worker is killed, starts again, and continues at once."""
    publish("orders", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers({"LEASE_DURATION": 60}) as workers:
        worker = workers.start("orders:billing", "--name", "pod-0")
        wait_until(lambda: Step.objects.exists(), "it has started")
        worker.kill()
        Door.objects.create(name="exit")
        again = workers.start("orders:billing", "--name", "pod-0")
        wait_until(lambda: Step.objects.filter(what="end").exists(), "it has gone on")
        assert again.stop() == 0
    assert Step.objects.get(what="end").attempt == 2
