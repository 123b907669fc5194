"""Requests and replies: their contents, their costs, and the arguments that they refuse."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings

from django_mqueue import (
    DuplicateMessage,
    MQueueError,
    NotARequest,
    NotRegistered,
    OutgoingMessage,
    Reply,
    RequestFailed,
    RequestTimeout,
    Subscription,
    arequest,
    consumer,
    publish,
    publish_many,
    request,
    subscribe,
)
from django_mqueue.models import Message
from django_mqueue.service import requesting
from tests.support.processes import wait_until
from tests.support.running import registered, run
from tests.support.statements import counted
from tests.support.threads import lost_after_its_commit
from tests.support.transactions import Background
from tests.support.waiting import PATIENCE

from .asking import asked, boxes, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_a_reply_by_hand() -> None:
    with Subscription("prices", "shop") as subscription:
        with asked("prices", {"of": "tea"}, key="tea", kind="price?", headers={"h": 1}) as requester:
            delivery = one(subscription)
            assert (delivery.payload, delivery.key, delivery.kind) == ({"of": "tea"}, "tea", "price?")
            assert delivery.is_request
            assert delivery.headers == {"h": 1}
            with pytest.raises(ValueError, match="headers must not hold 'mqueue-reply-to'"):
                delivery.reply(1, headers={"mqueue-reply-to": "1:00000000-0000-0000-0000-000000000000"})
            assert delivery.reply({"price": 4}, kind="price", headers={"currency": "EUR"}) is True
            assert requester.result() == Reply({"price": 4}, "price", {"currency": "EUR"})
        delivery.ack()
    assert boxes("prices") == []


@pytest.mark.parametrize("payload", [None, b"\x00\xff", "ü", 4, [], {"a": [1, {"b": None}]}])
def test_what_is_replied_is_what_comes(payload: Any) -> None:
    with Subscription("prices", "shop") as subscription, asked("prices", 1) as requester:
        one(subscription).reply(payload)
        assert requester.result() == Reply(payload)


@pytest.mark.parametrize("atomic", [False, True])
def test_many_requesters_at_once_each_get_their_own(atomic: bool) -> None:
    """A running worker with four threads replies. No box is left."""
    publish("prices", "no request")

    def handle(message: Any) -> None:
        if message.is_request:
            message.reply(message.payload * 2)

    with registered("prices", handle, atomic=atomic):
        requesters = [asked("prices", n, timeout=60) for n in range(30)]
        for requester in requesters:
            requester.start()
        worker = Background(lambda: run("prices:g", drain=False, max_messages=31)).start()
        assert [requester.result() for requester in requesters] == [Reply(n * 2) for n in range(30)]
        worker.result()
    assert boxes("prices") == []


def test_of_an_async_caller_and_handler() -> None:
    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        assert await message.areply(message.payload + 1)

    async def ask() -> list[Reply]:
        return await asyncio.gather(*(arequest("prices", n, timeout=60) for n in range(5)))

    with registered("prices", handle):
        worker = Background(lambda: run("prices:g", drain=False, max_messages=5)).start()
        assert asyncio.run(ask()) == [Reply(n + 1) for n in range(5)]
        worker.result()
    assert boxes("prices") == []
    connections.close_all()


def test_of_a_handler_that_takes_batches() -> None:
    def handle(messages: list[Any]) -> None:
        for message in messages:
            message.reply([message.payload, len(messages)])

    with registered("prices", handle, batch=True):
        requesters = [asked("prices", n, key="k", timeout=60).start() for n in range(5)]
        wait_until(lambda: Message.objects.filter(topic="prices").count() == 5, "all have asked")
        worker = Background(lambda: run("prices:g", max_messages=5)).start()
        assert [requester.result().payload for requester in requesters] == [[n, 5] for n in range(5)]
        worker.result()


def test_of_a_handler_whose_payloads_are_parsed() -> None:
    with registered("prices", lambda message: message.reply(message.payload), kinds={"q": str, "r": None}):
        worker = Background(lambda: run("prices:g", drain=False, max_messages=3)).start()
        assert request("prices", 4, kind="q", timeout=60).payload == "4"
        assert request("prices", 4, kind="r", timeout=60).payload == 4
        with pytest.raises(RequestFailed, match="kind 's' is not accepted by this handler"):
            request("prices", 4, kind="s", timeout=60)
        worker.result()


def test_a_requester_whose_connection_is_lost_leaves_nothing() -> None:
    """The requester gets the database's error, gives up, and cleans up on a new connection."""
    requester = asked("prices", 1, timeout=60).start()
    wait_until(lambda: boxes("prices"), "it has asked")
    with connection.cursor() as cursor:
        cursor.execute(f"KILL {requester.connection_id}")
    with pytest.raises(OperationalError):
        requester.result()
    assert boxes("prices") == []


