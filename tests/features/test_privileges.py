"""Each account has exactly the documented privileges and can do what its text says. No publisher can do more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from django_mqueue import (
    DuplicateMessage,
    FixedDelay,
    OutgoingMessage,
    Postpone,
    Reject,
    RequestTimeout,
    Subscription,
    cancel,
    inspect,
    pause,
    publish,
    publish_many,
    purge,
    redrive,
    release,
    request,
    reschedule,
    reset,
    resume,
    scheduled,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import Message as Row
from django_mqueue.models import Offset
from tests.docs_and_example.docs.blocks import blocks
from tests.support.accounts import PAGE, acting_as, documented
from tests.support.running import Seen, registered, run
from tests.support.subscribers import QUICK, poll_until
from tests.support.transactions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TABLE_DENIED, COLUMN_DENIED = 1142, 1143
PUBLISHERS = (
    "publisher",
    "publisher_of_many",
    "publisher_with_ids",
    "scheduler",
    "requester",
    "spark_writer",
)


@contextmanager
def denied() -> Iterator[None]:
    """Check that the server refuses the statement because the account lacks a privilege."""
    with pytest.raises(OperationalError) as caught:
        yield
    assert caught.value.args[0] in (TABLE_DENIED, COLUMN_DENIED), caught.value


@pytest.fixture(autouse=True)
def a_group() -> None:
    subscribe("orders", "billing")


def publish_plainly() -> None:
    assert publish("orders", 1, key="ada").created
    assert publish("orders", 2).created
    assert publish("orders", 3, group="billing").created
    assert publish("orders", 4, delay=3600).created
    assert (
        len(publish_many("orders", [5, OutgoingMessage(6, key="ada"), OutgoingMessage(7, delay=3600)])) == 3
    )


def publish_many_with_ids() -> None:
    many = [OutgoingMessage(n, id=f"{n}") for n in range(3)]
    assert [each.created for each in publish_many("orders", many)] == [True] * 3
    again = publish_many("orders", [*many, OutgoingMessage(9, id="9")])
    assert [each.created for each in again] == [False, False, False, True]


def publish_with_ids() -> None:
    assert publish("orders", 1, id="a").created
    assert not publish("orders", 1, id="a").created
    with pytest.raises(DuplicateMessage):
        publish("orders", 1, id="a", on_duplicate="error")


def publish_for_later() -> None:
    for _ in range(2):
        publish("later", 1, id="x", delay=3600)
    assert publish("later", 2, id="x", delay=3600, on_duplicate="replace").replaced
    publish_many("later", [OutgoingMessage(n, id=f"{n}", delay=3600) for n in range(2)])
    publish_many("later", [OutgoingMessage(n, id=f"{n}", delay=3600) for n in range(3)])
    assert len(list(scheduled("later"))) == 4
    assert reschedule("later", "x", delay=7200)
    assert cancel("later", "x")
    assert publish("later", 2, id="1", on_duplicate="replace").replaced


def ask() -> None:
    with pytest.raises(RequestTimeout):
        request("orders", 1, timeout=0.05)
    assert not Row.objects.filter(topic="orders_replies").exists()


@pytest.mark.parametrize(
    ("account", "verbs"),
    [
        ("publisher", (publish_plainly,)),
        ("publisher_of_many", (publish_plainly, publish_many_with_ids)),
        ("publisher_with_ids", (publish_plainly, publish_many_with_ids, publish_with_ids)),
        ("scheduler", (publish_plainly, publish_many_with_ids, publish_with_ids, publish_for_later)),
        ("requester", (publish_plainly, ask)),
    ],
)
def test_publishers(account: str, verbs: tuple[Callable[[], None], ...]) -> None:
    with acting_as(account):
        for verb in verbs:
            verb()


@pytest.mark.parametrize(
    ("account", "verb"),
    [
        ("publisher", publish_many_with_ids),
        ("publisher_of_many", publish_with_ids),
        ("publisher", ask),
        ("publisher_with_ids", ask),
    ],
)
def test_publishers_that_lack_a_privilege(account: str, verb: Callable[[], None]) -> None:
    with acting_as(account), denied():
        verb()


@pytest.mark.parametrize("account", PUBLISHERS)
def test_no_publisher_pauses_or_moves_a_group(account: str) -> None:
    with acting_as(account):
        for stop in (pause, unsubscribe, lambda topic, group: reset(topic, group, "latest")):
            with denied():
                stop("orders", "billing")
        for change in ({"paused": True}, {"offset_acked": 1 << 60}, {"updated_at": 0}):
            with denied():
                Offset.objects.update(**change)
        with denied():
            Offset.objects.filter(consumer_group="").delete()
    assert Offset.objects.filter(consumer_group="billing", paused=False).exists()


def handle(message: Any) -> None:
    match message.payload, message.attempt:
        case "fails", _:
            raise ValueError("no")
        case "rejected", _:
            raise Reject("never")
        case "postponed", _ if publish_many("seen", [OutgoingMessage(1, id="once")])[0].created:
            raise Postpone(0)
        case "asks", _:
            message.extend(60)


def test_a_worker() -> None:
    """The worker's account runs handlers, parks a retry, promotes, dead-letters, settles and deletes."""
    with override_settings(MQUEUE=QUICK), acting_as("worker"):
        publish("work", 0, delay=0.01)
        publish_many("work", ["done", "fails", "rejected", "postponed", "asks"])
        seen = Seen(handle)
        with registered("work", seen, max_attempts=2, retry=FixedDelay(0.01)):

            def has_done_all() -> bool:
                """Run again: a draining worker leaves messages that become due after its last poll."""
                run()
                return 0 in seen.payloads and Row.objects.filter(topic="work_dlq").count() == 2

            wait_until(has_done_all, "the delayed message is handled, and two are dead letters")
        assert set(seen.payloads) == {0, "done", "fails", "rejected", "postponed", "asks"}
        assert Row.objects.filter(topic="work_dlq").count() == 2


