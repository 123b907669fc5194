"""Declared topics: the type, the key and the retention of a topic's messages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F
from django.test import override_settings

from django_mqueue import Message, MQueueError, Topic, conf, publish
from django_mqueue.models import Message as Row
from django_mqueue.service import topics
from django_mqueue.testing import drain, published
from tests.support.running import Seen, registered, run

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Order:
    number: int
    customer: str = "ada"


@pytest.fixture(autouse=True)
def no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_declared", {})
    monkeypatch.setattr(conf, "declared", {})


def orders(**options: Any) -> Topic[Order]:
    return Topic("orders", schema=Order, **options)


def test_a_payload_is_published_with_its_key_and_arrives_as_it_was() -> None:
    topic = orders(key=lambda order: order.customer)
    sent = topic.publish(Order(7), headers={"source": "shop"}, id="order-7")
    assert (sent.key, sent.id, published("orders")[0].payload) == (
        "ada",
        "order-7",
        {"number": 7, "customer": "ada"},
    )
    with registered(topic, seen := Seen()):
        drain()
    (message,) = seen.messages
    assert (message.payload, message.key, message.headers) == (Order(7), "ada", {"source": "shop"})


def test_many_payloads_and_asynchronous_code() -> None:
    topic = orders(key=lambda order: order.customer)
    topic.publish_many([Order(1), Order(2, "ben")])
    asyncio.run(topic.apublish(Order(3), key="other"))
    assert [message.key for message in published("orders")] == ["ada", "ben", "other"]


def test_a_payload_of_another_type_is_an_error_before_anything_is_stored() -> None:
    topic = orders()
    with transaction.atomic():
        wrong: Any
        for wrong in ({"number": 7}, None, "7"):
            with pytest.raises(TypeError, match="the payload for topic 'orders' must be a Order, not"):
                topic.publish(wrong)
            with pytest.raises(TypeError, match="must be a Order"):
                topic.publish_many([Order(1), wrong])
    assert not Row.objects.exists()


def test_a_message_that_does_not_parse_is_dead_lettered() -> None:
    publish("orders", {"no": 1})
    with registered(orders(), seen := Seen()):
        run()
    assert seen.messages == []
    assert "Order has no field 'no'" in published("orders_dlq")[0].last_error


def test_a_topic_without_schema_takes_any_payload() -> None:
    topic: Topic[Any] = Topic("events")
    topic.publish({"any": 1})
    with registered(topic, seen := Seen()):
        drain()
    assert seen.payloads == [{"any": 1}]


def test_a_pydantic_model() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", number=(int, ...))
    topic: Topic[Any] = Topic("orders", schema=model)
    topic.publish(model(number=7))
    with registered(topic, seen := Seen()):
        drain()
    assert seen.payloads == [model(number=7)]


def test_the_retention_of_the_declaration_and_that_of_the_settings() -> None:
    orders(retention=timedelta(days=1))
    assert (conf.get("RETENTION", "orders"), conf.get("RETENTION", "others")) == (86400, 3600)
    with override_settings(MQUEUE={"TOPICS": {"orders": {"RETENTION": 5}}}):
        assert conf.get("RETENTION", "orders") == 5


def test_the_command_gc_knows_the_retention_of_topics_that_apps_declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = f"kept_{uuid4().hex}"
    (tmp_path / app).mkdir()
    (tmp_path / app / "__init__.py").touch()
    text = 'from django_mqueue import Topic\n\nTopic("kept", retention=7 * 86400)\n'
    (tmp_path / app / "topics.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for topic in ("kept", "other"):
        publish(topic, 1)
        with registered(topic, Seen()):
            drain(topic)
    Row.objects.update(published_at=F("published_at") - 2 * 3_600_000)
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, app]):
        call_command("mqueue", "gc", stdout=StringIO())
    assert [row.topic for row in Row.objects.filter(topic__in=["kept", "other"])] == ["kept"]


def test_a_handler_of_a_mistyped_topic_stops_the_worker() -> None:
    orders()
    with registered("ordres", Seen()), pytest.raises(CommandError, match="did you mean 'orders'"):
        run()
    with registered("letters", Seen()), pytest.raises(CommandError, match="declared: orders"):
        run()
    with registered("orders_dlq", Seen()):
        run()
    with registered("letters", Seen()), override_settings(MQUEUE={"TOPICS": {"letters": {}}}):
        run()


def test_without_a_declared_topic_every_name_is_right() -> None:
    with registered("ordres", Seen()):
        run()


def test_a_second_declaration_must_be_the_same() -> None:
    assert repr(orders()) == "<Topic orders>"
    orders(key=lambda order: order.customer)
    with pytest.raises(MQueueError, match="declared already, with another schema or retention"):
        Topic("orders")
    with pytest.raises(MQueueError, match="declared already"):
        orders(retention=5)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"name": "a b\n"}, ValueError, "topic"),
        ({"name": "t", "schema": dict}, TypeError, "schema must be a dataclass or a pydantic model"),
        ({"name": "t", "key": "k"}, TypeError, "key must be a function"),
        ({"name": "t", "retention": -1}, ValueError, "retention"),
    ],
)
def test_bad_declarations(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Topic(**options)
    assert topics._declared == {}


def test_kinds_and_a_schema_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="leave out kinds"), registered(orders(), Seen(), kinds=["a"]):
        pass


def handle(message: Message[Order]) -> int:
    """A type checker knows the payload's type."""
    return message.payload.number