def test_a_requester_whose_connection_is_lost_right_after_it_asked_leaves_nothing() -> None:
    """The connection breaks after the COMMIT, before Django turns autocommit on. A transaction seems to be open."""
    with lost_after_its_commit(), pytest.raises(OperationalError):
        request("prices", 1, timeout=60)
    assert Message.objects.filter(topic="prices").count() == 1
    assert boxes("prices") == []


def test_an_async_caller_that_is_cancelled_leaves_nothing() -> None:
    async def ask() -> None:
        asking = asyncio.create_task(arequest("prices", 1, timeout=200))
        async with asyncio.timeout(PATIENCE):
            while not await sync_to_async(boxes)("prices"):
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    assert boxes("prices") == []
    assert Message.objects.filter(topic="prices").count() == 1


def test_a_requester_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(question: requesting.PendingRequest) -> None:
        assert len(boxes("prices")) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(requesting.PendingRequest, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        request("prices", 1)
    assert boxes("prices") == []


def test_nobody_replies() -> None:
    """The box holds the deadline, by the database's clock. The message can still be delivered and acknowledged."""
    with Subscription("prices", "shop") as subscription:
        with pytest.raises(RequestTimeout, match=r"'one' on topic 'prices' within 0.2 s") as raised:
            request("prices", 1, timeout=timedelta(milliseconds=200), id="one")
        error = raised.value
        assert isinstance(error, TimeoutError)
        assert isinstance(error, MQueueError)
        assert (error.topic, error.id, error.seconds) == ("prices", "one", 0.2)
        assert boxes("prices") == []
        delivery = one(subscription)
        assert delivery.reply(1) is False
        assert delivery.ack()
    assert boxes("prices") == []


def test_the_id_of_a_request_that_was_given_none_is_told() -> None:
    with pytest.raises(RequestTimeout) as raised:
        request("prices", 1, timeout=0.01)
    assert raised.value.id == Message.objects.get(topic="prices").message_id


def test_an_id_that_is_there_already() -> None:
    publish("prices", 1, key="k", id="one")
    with pytest.raises(DuplicateMessage) as raised:
        request("prices", 1, key="k", id="one")
    assert raised.value.published.id == "one"
    assert boxes("prices") == []


def test_of_one_group_alone() -> None:
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        with asked("prices", 1, group="shop") as requester:
            one(shop).reply("here")
            assert requester.result().payload == "here"
        assert audit.poll() == []
    with pytest.raises(NotRegistered):
        request("prices", 1, group="nobody")
    assert boxes("prices") == []


def test_a_handler_of_a_request_may_request() -> None:
    def outer(message: Any) -> None:
        message.reply(request("inner", message.payload, headers=message.headers, timeout=60).payload + 1)

    with (
        registered("outer", outer),
        registered("inner", lambda message: message.reply(message.payload * 10)),
    ):
        worker = Background(lambda: run("outer:g", "inner:g", drain=False, max_messages=2)).start()
        assert request("outer", 4, timeout=60).payload == 41
        worker.result()
    assert boxes("outer") == boxes("inner") == []


def test_a_message_that_is_published_with_the_headers_of_a_request_is_no_request() -> None:
    """Handlers do not see which box takes the reply, so they cannot pass it on."""
    seen: list[tuple[bool, dict[str, Any]]] = []

    def second(message: Any) -> None:
        seen.append((message.is_request, message.headers))

    def first(message: Any) -> None:
        publish("second", message.payload, headers=message.headers)
        message.reply(message.payload + 1)

    with registered("first", first), registered("second", second):
        worker = Background(lambda: run("first:g", "second:g", drain=False, max_messages=2)).start()
        assert request("first", 1, headers={"h": 1}, timeout=60).payload == 2
        worker.result()
    assert seen == [(False, {"h": 1})]


def test_publish_refuses_the_header_that_names_a_box() -> None:
    headers = {"mqueue-reply-to": "1:00000000-0000-0000-0000-000000000000"}
    for publishing in (
        lambda: publish("prices", 1, headers=headers),
        lambda: publish_many("prices", [OutgoingMessage(1, headers=headers)]),
        lambda: publish("prices", 1, headers=headers, delay=60),
        lambda: request("prices", 1, headers=headers),
    ):
        with pytest.raises(ValueError, match="headers must not hold 'mqueue-reply-to': only request"):
            publishing()
    assert not Message.objects.exists()


def test_a_message_that_is_no_request() -> None:
    with Subscription("prices", "shop") as subscription:
        for header in (None, 7, "1; DROP"):
            forge("prices", f"forged {header}", header)
            delivery = one(subscription)
            assert not delivery.is_request
            with pytest.raises(NotARequest, match=r"prices@\d+ \(id .*\) is not a request"):
                delivery.reply(1)
            delivery.ack()


def test_no_header_makes_another_message_a_box() -> None:
    """An attacker writes SQL and knows the offset and id of a message. A reply does not overwrite that message."""
    there = publish("orders", "mine", id="0" * 36)
    Message.objects.update(
        available_at=1 << 45
    )  # In the future, as for a scheduled message: no deadline has passed.
    Message.objects.update(original_topic="prices", original_id="forged")
    with Subscription("prices", "shop") as subscription:
        forge("prices", "forged", f"{there.offset}:{there.id}")
        assert one(subscription).reply("yours") is False
    assert bytes(Message.objects.get(topic="orders").payload) == b'"mine"'


@pytest.mark.parametrize(("topic", "id"), [("prices", "another"), ("other", "asked")])
def test_a_box_takes_no_reply_to_another_message(topic: str, id: str) -> None:
    """An attacker reads the box from the table, and writes a message of another topic or id."""
    with (
        Subscription("prices", "shop") as shop,
        Subscription(topic, "thief") as thief,
        asked("prices", 1, id="asked", group="shop") as requester,
    ):
        delivery = one(shop)
        [box] = Message.objects.filter(topic="prices_replies")
        forge(topic, id, f"{box.offset}:{box.message_id}")
        assert one(thief).reply("forged") is False
        assert delivery.reply("real") is True
        assert requester.result().payload == "real"


def forge(topic: str, id: str, header: Any) -> None:
    """Store a message with this header of a request, which ``publish`` refuses."""
    publish(topic, 1, id=id, key="forged")
    headers = {} if header is None else {"mqueue-reply-to": header}
    metadata = {"kind": "", "headers": headers, "encoding": "json"}
    assert Message.objects.filter(topic=topic, message_id=id, partition_key="forged").update(
        metadata=metadata
    )


@pytest.mark.parametrize("manual", [False, True])
def test_in_a_transaction_nobody_would_see_the_request(manual: bool) -> None:
    def ask() -> None:
        with pytest.raises(MQueueError, match="cannot request inside a transaction on 'default'"):
            request("prices", 1)

    if manual:
        transaction.set_autocommit(False)
        try:
            ask()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
    else:
        with transaction.atomic():
            ask()
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"timeout": 0}, ValueError, "timeout must be at least 0.001 seconds"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": None}, TypeError, "timeout must be a timedelta or a number of seconds"),
        ({"timeout": float("inf")}, ValueError, "timeout"),
        ({"key": ""}, ValueError, "key must not be empty"),
        ({"id": 7}, TypeError, "id must be a str"),
        ({"kind": None}, TypeError, "kind must be a str"),
        ({"headers": [1]}, TypeError, "headers must be a mapping"),
        ({"headers": {1: 1}}, TypeError, "headers must have str keys"),
        ({"payload": object()}, TypeError, "payload cannot be encoded"),
        ({"payload": b"x" * 1_048_577}, ValueError, "MAX_PAYLOAD_BYTES"),
        ({"topic": ""}, ValueError, "topic must not be empty"),
        ({"topic": "prices_dlq"}, ValueError, "reserved for dead letters"),
        ({"topic": "prices_replies"}, ValueError, "reserved for replies"),
        ({"group": ""}, ValueError, "group must not be empty"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_before_any_sql(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"topic": "prices", "payload": 1, **arguments}
    with counted() as cost, pytest.raises(error, match=text):
        request(given.pop("topic"), given.pop("payload"), **given)
    assert cost.count == 0


def test_bad_replies_are_refused_before_any_sql() -> None:
    with Subscription("prices", "shop") as subscription, asked("prices", 1) as requester:
        delivery = one(subscription)
        bad: list[tuple[Any, dict[str, Any]]] = [
            (object(), {}), (1, {"kind": 7}), (1, {"headers": 7}), (b"x" * 2_000_000, {}),
        ]  # fmt: skip
        for payload, options in bad:
            with counted() as cost, pytest.raises((TypeError, ValueError)):
                delivery.reply(payload, **options)
            assert cost.count == 0
        assert delivery.reply("good")
        assert requester.result().payload == "good"


def test_the_topic_of_replies_is_nobody_s() -> None:
    for use in (
        lambda: publish("prices_replies", 1),
        lambda: subscribe("prices_replies", "g"),
        lambda: Subscription("prices_replies", "g"),
        lambda: consumer("prices_replies", group="g"),
    ):
        with pytest.raises(
            ValueError, match="topic must not end in '_replies', which is reserved for replies"
        ):
            use()
    with override_settings(MQUEUE={"DLQ_SUFFIX": "_replies"}), pytest.raises(Exception, match="_replies"):
        publish("prices", 1)


def test_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask, to reply and to take the reply cost two statements and a commit each. Each look costs one statement."""
    monkeypatch.setattr(requesting, "_delete_expired_boxes", lambda using, topic: None)
    with Subscription("prices", "shop") as subscription:
        question = requesting.PendingRequest("prices", OutgoingMessage(1), 30, None)
        question.send()
        second = requesting.PendingRequest("prices", OutgoingMessage(2), 30, None)
        with counted() as cost:
            second.send()
        assert (cost.count, cost.commits) == (2, 1), cost
        with counted() as cost:
            assert second.poll() is None
        assert (cost.count, cost.commits) == (1, 0), cost
        assert cost.rows <= 2, cost
        delivery = next(d for d in wait_until(subscription.poll, "both") if d.payload == 2)
        with counted() as cost:
            delivery.reply(7)
        assert (cost.count, cost.commits) == (2, 1), cost
        with counted() as cost:
            assert second.poll() == Reply(7)
        assert (cost.count, cost.commits) == (3, 1), cost
        question.abandon()


def test_looks_become_rarer_and_go_no_further_than_the_deadline() -> None:
    question = requesting.PendingRequest("prices", OutgoingMessage(1), 30, None)
    question.send()
    pauses = []
    for _ in range(12):
        question.poll()
        pauses.append(question.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.01
    assert pauses[-1] == 0.02  # POLL_INTERVAL
    question.abandon()
    with override_settings(MQUEUE={"POLL_INTERVAL": 3600}):
        near = requesting.PendingRequest("prices", OutgoingMessage(1), 30, None)
        near.pause = 1000
        near.send()
        near.poll()
    assert near.pause <= 30
    near.abandon()


def test_headers_without_room_for_the_reply_box_are_refused_before_any_statement() -> None:
    with counted() as cost, pytest.raises(ValueError, match="headers"):
        request("prices", 1, headers={"h": "x" * 65_450})
    assert cost.statements == []