def test_consuming_by_hand_and_deleting() -> None:
    with override_settings(MQUEUE=QUICK), acting_as("worker"):
        publish_many("orders", ["ack", "nack", "reject", "postpone", "extend", "atomic"])
        with Subscription("orders", group="billing", name="worker") as subscription:
            found = {delivery.payload: delivery for delivery in poll_until(subscription, 6)}
            found["ack"].ack()
            found["nack"].nack(error="no")
            found["reject"].reject("never")
            found["postpone"].postpone(0)
            found["extend"].extend(60)
            with found["atomic"].atomic():
                publish("invoices", 1)
            subscription.ack([found["extend"]])
            for delivery in poll_until(subscription, 2):
                delivery.ack()
            poll_until(subscription, lambda _: not Row.objects.filter(topic="orders").exists())


def look() -> None:
    """Call every function of ``inspect`` that changes nothing."""
    inspect.topics()
    inspect.subscribers("orders", "billing")
    inspect.holds("orders")
    inspect.groups("orders")
    inspect.topic_figures(["orders"])
    inspect.group_figures([("orders", "billing")])
    inspect.counts("orders", group="billing")
    inspect.partitions("orders", "billing")
    inspect.deliveries("orders", "billing")
    inspect.rates([("orders", "billing")])
    inspect.latency("orders", "billing")
    inspect.lag("orders", "billing")
    for to in ("earliest", "latest"):
        inspect.preview_reset("orders", "billing", to)
    for status in ("pending", "in_flight", "waiting", "done", "dead", "scheduled"):
        inspect.messages("orders", group="billing", status=status)
    assert list(inspect.messages("orders"))
    list(scheduled("orders"))


def test_a_viewer() -> None:
    publish_many("orders", [OutgoingMessage(n, id=f"{n}") for n in range(3)])
    with acting_as("viewer"):
        look()
        for change in (pause, unsubscribe):
            with denied():
                change("orders", "billing")
        with denied():
            subscribe("orders", "reports")
        with denied():
            publish("orders", 4)
        with denied():
            inspect.remove("orders", group="billing", id="1")


def test_an_operator() -> None:
    with override_settings(MQUEUE=QUICK):
        publish_many("orders", [OutgoingMessage(n, id=f"{n}", key="ada") for n in range(6)])
        for n in range(2):
            publish("orders", n, delay=3600, id=f"later-{n}")
            publish("mail", n, id=f"{n}", key=f"{n}")
        subscribe("mail", "billing")
        with Subscription("orders", group="billing", name="worker") as subscription:
            found = poll_until(subscription, 6)
            found[0].reject("no")
            found[1].reject("no")
            found[2].nack(delay=3600, error="no")
            found[3].nack(delay=3600, error="no")
            with acting_as("operator"):
                operate()


def operate() -> None:
    look()
    assert pause("orders", "billing") == 1
    assert resume("orders", "billing") == 1
    subscribe("orders", "reports")
    subscribe("orders", "audit", start="latest")
    assert redrive("orders", ids=["0"]) == 1
    assert purge("orders") == 1
    assert inspect.send_to_front("orders", group="billing", id="2") == 1
    assert inspect.remove("orders", group="billing", id="3") == 1
    assert inspect.remove("orders", group=None, status="scheduled", id="later-0") == 1
    assert inspect.send_to_front("orders", group=None, status="scheduled", id="later-1") == 1
    assert inspect.remove("mail", group="billing", id="0") == 1
    assert inspect.send_to_front("mail", group="billing", id="1") == 1
    assert release("orders", "billing", subscriber="worker")
    reset("orders", "billing", "earliest", force=True)
    unsubscribe("orders", "reports")


def test_every_account_is_tested() -> None:
    """``spark/test_privileges.py`` tests the accounts for Spark."""
    spark = {
        "spark_reader", "spark_settler", "spark_group", "spark_writer", "spark_replayer", "spark_reporter",
    }  # fmt: skip
    assert set(documented()) == {*PUBLISHERS, "worker", "viewer", "operator", *spark}


def test_the_example_is_the_account_of_the_table() -> None:
    (example,) = [block for block in blocks(PAGE) if "account=publisher" in block.info]
    assert example.text == documented()["publisher"]


def test_no_account_may_do_more_than_the_text_says() -> None:
    """No grant covers a whole database or other tables, or includes the right to grant."""
    for name, sql in documented().items():
        grants = [line for line in sql.splitlines() if line.startswith("GRANT")]
        assert all(f" TO {name}@localhost;" in line and " ON shop.queue_" in line for line in grants), name
        if name in PUBLISHERS:
            assert [line for line in grants if "queue_offsets" in line] == [
                f"GRANT SELECT ON shop.queue_offsets TO {name}@localhost;"
            ]


def test_the_account_is_in_use() -> None:
    with acting_as("viewer"), connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        assert str(cursor.fetchone()[0]).startswith("mq_viewer@")
