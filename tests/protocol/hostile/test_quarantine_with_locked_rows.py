"""Quarantined messages, in a worker that has another group whose rows are locked, or that is paused."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from django_mqueue import (
    OutgoingMessage,
    Reject,
    Retry,
    Subscription,
    pause,
    publish,
    publish_many,
    subscribe,
)
from django_mqueue.messages import Message
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from django_mqueue.policy.quarantine import Quarantine
from django_mqueue.protocol import claim_scheduler, subscriber
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.workers import call_starter, pool
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from django_mqueue.workers.turns import Turns
from tests.support.fixtures import with_settings
from tests.support.running import Seen, registered, run
from tests.support.subscribers import consume, poll_until
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_until

from .test_held_rows import HELD, LASTING

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("lasting")]

NEVER = 3600.0
lasting = with_settings(autouse=False, MQUEUE=LASTING)


@contextmanager
def loop(*doors: threading.Event, threads: int = 4) -> Iterator[Runner]:
    """Run a worker's loop over the handlers of both topics in a thread. At the end all ``doors`` are set."""
    runner = Runner(handlers(["ta:A", "tb:B"]), RunOptions(name="w", threads=threads, max_seconds=180))
    with Background(runner.run) as running:
        try:
            yield runner
        finally:
            for door in doors:
                door.set()
            for one in runner._handlers:
                one._backoff_until = -math.inf
            runner.stop()
            running.result()


def engine_of(runner: Runner, group: str) -> Subscriber:
    return next(one for one in runner._handlers if one.state.group == group)


def quarantine(topic: str, group: str) -> None:
    """Publish a message and leave its first delivery unanswered."""
    publish(topic, "suspect", key="suspect")
    with Subscription(topic, group, name="gone") as gone:
        poll_until(gone, 1)


def is_alone(group: str) -> bool:
    """Return whether the state row of the group's quarantined message says that it runs alone."""
    return DeliveryState.objects.get(consumer_group=group, partition_key="suspect").alone


def the_loop_turns() -> None:
    """Wait until the worker has sent two heartbeats. Its loop has then run several times."""
    for _ in range(2):
        row = SubscriberHeartbeat.objects.filter(consumer_group="B", subscriber_name="w")
        before = row.get().heartbeat_at
        wait_until(lambda: row.get().heartbeat_at > before, "a heartbeat")  # noqa: B023


def test_a_locked_answer_to_a_suspect_stops_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler of A's quarantined message ends, and its ack waits for a lock. B continues at once.

    A continues when the other transaction ends.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", 0.2)
    monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: NEVER)
    door = threading.Event()
    quarantine("ta", "A")
    with (
        registered("ta", a := Seen(lambda message: door.wait(PATIENCE)), group="A"),
        registered("tb", b := Seen(), group="B"),
        loop(door),
    ):
        wait_until(lambda: a.messages and is_alone("A"), "the suspect runs alone")
        with HeldTransaction(HELD["reset"]) as held:
            publish_many("tb", range(20))
            door.set()
            wait_until(lambda: len(b.messages) == 20, "the other group continues")
            held.rollback()
        publish("ta", "next")
        wait_until(lambda: len(a.messages) == 2, "and so does the first")
    assert a.attempts("suspect") == [2]
    assert DeliveryState.objects.get(partition_key="suspect").acked


