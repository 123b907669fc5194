"""A worker that lost its lease or its delivery changes nothing, and the new owner is undisturbed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.test import override_settings

from django_mqueue import Delivery, FencedSubscription, StaleDelivery, Subscription, publish
from django_mqueue.models import DeliveryState, Message, PartitionLease
from tests.support.fixtures import with_settings
from tests.support.processes import database_ms, gather, wait_until
from tests.support.subscribers import engine_of, let_die

pytestmark = pytest.mark.django_db(transaction=True)

VERBS: dict[str, Callable[[Delivery], object]] = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(delay=0, error="stale"),
    "reject": lambda delivery: delivery.reject("stale"),
    "postpone": lambda delivery: delivery.postpone(0),
    "extend": lambda delivery: delivery.extend(500),
}
quick = with_settings(
    MQUEUE={"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": 3600, "LEASE_RENEWAL_INTERVAL": 0.1}
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rows() -> list[dict[str, object]]:
    """Return the rows that a stale worker must not change: delivery state, the log with dead letters, leases."""
    leases = [
        {**row, "lease_renewed_at": None} for row in PartitionLease.objects.order_by("id").values()
    ]  # the owner renews
    state = DeliveryState.objects.order_by("message_offset").values()
    return [
        *map(dict, state),
        *map(dict, Message.objects.order_by("offset").values("offset", "topic")),
        *leases,
    ]


def stolen(
    stack: ExitStack, **options: object
) -> tuple[Subscription, list[Delivery], Subscription, list[Delivery]]:
    """Let the lease of the old owner expire. Return (old owner, its deliveries, new owner, its deliveries)."""
    old = stack.enter_context(Subscription("t", "g", name="old", **options))  # type: ignore[arg-type]
    held = wait_until(lambda: old.poll(max_messages=3), "the old one has some")
    let_die("old")
    new = stack.enter_context(Subscription("t", "g", name="new", **options))  # type: ignore[arg-type]
    got = wait_until(new.poll, "the new one took over")
    return old, held, new, got


@pytest.mark.parametrize("verb", VERBS)
def test_after_its_lease_was_stolen_a_worker_can_do_nothing(verb: str, stack: ExitStack) -> None:
    """Each call is refused and changes no row. The new owner can ack its own delivery."""
    for n in range(5):
        publish("t", n, key="k")
    _, held, _, got = stolen(stack)
    assert [d.payload for d in held] == [0, 1, 2]
    assert [d.payload for d in got] == [0], "unanswered ones come alone"
    before = rows()
    for delivery in held:
        with pytest.raises(StaleDelivery):
            VERBS[verb](delivery)
        with pytest.raises(StaleDelivery):
            VERBS[verb](delivery)
    assert rows() == before
    assert got[0].ack()


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_that_ran_out_and_was_taken_by_nobody_is_still_the_workers(
    verb: str, stack: ExitStack
) -> None:
    """No other worker has received the message, so the call succeeds."""
    publish("t", 1, key="k")
    old = stack.enter_context(Subscription("t", "g", name="old"))
    (held,) = wait_until(old.poll, "it has it")
    lease = PartitionLease.objects.get()
    PartitionLease.objects.update(lease_renewed_at=lease.lease_renewed_at - 60_000)
    assert VERBS[verb](held)


def test_it_can_not_claim_either_whatever_it_had_prefetched(stack: ExitStack) -> None:
    """It had read fifty messages of the partition ahead. Its polls return nothing, because it lost the lease."""
    for n in range(50):
        publish("t", n, key="k")
    old, held, new, got = stolen(stack)
    assert len(held) == 3
    before = rows()
    membership = engine_of(old).membership
    membership._renew_at = membership._beat_at = math.inf  # otherwise it would notice the theft first
    with override_settings(MQUEUE={"DISCOVERY_INTERVAL": 3600, "LEASE_RENEWAL_INTERVAL": 3600}):
        for _ in range(5):
            assert old.poll() == []
    assert rows() == before

    def done() -> list[tuple[object, int]]:
        deliveries = new.poll()
        new.ack(deliveries)
        return [(delivery.payload, delivery.attempt) for delivery in deliveries]

    new.ack(got)
    seen = [(0, 2), *gather(done, 49, "the new one goes on")]
    assert sorted(seen) == [(n, 2 if n < 3 else 1) for n in range(50)]


def test_many_acks_at_once_finish_those_that_are_still_the_workers(stack: ExitStack) -> None:
    """One of two partitions is stolen. The error names its deliveries, and the other deliveries are acknowledged."""
    for n in range(4):
        publish("t", n, key=f"k{n % 2}")
    old = stack.enter_context(Subscription("t", "g", name="old"))
    held = wait_until(old.poll, "it has all")
    while len(held) < 4:
        held += old.poll()
    PartitionLease.objects.filter(partition_key="k1").update(holder="another", leased_by="another")
    with pytest.raises(StaleDelivery) as caught:
        old.ack(held)
    assert sorted(d.payload for d in caught.value.stale) == [1, 3]
    done = DeliveryState.objects.filter(acked=True).values_list("partition_key", flat=True)
    assert list(done) == ["k0", "k0"]


@pytest.mark.parametrize("verb", VERBS)
def test_after_its_visibility_ran_out_and_it_was_delivered_again_a_delivery_is_void(
    verb: str, stack: ExitStack
) -> None:
    """The same subscriber gets the message twice. Only the newer delivery counts."""
    publish("t", 1, key="k")
    subscription = stack.enter_context(Subscription("t", "g", visibility_timeout=0.1))
    (first,) = subscription.poll()
    (second,) = wait_until(subscription.poll, "it is delivered again")
    before = rows()
    with pytest.raises(StaleDelivery):
        VERBS[verb](first)
    assert rows() == before
    assert second.ack()
    with pytest.raises(StaleDelivery):
        VERBS[verb](first)
    assert DeliveryState.objects.get().acked


def test_after_its_visibility_ran_out_and_nobody_had_it_again_a_delivery_still_counts(
    stack: ExitStack,
) -> None:
    publish("t", 1, key="k")
    subscription = stack.enter_context(Subscription("t", "g", visibility_timeout=0.05))
    (first,) = subscription.poll()
    until = DeliveryState.objects.get().invisible_until
    wait_until(lambda: database_ms() > until, "it has run out")
    assert first.ack()
    assert subscription.poll() == []


@pytest.mark.parametrize("ending", [verb for verb in VERBS if verb != "extend"])
@pytest.mark.parametrize("verb", VERBS)
def test_after_its_end_a_delivery_takes_no_other_answer(ending: str, verb: str, stack: ExitStack) -> None:
    """The same call returns True again. Any other call is refused. Neither changes a row."""
    publish("t", 1, key="k")
    subscription = stack.enter_context(Subscription("t", "g"))
    (delivery,) = subscription.poll()
    assert VERBS[ending](delivery)
    before = rows()
    if verb == ending:
        assert VERBS[verb](delivery)
    else:
        with pytest.raises(StaleDelivery):
            VERBS[verb](delivery)
    assert rows() == before


def test_a_put_back_delivery_can_not_be_acked_by_its_old_object_after_it_went_out_again(
    stack: ExitStack,
) -> None:
    """``postpone`` does not count the attempt, so both deliveries have the same number. Only their tokens differ."""
    publish("t", 1, key="k")
    subscription = stack.enter_context(Subscription("t", "g"))
    (first,) = subscription.poll()
    first.postpone(0)
    (second,) = wait_until(subscription.poll, "it is delivered again")
    assert (first.attempt, second.attempt) == (1, 1)
    with pytest.raises(StaleDelivery):
        first.ack()
    assert second.ack()


def test_a_subscriber_of_the_same_name_takes_over_at_once_and_the_older_is_told(stack: ExitStack) -> None:
    """It does not wait for the lease to expire. When the new subscriber starts, the old one loses its deliveries."""
    with override_settings(MQUEUE={"LEASE_DURATION": 60, "DISCOVERY_INTERVAL": 0.02}):
        for n in range(5):
            publish("t", n, key="k")
        old = stack.enter_context(Subscription("t", "g", name="twin"))
        held = old.poll(max_messages=2)
        new = stack.enter_context(Subscription("t", "g", name="twin"))
        for delivery in held:
            with pytest.raises(StaleDelivery):
                delivery.ack()
        (again,) = new.poll()
        assert (again.payload, again.attempt) == (0, 2)
        with pytest.raises(FencedSubscription, match="'twin'"):
            wait_until(old.poll, "it is told")
        old.close()
        assert again.ack()
        (following,) = new.poll()
        assert following.payload == 1


def test_a_fenced_subscriber_that_closes_leaves_its_successors_leases_alone(stack: ExitStack) -> None:
    publish("t", 1, key="k")
    old = Subscription("t", "g", name="twin").open()
    new = stack.enter_context(Subscription("t", "g", name="twin"))
    (delivery,) = wait_until(new.poll, "the new one has it")
    before = rows()
    old.close()
    assert rows() == before
    assert delivery.ack()
