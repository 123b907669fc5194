"""Groups and handlers of one process. A problem of one does not stop, delay or starve the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_mqueue import Message, Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import FAST
from tests.support.running import Seen, registered, run
from tests.support.subscribers import QUICK, consume, consume_rest, poll_until
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Four:
    """Four handlers of group gb run while ``lose`` changes group ga. They end when the worker has logged the loss."""

    def __init__(self, lose: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
        self.lose, self.caplog = lose, caplog
        self.running = threading.Barrier(4, action=self._lose)
        caplog.set_level(logging.ERROR, "django_mqueue")

    def _lose(self) -> None:
        self.lose()

    def __call__(self, message: Message) -> None:
        if message.payload == "early":
            self.running.wait(PATIENCE)
            wait_until(lambda: "stops:" in self.caplog.text, "the loss is noticed")
            publish("b", "late", key=message.key)

    def run(self) -> Seen:
        for n in range(4):
            publish("b", "early", key=f"k{n}")
        with registered("a", Seen(), group="ga"), registered("b", seen := Seen(self), group="gb"):
            try:
                run(drain=False, name="w", threads=4, max_messages=8)
            finally:
                self.seen = seen
        return seen


def assert_gb_left_nothing_behind() -> None:
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert not PartitionLease.objects.filter(consumer_group="gb").exclude(holder="").exists()
    assert not SubscriberHeartbeat.objects.filter(consumer_group="gb", deregistered_at=None).exists()


@override_settings(MQUEUE=FAST)
def test_a_group_that_is_unsubscribed_does_not_stop_the_others_of_its_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Handlers of another group run meanwhile. They are acked, and their group continues with new messages."""
    seen = Four(lambda: unsubscribe("a", "ga"), caplog).run()
    assert sorted(seen.payloads) == ["early"] * 4 + ["late"] * 4
    assert {message.attempt for message in seen.messages} == {1}
    assert DeliveryState.objects.filter(acked=True, failure_count=0).count() == 8
    assert_gb_left_nothing_behind()


@override_settings(MQUEUE=FAST)
def test_a_group_whose_name_is_taken_throws_away_no_work_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another subscriber takes the worker's name in ga. Handlers of gb end and are acked.

    The process releases its leases, and raises an error only when it ends.
    """
    taken: list[Subscription] = []
    four = Four(lambda: taken.append(Subscription("a", "ga", name="w").open()), caplog)
    try:
        with pytest.raises(CommandError, match="ga"):
            four.run()
    finally:
        for subscription in taken:
            subscription.close()
    assert four.seen.attempts("early") == [1] * 4
    assert DeliveryState.objects.filter(acked=True, failure_count=0).count() >= 4
    assert_gb_left_nothing_behind()


@override_settings(MQUEUE=FAST)
def test_a_process_whose_groups_are_all_unsubscribed_ends() -> None:
    """The process has no group left. It raises an error that names the group, and does not subscribe it again."""
    subscribe("a", "ga")
    publish("a", 1)
    with (
        registered("a", lambda message: unsubscribe("a", "ga"), group="ga"),
        pytest.raises(CommandError, match="ga"),
    ):
        run(drain=False)
    assert not DeliveryState.objects.exists()


def test_a_slow_handler_with_a_limit_leaves_the_other_threads_to_others() -> None:
    """A handler with ``concurrency=1`` has eight messages, and its first one waits. Four threads run.

    Meanwhile the other threads handle ten messages of another topic.
    """
    others_done = threading.Event()

    def slow(message: Message) -> None:
        if message.payload == 0:
            publish_many("quick", range(10))
            assert others_done.wait(PATIENCE), "the other handler is starved"

    seen = Seen(lambda message: others_done.set() if len(seen.messages) == 10 else None)
    publish_many("slow", range(8))
    with (
        registered("slow", limited := Seen(slow), concurrency=1, max_attempts=1, strict=False),
        registered("quick", seen),
    ):
        run(threads=4)
    assert sorted(seen.payloads) == list(range(10))
    assert sorted(limited.payloads) == list(range(8))
    assert limited.most_at_once == 1
    assert not DeliveryState.objects.exclude(acked=True, failure_count=0).exists(), (
        "the other one was starved"
    )


@pytest.mark.parametrize("change", ["subscribe", "unsubscribe"])
@override_settings(MQUEUE=QUICK)
def test_a_registration_in_an_open_transaction_holds_up_no_worker(change: str) -> None:
    """A caller subscribes or unsubscribes another group and does not commit, so the topic's row stays locked.

    Meanwhile messages are published, delivered, nacked and acked in new partitions. Nothing waits for a lock.
    """
    for group in ("g", "leaving"):
        subscribe("t", group)
    with Subscription("t", "g") as subscription:
        publish("t", 0, key="k0")
        consume(subscription, 1)
        changes = {
            "subscribe": lambda: subscribe("t", "newcomer"),
            "unsubscribe": lambda: unsubscribe("t", "leaving"),
        }

        def work() -> None:
            for n in range(1, 4):
                publish("t", n, key=f"k{n}")
            first, *others = poll_until(subscription, 3)
            first.nack()
            subscription.ack(others)
            consume(subscription, 1)
            consume_rest(subscription)  # Settling, renewal and watermarks are due.

        with HeldTransaction(changes[change]), Background(work) as working:
            working.result()


@override_settings(MQUEUE=FAST)
def test_a_group_that_is_subscribed_again_goes_on_in_the_same_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another handler of the process unsubscribes the group, waits for the log line, and subscribes it again.

    The process handles the group's new messages.
    """

    def lose_and_regain(message: Message) -> None:
        unsubscribe("a", "ga")
        wait_until(lambda: "stops:" in caplog.text, "the loss is noticed")
        subscribe("a", "ga")
        publish("a", "again", key="k")

    caplog.set_level(logging.ERROR, "django_mqueue")
    publish("b", "lose")
    with registered("a", seen := Seen(), group="ga"), registered("b", lose_and_regain, group="gb"):
        run(drain=False, max_messages=2)
    assert seen.payloads == ["again"]