def test_a_suspect_that_runs_long_and_is_locked_stops_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A's quarantined message has run alone for its allowed time, and its row is locked. B continues.

    When the lock ends, the worker writes to the row that the message no longer runs alone.
    """
    monkeypatch.setattr(call_starter, "Quarantine", partial(Quarantine, quiet_for=NEVER))
    door, is_held = threading.Event(), threading.Event()
    monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: 0.0 if is_held.is_set() else NEVER)
    monkeypatch.setattr(claim_scheduler, "NOTE_AGAIN", 0.1)
    quarantine("ta", "A")
    with (
        registered("ta", a := Seen(lambda message: door.wait(4 * PATIENCE)), group="A"),
        registered("tb", b := Seen(), group="B"),
        loop(door),
    ):
        wait_until(lambda: a.messages and is_alone("A"), "the suspect runs alone")
        with HeldTransaction(HELD["reset"]) as held:
            is_held.set()
            publish_many("tb", range(20))
            wait_until(lambda: len(b.messages) == 20, "the other group continues")
            assert is_alone("A")
            held.rollback()
        wait_until(lambda: not is_alone("A"), "its death would no longer count")
        door.set()
    assert DeliveryState.objects.get(partition_key="suspect").acked


@pytest.mark.parametrize("rest", [0.2, NEVER], ids=["its rest is over", "it rests"])
def test_locked_messages_of_one_group_keep_no_suspect_of_another_waiting(
    rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A has claimed messages ahead, and all its rows are locked. B's quarantined message runs alone.

    The locking transaction ends. A's messages start after B's quarantined message has ended, not while it runs.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", rest)
    monkeypatch.setattr(Turns, "average", lambda turns, key: 0.001)
    monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: NEVER)
    door, suspect = threading.Event(), threading.Event()
    subscribe("tb", "B")
    publish("tb", "suspect", key="suspect")

    def handle(message: Message) -> None:
        if message.payload == "stop":
            door.wait(4 * PATIENCE)

    with (
        Subscription("tb", "B", name="gone") as gone,
        registered("ta", a := Seen(handle), group="A"),
        registered("tb", b := Seen(lambda message: suspect.wait(4 * PATIENCE)), group="B"),
    ):
        poll_until(gone, 1)
        with loop(door, suspect, threads=2) as runner:
            first = engine_of(runner, "A")
            publish_many("ta", ["quick"] * 50)
            acked = DeliveryState.objects.filter(acked=True)
            wait_until(lambda: acked.count() == 50, "A's handler is known to be quick")
            publish_many("ta", ["stop", "stop", *["ahead"] * 10])
            wait_until(lambda: len(a.messages) == 52, "both threads are taken")
            wait_until(lambda: runner._starter.sharing.ahead[first], "some are claimed ahead")
            with HeldTransaction(HELD["reset"]) as held:
                door.set()
                wait_until(lambda: first.careful, "A's ack has waited in vain")
                assert runner._starter.sharing.ahead[first]
                gone.close()
                wait_until(lambda: b.messages, "B's suspect runs")
                assert is_alone("B")
                held.rollback()
            first._backoff_until = -math.inf
            wait_until(lambda: acked.count() == 52, "A's acks are given")
            wait_until(lambda: runner._starter.sharing.startable, "what is ahead is free")
            the_loop_turns()
            assert len(a.messages) == 52
            assert is_alone("B")
            suspect.set()
            wait_until(lambda: len(a.messages) == 62, "A continues")
    assert b.attempts("suspect") == [2]


def test_a_suspect_waits_for_a_handler_that_has_run_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A's handler exceeds its time limit while its row is locked.

    B's quarantined message waits until the handler ends.
    """
    monkeypatch.setattr(call_starter, "Quarantine", partial(Quarantine, quiet_for=NEVER))
    door, is_held = threading.Event(), threading.Event()
    monkeypatch.setattr(pool, "_limit", lambda job: 0.0 if is_held.is_set() else math.inf)
    subscribe("tb", "B")
    publish("tb", "suspect", key="suspect")
    with (
        Subscription("tb", "B", name="gone") as gone,
        registered("ta", a := Seen(lambda message: door.wait(4 * PATIENCE)), group="A", max_runtime=NEVER),
        registered("tb", b := Seen(), group="B"),
    ):
        poll_until(gone, 1)
        with loop(door) as runner:
            publish("ta", "slow")
            wait_until(lambda: a.messages, "A's handler runs")
            with HeldTransaction(HELD["reset"]) as held:
                is_held.set()
                wait_until(lambda: runner._completer.unsettled, "its time is over")
                gone.close()
                second = engine_of(runner, "B")
                wait_until(lambda: second.has_quarantined, "B's suspect waits")
                the_loop_turns()
                assert not b.messages
                door.set()
                held.rollback()
            wait_until(lambda: b.messages, "B continues")


