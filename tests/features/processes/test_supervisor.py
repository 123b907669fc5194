"""``runconsumer --processes``: the children share the work, dead ones are replaced, and their reports are summed up."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import DeliveryState, Message, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import poll_until
from tests.support.waiting import PATIENCE

from .children import children, parent, pids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]

FORKING = ("tests.features.processes.forking",)


def publish_keys(count: int, **payload: object) -> None:
    publish_many("orders", [OutgoingMessage({"n": n, **payload}, key=f"k{n}") for n in range(count)])


def test_the_children_share_the_work_under_names_of_their_own() -> None:
    publish_keys(6, do="wait", door="exit")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "3", "--threads", "1", "--name", "w")
        wait_until(lambda: len(pids()) == 3, "three processes work")
        assert pids() == children(worker)
        holders = set(PartitionLease.objects.exclude(holder="").values_list("leased_by", flat=True))
        assert holders == {"w-1", "w-2", "w-3"}
        Door.objects.create(name="exit")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 6, "all are done")
        assert worker.stop() == 0
        assert "stopped: ack 6" in worker.output()
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}
    assert not SubscriberHeartbeat.objects.filter(deregistered_at=None).exists()


def test_a_killed_child_is_replaced_and_its_leases_are_free_at_once() -> None:
    """The lease lasts an hour. The replacement has the name of the dead child, which ends the lease."""
    publish("orders", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers({"LEASE_DURATION": 3600}) as workers:
        worker = workers.start("orders:billing", "--processes", "2")
        wait_until(pids, "a child has the message")
        (dead,) = pids()
        name = PartitionLease.objects.get(partition_key="k").leased_by
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: len(pids()) == 2, "another process has the message")
        (successor,) = pids() - {dead}
        assert parent(successor) == worker.pid
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end", pid=successor).exists(), "it is done")
        assert worker.stop() == 0
        assert (
            f"worker process died: {name} (pid {dead}): killed by SIGKILL; another starts in"
            in worker.output()
        )
    assert Step.objects.get(what="end").attempt == 2


def test_a_message_that_kills_its_process_becomes_a_dead_letter_and_the_others_are_done() -> None:
    publish("orders", {"n": 1, "do": "die"}, key="bad")
    publish_keys(4)
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "2", "--threads", "1", "--drain")
        # The pauses before the restarts alone take a quarter of PATIENCE.
        assert worker.wait(4 * PATIENCE) == 0
    assert len(pids() - pids("end")) <= 4, "too many processes died"
    assert Message.objects.filter(topic="orders_dlq").count() == 1
    assert set(Step.objects.filter(what="end").values_list("key", flat=True)) == {"k0", "k1", "k2", "k3"}


def test_children_that_die_at_their_start_are_replaced_ever_more_slowly_and_each_is_logged() -> None:
    with Workers() as workers:
        worker = workers.run(FORKING, "crash", "orders:billing", "--processes", "1", "--name", "w",
                             "--max-messages-per-child", "5")  # fmt: skip
        found = re.compile(r"worker process died: w-1 \(pid \d+\): exit code 9; another starts in ([\d.]+) s")
        wait_until(lambda: len(found.findall(worker.output())) == 3, "the third has died")
        first, second, third = map(float, found.findall(worker.output()))
        assert first <= 1 < second <= 2 < third <= 4
        assert worker.stop() == 0, "it does not wait for the next start"


def test_an_error_that_each_child_would_meet_ends_all_of_them() -> None:
    """A second supervisor under the same name: the children of the first have lost their names."""
    with Workers() as workers:
        old = workers.start("orders:billing", "--processes", "2", "--name", "twin")
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "two children have joined")
        new = workers.start("orders:billing", "--processes", "2", "--name", "twin")
        assert old.wait() == 1
        assert "CommandError: a newer subscriber named 'twin-" in old.output()
        assert "Traceback" not in old.output()
        wait_until(lambda: len(children(new)) == 2, "both new children run")
        assert new.stop() == 0


def test_a_child_stopped_by_hand_is_replaced() -> None:
    publish("orders", {"n": 1}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "1", "--max-messages-per-child", "100")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).exists(), "the first is done")
        (first,) = pids()
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: children(worker) and children(worker) != {first}, "another runs")
        publish("orders", {"n": 2}, key="k")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 2, "the second is done")
        assert worker.stop() == 0
        assert "stopped: ack 2" in worker.output()


def test_drain_ends_when_all_children_are_done_and_sums_up_their_counts() -> None:
    publish_keys(20)
    publish("orders", {"n": 20, "do": "reject"}, key="bad")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "2", "--drain")
        assert worker.wait() == 0
        assert "stopped: ack 20, dead-letter 1" in worker.output()
        assert worker.output().count("consuming orders") == 1
        assert "died" not in worker.output()


def test_drain_exits_with_3_if_messages_are_left() -> None:
    publish_keys(1)
    with Subscription("orders", "billing", name="other") as other:
        poll_until(other, 1)
        with Workers() as workers:
            worker = workers.start("orders:billing", "--processes", "2", "--drain", "--drain-timeout", "0.3")
            assert worker.wait() == 3
            assert "1 messages are left" in worker.output()


def test_drain_exits_with_0_if_another_child_did_what_was_left() -> None:
    """A child gives up waiting for the partition of the other child. The other child then finishes it."""
    publish("orders", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "2", "--drain", "--drain-timeout", "0.1")
        wait_until(lambda: pids() and len(children(worker)) == 1, "one child has ended, one works")
        assert children(worker) == pids()
        Door.objects.create(name="exit")
        assert worker.wait() == 0
        assert "stopped: ack 1" in worker.output()


def test_max_messages_counts_for_each_child_and_for_all_its_replacements() -> None:
    """One child handles ten messages, four and four and two."""
    publish_keys(12)
    with Workers() as workers:
        worker = workers.start(
            "orders:billing", "--max-messages", "10", "--max-messages-per-child", "4", "--threads", "1"
        )
        assert worker.wait() == 0
        assert "stopped: ack 10" in worker.output()
    assert sorted(Counter(Step.objects.filter(what="end").values_list("pid", flat=True)).values()) == [
        2,
        4,
        4,
    ]
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}


def test_max_seconds_ends_all_children() -> None:
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "2", "--max-seconds", "0.5")
        assert worker.wait() == 0
        assert "stopped: nothing to do" in worker.output()


def test_no_connection_is_open_when_a_child_is_forked() -> None:
    publish_keys(3)
    with Workers() as workers:
        worker = workers.run(FORKING, "connections", "orders:billing", "--max-messages-per-child", "2",
                             "--threads", "1", "--drain")  # fmt: skip
        assert worker.wait() == 0
        assert re.findall(r"open connections: (.*)", worker.output()) == ["[]", "[]"]


def test_the_last_spans_of_a_child_are_exported() -> None:
    publish_keys(1)
    with Workers() as workers:
        worker = workers.run(FORKING, "tracer", "orders:billing", "--processes", "2", "--drain")
        assert worker.wait() == 0
        assert worker.output().count('"name": "process orders"') == 1
