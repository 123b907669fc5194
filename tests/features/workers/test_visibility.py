"""A message is not delivered again while its handler runs, for any length of time."""

from __future__ import annotations

import pytest

from django_mqueue import Message, Subscription, publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, database_ms, wait_until
from tests.support.running import Seen, registered, run, wait_until_extended
from tests.support.shop.models import Door, Step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_a_handler_slower_than_its_visibility_timeout_is_not_interrupted_by_a_second_delivery() -> None:
    """The handler runs for three times its timeout of one second. A second worker could take the message."""
    with Workers() as workers:
        publish("parcels", {"n": 1, "do": "wait", "door": "exit"}, key="k")
        both = [workers.start("parcels"), workers.start("parcels")]
        wait_until(lambda: Step.objects.exists(), "the handler has started")
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "both have joined")
        after = database_ms() + 3000
        late = SubscriberHeartbeat.objects.filter(heartbeat_at__gt=after)
        wait_until(lambda: late.count() == 2, "both have looked for work after three seconds")
        wait_until(lambda: DeliveryState.objects.filter(invisible_until__gt=after), "it is extended")
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end").exists(), "the handler has ended")
        assert [worker.stop() for worker in both] == [0, 0]
    assert [(s.what, s.attempt) for s in Step.objects.order_by("id")] == [("start", 1), ("end", 1)]
    state = DeliveryState.objects.get()
    assert (state.acked, state.retry_count) == (True, 0)


def test_it_is_extended_while_the_worker_is_told_to_stop() -> None:
    """Between SIGTERM and the handler's end, the worker also renews its lease. No other worker gets the key."""
    with Workers() as workers:
        publish("parcels", {"n": 1, "do": "wait", "door": "exit"}, key="k")
        first = workers.start("parcels", "--name", "first")
        wait_until(lambda: Step.objects.exists(), "the handler has started")
        first.process.terminate()
        second = workers.start("parcels", "--name", "second")
        joined = SubscriberHeartbeat.objects.filter(subscriber_name="second")
        wait_until(lambda: joined.exists(), "the second has joined")
        after = database_ms() + 3000  # Longer than the visibility timeout.
        renewed = PartitionLease.objects.filter(leased_by="first", lease_renewed_at__gt=after)
        wait_until(
            lambda: renewed.exists() and joined.filter(heartbeat_at__gt=after).exists(),
            "both of them continue",
        )
        wait_until(lambda: DeliveryState.objects.filter(invisible_until__gt=after), "it is extended")
        Door.objects.create(name="exit")
        assert first.wait() == 0
        assert second.stop() == 0
    assert [(s.what, s.attempt) for s in Step.objects.order_by("id")] == [("start", 1), ("end", 1)]


def test_messages_claimed_ahead_of_free_threads_are_kept_too() -> None:
    """One call is slow. Each message that waits for it is delivered once, as attempt 1."""

    def handle(message: Message) -> None:
        if message.payload == 60:
            wait_until_extended(3000)

    for n in range(120):
        publish("t", n, key=f"k{n % 3}")
    with registered("t", seen := Seen(handle), batch_size=100, visibility_timeout=3):
        run(threads=1)
    assert sorted(seen.payloads) == list(range(120))
    assert {message.attempt for message in seen.messages} == {1}


def test_what_was_left_unanswered_by_hand_comes_again_after_the_timeout() -> None:
    """A subscription that is polled by hand extends no delivery."""
    publish("t", 1)
    with Subscription("t", "g", visibility_timeout=0.3) as subscription:
        (first,) = subscription.poll()
        visible_at = DeliveryState.objects.get().invisible_until
        (again,) = wait_until(subscription.poll, "it is delivered again")
        assert DeliveryState.objects.get().delivered_at >= visible_at
        assert (first.attempt, again.attempt) == (1, 2)
        again.ack()
