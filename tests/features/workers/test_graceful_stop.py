"""A stopping worker waits for its last handlers. It releases each partition as soon as nothing of it is in flight.

The interleavings:

- The other members compute their shares without the stopping worker from its first heartbeat after the signal on.
  Until they read it, they may leave released partitions free for one discovery. No two workers have a partition.
- The stopping worker keeps and renews the leases of partitions with deliveries in flight. Messages behind them wait.
- A message that was claimed and not started is in flight too. It is put back first, so that its partition is free.
- Atomic handlers hold locks on their rows and share locks on their leases. Their partitions are in flight until the
  transaction ends, so no release waits for them. A release skips locked rows, and is repeated.
- The second SIGTERM, or SIGKILL, ends the process while it holds leases. Its heartbeat still names its session lock,
  so the other members find it dead.
"""

from __future__ import annotations

import signal

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, Offset, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.steps import assert_never_two_at_once, by_key

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"k{n}" for n in range(8)]


def held_by(name: str) -> list[str]:
    return sorted(PartitionLease.objects.filter(leased_by=name).values_list("partition_key", flat=True))


def two_workers(workers: Workers, handler: str) -> tuple[Worker, Worker, str]:
    """Start two workers with four keys each. A handler of "a" waits at the door. Return the workers and its key."""
    topic, _, group = handler.partition(":")
    for key in KEYS:
        publish(topic, {"n": 0}, key=key)
    both = [workers.start(handler, "--name", name) for name in ("a", "b")]
    done = DeliveryState.objects.filter(consumer_group=group, acked=True)
    wait_until(
        lambda: done.count() == 8 and len(held_by("a")) == len(held_by("b")) == 4, "both have four keys"
    )
    busy = held_by("a")[0]
    publish(topic, {"n": 1, "do": "wait", "door": "exit"}, key=busy)
    wait_until(lambda: "at door exit" in both[0].output(), "it waits")  # Also atomic: no row shows it yet.
    return both[0], both[1], busy


@pytest.mark.parametrize("handler", ["orders:billing", "ledger:books", "tolls:bridge"])
def test_other_keys_are_delivered_while_the_last_handler_runs(handler: str) -> None:
    """The key of the last handler moves when the handler has ended. "books" is strict, and "bridge" is atomic."""
    topic, _, group = handler.partition(":")
    others = DeliveryState.objects.filter(acked=True, consumer_group=group)
    with Workers() as workers:
        a, b, busy = two_workers(workers, handler)
        a.send(signal.SIGTERM)
        wait_until(lambda: len(held_by("b")) == 7, "the other one has all other keys")
        for key in [*KEYS, "new"]:
            publish(topic, {"n": 2}, key=key)
        wait_until(lambda: others.count() == 8 + 8, "the messages of the other keys are handled")
        assert held_by("a") == [busy]
        assert SubscriberHeartbeat.objects.get(subscriber_name="a").deregistered_at is None
        assert not Step.objects.filter(key=busy, number=2).exists()
        Door.objects.create(name="exit")
        assert a.wait() == 0
        wait_until(lambda: others.count() == 8 + 9 + 1, "the last messages are handled")
        assert held_by("b") == sorted([*KEYS, "new"])
        assert b.stop() == 0
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}
    for steps in by_key(topic, group).values():
        assert_never_two_at_once(steps, killed=set())


def test_messages_that_were_claimed_ahead_are_put_back_at_once() -> None:
    """The only thread waits in a handler, and messages of the other keys were claimed for it."""
    for n in range(300):
        last = {"do": "wait", "door": "exit"} if n == 150 else {}
        publish("orders", {"n": n, **last}, key=KEYS[n % 3])
    with Workers() as workers:
        a = workers.start("orders:billing", "--name", "a", "--threads", "1", call_seconds=0.001)
        wait_until(lambda: Step.objects.filter(number=150).exists(), "it waits")
        assert DeliveryState.objects.filter(in_flight=True).exclude(partition_key="k0").exists()
        b = workers.start("orders:billing", "--name", "b")
        a.send(signal.SIGTERM)
        rest = Step.objects.filter(what="end").exclude(key="k0")
        wait_until(lambda: rest.count() == 200, "the other worker has handled the other keys")
        assert held_by("a") == ["k0"]
        Door.objects.create(name="exit")
        assert a.wait() == 0
        wait_until(lambda: Step.objects.filter(what="end").count() == 300, "all are handled")
        assert b.stop() == 0
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}


def test_a_lone_worker_moves_its_watermarks_before_it_releases_its_partitions() -> None:
    with Workers() as workers:
        publish("orders", {"n": 0, "do": "wait", "door": "exit"}, key="k0")
        a = workers.start("orders:billing", "--name", "a")
        wait_until(lambda: Step.objects.exists(), "it waits")
        last = publish("orders", {"n": 1}, key="k1").offset
        wait_until(lambda: Step.objects.filter(what="end").exists(), "the second message is handled")
        a.send(signal.SIGTERM)
        wait_until(lambda: held_by("a") == ["k0"], "the idle partition is released")
        assert Offset.objects.get(consumer_group="billing", partition_key="k1").offset_acked >= last
        Door.objects.create(name="exit")
        assert a.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_dies_while_it_stops_is_replaced_at_once(number: signal.Signals) -> None:
    """Its lease would be valid for a minute."""
    with Workers() as workers:
        a, b, busy = two_workers(workers, "orders:billing")
        a.send(signal.SIGTERM)
        wait_until(lambda: held_by("a") == [busy], "it has released the others")
        a.send(number)
        assert a.wait() == (-9 if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: held_by("a") == [], "the other one has the last partition")
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end", number=1).exists(), "the message is handled")
        assert b.stop() == 0
    assert Step.objects.get(what="end", number=1).attempt == 2
