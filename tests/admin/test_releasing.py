"""Releasing leases on the pages: other workers continue with the messages."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from django.test import Client, override_settings

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    subscribe,
)
from django_mqueue import release as release_it
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.service import releasing
from tests.factories import LeaseFactory
from tests.support.fixtures import with_settings
from tests.support.processes import FAST, Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import QUICK, consume, engine_of, poll_until, stop_between_transactions
from tests.support.transactions import HeldTransaction

from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down
from .rows import ODD_KEYS

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
OF = {"topic": TOPIC, "group": GROUP}


kept = with_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "RETENTION": 3600})
"""Use leases that do not expire during a test."""


client = staff_client(
    "release_partitionlease", "view_offset", "view_partitionlease", "view_subscriberheartbeat"
)


def owners() -> dict[str, str]:
    return dict(PartitionLease.objects.values_list("partition_key", "leased_by"))


def shown(client: Client, **asked: Any) -> str:
    return " ".join(text(html_of(client, url_of("release_leases"), {**OF, **asked})).split())


def test_another_finishes_what_one_that_hangs_had_in_hand(client: Client) -> None:
    """The hanging worker renews its lease and never acks. Only a release ends that."""
    publish_many(TOPIC, [OutgoingMessage(number, key="k") for number in range(3)])
    with Subscription(TOPIC, GROUP, "hung") as hung:
        held = poll_until(hung, 3)
        page = shown(client, partition="k")
        assert "Release 1 lease of hung on key k, group billing on topic orders?" in page
        assert "3 messages are in flight" in page
        assert "hung is alive, and may take its partitions again at once." in page
        response = confirm(client, "release_leases", {**OF, "partition": "k"})
        assert told(response) == ["1 lease was released: key k."]
        assert response.redirect_chain[0][0] == f"{url_of('group_partitions')}?topic=orders&group=billing"
        assert written_down() == [("operator", "billing on orders", "1 lease was released: key k.")]
        with Subscription(TOPIC, GROUP, "healthy") as healthy:
            again = consume(healthy, 3)
            assert sorted((one.payload, one.attempt) for one in again) == [(0, 2), (1, 2), (2, 2)]
            for one in held:
                with pytest.raises(StaleDelivery):
                    one.ack()
    assert set(DeliveryState.objects.values_list("acked", "delivered_to", "failure_count")) == {
        (True, "healthy", 0)
    }


def test_a_worker_process_that_stands_still(client: Client) -> None:
    """The group is strict, so the key waits for the worker.

    The worker is stopped in a handler, and continues after the other has finished.
    """
    fast = {**FAST, "LEASE_DURATION": 600}
    with Workers(fast) as workers, override_settings(MQUEUE=fast):
        hung = workers.start("ledger", "--name", "hung")
        first = publish("ledger", {"n": 0, "do": "wait", "door": "d"}, key="k")
        publish_many("ledger", [OutgoingMessage({"n": n}, key="k") for n in (1, 2)])
        wait_until(lambda: Step.objects.filter(what="start", pid=hung.pid).exists(), "it has begun")
        stop_between_transactions(hung)
        healthy = workers.start("ledger", "--name", "healthy")
        confirm(client, "release_leases", {"topic": "ledger", "group": "books", "partition": "k"})
        wait_until(lambda: Step.objects.filter(what="start", pid=healthy.pid).exists(), "the other has it")
        Door.objects.create(name="d")
        done = Step.objects.filter(what="end", pid=healthy.pid).order_by("id")
        wait_until(lambda: done.count() == 3, "the other has done all three")
        assert list(done.values_list("number", "attempt")) == [(0, 2), (1, 1), (2, 1)]
        state = DeliveryState.objects.filter(message_offset=first.offset)
        wait_until(lambda: state.filter(acked=True).exists(), "its answer has counted")
        before = state.values().get()
        hung.send(signal.SIGCONT)
        wait_until(lambda: Step.objects.filter(what="end", pid=hung.pid).exists(), "the first goes on")
        assert (healthy.stop(), hung.stop()) == (0, 0)
        assert state.values().get() == before


def test_all_of_a_subscriber(client: Client) -> None:
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(5)])
    with Subscription(TOPIC, GROUP, "hung") as hung:
        poll_until(hung, 5)
        LeaseFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key="other's", leased_by="other")
        LeaseFactory.create(topic=TOPIC, consumer_group="stock", partition_key="k0", leased_by="hung")
        page = shown(client, subscriber="hung")
        assert "Release 5 leases of hung, group billing on topic orders?" in page
        assert "5 messages are in flight" in page
        response = confirm(client, "release_leases", {**OF, "subscriber": "hung"})
        assert told(response) == ["5 leases of hung were released."]
        free = PartitionLease.objects.filter(leased_by="", consumer_group=GROUP)
        assert sorted(free.values_list("partition_key", flat=True)) == [f"k{n}" for n in range(5)]
        assert PartitionLease.objects.exclude(leased_by="").count() == 2


def test_many_at_once() -> None:
    """The release needs more than one transaction."""
    subscribe(TOPIC, GROUP)
    for number in range(450):
        LeaseFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key=f"k{number}", leased_by="w")
    assert int(release_it(TOPIC, GROUP, subscriber="w")) == 450
    assert set(owners().values()) == {""}


def test_who_holds_it_since_the_page_was_made_keeps_it(client: Client) -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, "one") as one:
        poll_until(one, 1)
        page = client.get(url_of("release_leases"), {**OF, "partition": "k"}).content.decode()
    with Subscription(TOPIC, GROUP, "two") as two:
        (held,) = poll_until(two, 1)
        response = client.post(url_of("release_leases"), hidden(page))
        assert response.status_code == 409
        assert "Nothing was released" in text(response.content.decode())
        assert owners() == {"k": "two"}
        assert "no longer holds the lease" in shown(client, partition="k", holder=hidden(page)["holder"])
        assert held.ack()


def test_what_its_holder_has_locked_is_left_and_said(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "LOCK_WAIT_SECONDS", 0.0)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(2)])
    with Subscription(TOPIC, GROUP, "hung") as hung:
        one, _ = poll_until(hung, 2)
        with HeldTransaction(one.ack) as handler:
            response = confirm(client, "release_leases", {**OF, "subscriber": "hung"})
            assert "not released, because the subscriber" in told(response)[0]
            handler.commit()
    kept_by = f"key {one.key}: not released, because the subscriber"
    assert kept_by in written_down()[0][2]


def test_nobody_holds_it(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    page = client.get(url_of("release_leases"), {**OF, "partition": "k"}).content.decode()
    assert "The subscriber that the page showed no longer holds the lease on key k." in text(page)
    assert 'value="Release"' not in page


@pytest.mark.parametrize(
    "asked", [{}, {"partition": "a\nb"}, {"subscriber": " x"}, {"partition": "k", "holder": "x" * 33}]
)
def test_what_nobody_can_be_called(client: Client, asked: dict[str, str]) -> None:
    subscribe(TOPIC, GROUP)
    response = client.post(url_of("release_leases"), {**OF, **asked, "confirmed": "yes"})
    assert response.status_code == 400
    assert written_down() == []


def test_it_needs_its_right() -> None:
    publish(TOPIC, 1, key="k")
    others = staff(
        "view_offset", "view_partitionlease", "view_subscriberheartbeat", "reset_consumergroup", name="other"
    )
    with Subscription(TOPIC, GROUP, "one") as one:
        (held,) = poll_until(one, 1)
        asked = {**OF, "partition": "k"}
        for response in (
            others.get(url_of("release_leases"), asked),
            others.post(url_of("release_leases"), asked),
            others.post(url_of("release_leases"), {**asked, "confirmed": "yes"}),
        ):
            assert response.status_code == 403
        for page in ("group_partitions", "group_subscribers"):
            assert url_of("release_leases") not in others.get(url_of(page), OF).content.decode()
        assert held.ack()


def test_odd_keys_come_through_the_urls(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    for key in (*ODD_KEYS, " 0003"):
        PartitionLease.objects.all().delete()
        one_comes_through(client, key)


def one_comes_through(client: Client, key: str) -> None:
    LeaseFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key=key, leased_by="<i>w</i>")
    page = client.get(url_of("group_partitions"), OF).content.decode()
    assert "<b>bold" not in page
    assert "<i>w" not in page
    href = next(part for part in page.split('href="') if part.startswith(url_of("release_leases"))).split(
        '"'
    )[0]
    plan = client.get(href.replace("&amp;", "&")).content.decode()
    assert hidden(plan)["partition"] == key
    client.post(url_of("release_leases"), hidden(plan))
    assert owners() == {key: ""}


def test_its_holder_finds_out_by_itself() -> None:
    """The holder discards its state at its next renewal, or when it takes the partition again."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, "one") as one:
        (held,) = poll_until(one, 1)
        assert int(release_it(TOPIC, GROUP, partition="k")) == 1
        wait_until(lambda: one.poll() or not engine_of(one).state.in_flight, "it has noticed")
        with pytest.raises(StaleDelivery):
            held.ack()


def test_groups_that_are_not_there_have_no_leases(client: Client) -> None:
    with pytest.raises(NotRegistered):
        release_it(TOPIC, GROUP, partition="k")
    with pytest.raises(TypeError, match="partition or a subscriber"):
        release_it(TOPIC, GROUP)
    response = client.get(url_of("release_leases"), {**OF, "partition": "k"})
    assert response.status_code == 409