def test_suspects_of_a_paused_group_stop_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A's quarantined message waits until B's handler ends. A caller pauses A.

    B then gets other messages while its handler still runs.
    """
    monkeypatch.setattr(call_starter, "Quarantine", partial(Quarantine, quiet_for=NEVER))
    door = threading.Event()
    subscribe("ta", "A")
    publish("ta", "suspect", key="suspect")
    slow = Seen(lambda message: message.payload == "slow" and door.wait(4 * PATIENCE))
    with (
        Subscription("ta", "A", name="gone") as gone,
        registered("ta", a := Seen(), group="A"),
        registered("tb", slow, group="B"),
    ):
        poll_until(gone, 1)
        with loop(door) as runner:
            publish("tb", "slow", key="slow")
            wait_until(lambda: slow.messages, "B's handler runs")
            gone.close()
            first = engine_of(runner, "A")
            wait_until(lambda: first.has_quarantined, "A's suspect waits")
            pause("ta", "A")
            wait_until(lambda: first.state.paused, "A is paused")
            assert first.state.quarantined
            publish_many("tb", range(20))
            wait_until(lambda: len(slow.messages) == 21, "the other group continues")
            assert not a.messages
            door.set()


def test_many_answers_of_a_resting_group_keep_no_answer_of_another_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rejects more messages than one turn of the loop settles, and rests.

    B's message fails meanwhile and is delivered again.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", NEVER)
    door = threading.Event()

    def reject(messages: list[Message]) -> None:
        door.wait(PATIENCE)
        raise Reject("no")

    def fail(message: Message) -> None:
        if message.attempt == 1:
            raise Retry("again", delay=0)

    publish_many("ta", [OutgoingMessage(number, key="k") for number in range(150)])
    with (
        registered("ta", reject, group="A", batch=True, batch_size=150),
        registered("tb", b := Seen(fail), group="B"),
        loop(door) as runner,
    ):
        first = engine_of(runner, "A")
        wait_until(lambda: first.in_flight == 150, "the batch is claimed")
        with HeldTransaction(HELD["reset"]) as held:
            door.set()
            wait_until(lambda: first.backing_off, "A rests")
            publish("tb", "again")
            wait_until(lambda: len(b.messages) == 2, "B's answer is given")
            held.rollback()
    assert b.attempts("again") == [1, 2]


def lease_in_the_making() -> None:
    PartitionLease.objects.create(
        consumer_group="A", topic="ta", partition_key="k", leased_by="other", holder="other",
        leased_at=0, lease_renewed_at=0,
    )  # fmt: skip


def test_drain_does_not_end_while_a_group_rests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process takes the lease of A's only message and does not commit.

    A worker that drains the group waits until that transaction ends.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", 0.2)
    subscribe("ta", "A")
    publish("ta", 1, key="k")
    with (
        registered("ta", seen := Seen(), group="A"),
        HeldTransaction(lease_in_the_making) as held,
        Background(partial(run, "ta:A", max_seconds=120)) as draining,
    ):
        wait_until(lambda: draining.is_done or caplog.text.count("has locked its rows") > 3, "it has looked")
        assert not draining.is_done
        held.rollback()
        assert "stopped: ack 1" in draining.result()
    assert seen.payloads == [1]


def test_by_hand_a_locked_suspect_stops_no_poll_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller has locked the row of a subscriber's quarantined message.

    When the message has run alone for its time, ``poll`` returns other messages.
    """
    monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: NEVER)
    quarantine("ta", "A")
    publish("ta", "other", key="other")
    with Subscription("ta", "A") as heir:
        (suspect,) = poll_until(heir, lambda got: "suspect" in [delivery.payload for delivery in got])
        states = DeliveryState.objects.filter(partition_key="suspect")
        with HeldTransaction(lambda: states.update(delivered_at=1)):
            assert heir.poll() == []
            monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: 0.0)
            assert [delivery.payload for delivery in consume(heir, 1)] == ["other"]
            assert is_alone("A")
        monkeypatch.setattr(claim_scheduler, "NOTE_AGAIN", 0.0)
        wait_until(lambda: heir.poll() == [] and not is_alone("A"), "it is noted")
        assert suspect.ack()
