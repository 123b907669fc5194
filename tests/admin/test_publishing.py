"""Publishing on a page: the form checks as ``publish`` does, shows the message first, and stores it once."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from django.test import Client, override_settings

from django_mqueue import pause, publish, scheduled, subscribe
from django_mqueue.admin.messages import publishing
from django_mqueue.inspect import Inspected, messages
from django_mqueue.models import Message

from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

URL = "publish_message"
client = staff_client("publish_message", "view_message")


def filled(client: Client, **query: str) -> dict[str, str]:
    """Return the initial values of the form."""
    html = html_of(client, url_of(URL), query)
    fields = dict(re.findall(r'<input type="(?:text|number)" name="(\w+)"(?: value="([^"]*)")?', html))
    areas = re.findall(r'<textarea name="(\w+)"[^>]*>\n?(.*?)</textarea>', html, re.S)
    return {**fields, **{name: text(value) for name, value in areas}}


def errors(client: Client, **asked: Any) -> dict[str, str]:
    """Return the errors of the form's fields."""
    response = client.post(
        url_of(URL), {"payload_format": "json", "payload": "1", "topic": "orders", **asked}
    )
    assert response.status_code == 400
    return {name: " ".join(problems) for name, problems in response.context["form"].errors.items()}


def test_what_is_shown_is_what_is_stored(client: Client) -> None:
    subscribe("orders", "billing")
    subscribe("orders", "stock")
    pause("orders", "stock")
    asked = {
        "topic": "orders", "key": "ada", "id": "order-7", "kind": "order.placed", "payload_format": "json",
        "payload": '{\r\n "order": 7, "name": "Zoë 😀", "n": 12345678901234567890}', "headers": '{"trace": ["<b>"]}',
    }  # fmt: skip
    html = client.post(url_of(URL), asked).content.decode()
    assert "Publish this message to topic orders?" in html
    assert "It is for 2 groups: billing, stock (paused)." in html
    assert "&quot;order&quot;: 7" in html
    assert "<b>&" not in html
    assert not Message.objects.filter(topic="orders").exists()
    response = confirm(client, URL, asked)
    (stored,) = messages("orders")
    assert (stored.id, stored.key, stored.kind) == ("order-7", "ada", "order.placed")
    assert stored.payload == {"order": 7, "name": "Zoë 😀", "n": 12345678901234567890}
    assert stored.headers == {"trace": ["<b>"]}
    assert told(response) == [f"Message order-7 was published to topic orders, at offset {stored.offset}."]
    assert response.redirect_chain[0][0] == url_of("message_change", stored.offset)
    assert written_down() == [("operator", "orders: order-7", told(response)[0])]


@pytest.mark.parametrize(
    ("how", "body", "stored"),
    [
        ("text", "Zoë\r\n😀", "Zoë\n😀".encode()),
        ("base64", base64.b64encode(bytes(range(256))).decode() + "\r\n", bytes(range(256))),
        ("hex", "00 ff\r\n0A", b"\x00\xff\n"),
        ("hex", "", b""),
    ],
)
def test_bytes(client: Client, how: str, body: str, stored: bytes) -> None:
    confirm(client, URL, {"topic": "scans", "payload_format": how, "payload": body})
    assert [one.payload for one in messages("scans")] == [stored]


def test_for_one_group_or_later(client: Client) -> None:
    subscribe("orders", "billing")
    confirm(
        client,
        URL,
        {"topic": "orders", "payload_format": "json", "payload": "1", "group": "billing", "id": "a"},
    )
    assert [one.target for one in messages("orders")] == ["billing"]
    confirm(
        client, URL, {"topic": "orders", "payload_format": "json", "payload": "2", "delay": "60", "id": "b"}
    )
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        at = {
            "topic": "orders",
            "payload_format": "json",
            "payload": "3",
            "at": "2050-01-01T09:00:00",
            "id": "c",
        }
        assert "no earlier than 2050-01-01 09:00:00 JST" in client.post(url_of(URL), at).content.decode()
        confirm(client, URL, at)
    first, second = scheduled("orders")
    assert (first.id, second.id, second.at.isoformat()) == ("b", "c", "2050-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("delay", "words"), [("1", "1 second"), ("0.5", "0.5 seconds"), ("1036801", "1,036,801 seconds")]
)
def test_a_delay_is_shown_in_full(client: Client, delay: str, words: str) -> None:
    html = client.post(
        url_of(URL), {"topic": "orders", "payload_format": "json", "payload": "1", "delay": delay}
    ).content.decode()
    assert f"It is delivered no earlier than {words} after it was published." in html


def test_a_priority_that_a_copy_keeps(client: Client) -> None:
    asked = {"topic": "orders", "payload_format": "json", "payload": "1", "priority": "50", "id": "a"}
    confirm(client, URL, asked)
    (stored,) = messages("orders")
    assert stored.priority == 50
    assert filled(client, copy_of=str(stored.offset))["priority"] == "50"
    assert "priority and key exclude each other" in errors(client, key="k", priority="50")["priority"]
    assert "less than or equal to 100" in errors(client, priority="101")["priority"]


def test_each_error_is_at_its_field(client: Client) -> None:
    """The form shows the error of ``publish`` at the field that causes it."""
    for asked, field, said in (
        ({"topic": ""}, "topic", "topic must not be empty"),
        ({"topic": "orders_dlq"}, "topic", "reserved for dead letters"),
        ({"topic": "x" * 200}, "topic", "at most 100 characters"),
        ({"key": " a"}, "key", "must not begin or end with blanks"),
        ({"key": "a\x00"}, "key", "Null characters"),
        ({"id": "a\nb"}, "id", "control characters"),
        ({"kind": "k" * 300}, "kind", "at most 255 characters"),
        ({"group": "g" * 200}, "group", "at most 128 characters"),
        ({"group": "nobody"}, "group", "is not registered"),
        ({"headers": "[1]"}, "headers", "Headers are a JSON object"),
        ({"headers": '{"a": 99999999999999999999999}'}, "headers", "at most 64 bits"),
        ({"headers": '{"a": ' + "[" * 30 + "]" * 30 + "}"}, "headers", "nested at most 20 levels"),
        ({"headers": '{"mqueue-reply-to": "1:a"}'}, "headers", "only request() sets it"),
        ({"headers": "{"}, "headers", "at line 1, column 2"),
        ({"payload": ""}, "payload", "This is not JSON: Expecting value at line 1, column 1."),
        ({"payload": '{"a": 1,\r\n "b": }'}, "payload", "at line 2, column 7"),
        ({"payload": "NaN"}, "payload", "NaN is not a value of JSON"),
        ({"payload": "[1e999]"}, "payload", "The number 1e999 cannot be kept exactly"),
        ({"payload": "1e-9999999999999999999"}, "payload", "cannot be kept exactly"),
        ({"headers": '{"a": -1e9999999999999999999}'}, "headers", "cannot be kept exactly"),
        ({"payload": '{"a": 1, "a": 2}'}, "payload", "The name 'a' occurs twice"),
        ({"payload": "9" * 5_000}, "payload", "This is not JSON"),
        ({"payload": "[" * 100_000}, "payload", "nested too deeply"),
        ({"payload": "[" * 300 + "]" * 300}, "payload", "at most 200 levels"),
        ({"payload": '"\\ud800"'}, "payload", "payload cannot be encoded as JSON"),
        ({"payload": '"' + "x" * 1_048_576 + '"'}, "payload", "over MAX_PAYLOAD_BYTES"),
        ({"payload": "a", "payload_format": "base64"}, "payload", "This is not base64"),
        ({"payload": "é", "payload_format": "base64"}, "payload", "This is not base64"),
        ({"payload": "0", "payload_format": "hex"}, "payload", "This is not hexadecimal"),
        ({"payload_format": "xml"}, "payload_format", "not one of the available choices"),
        ({"delay": "-1"}, "delay", "delay must be at least"),
        ({"delay": "nan"}, "delay", "Enter a number"),
        ({"delay": "1", "at": "2050-01-01T00:00"}, "delay", "delay and at exclude each other"),
        ({"at": "tomorrow"}, "at", "Enter a valid date/time"),
    ):
        found = errors(client, **asked)
        assert list(found) == [field], (asked, found)
        assert said in found[field], (asked, found)
    assert not Message.objects.exists()
    assert written_down() == []


def test_a_form_publishes_once_however_often_it_is_sent(client: Client) -> None:
    """A double click stores one message. The same form stores nothing after the message was deleted."""
    form = {**filled(client, topic="orders"), "payload_format": "json", "payload": "1"}
    assert re.fullmatch(r"[0-9a-f-]{36}", form["id"])
    asked = hidden(client.post(url_of(URL), form).content.decode())
    first, second = client.post(url_of(URL), asked), client.post(url_of(URL), asked, follow=True)
    assert first.status_code == 302
    assert told(second)[-1].startswith("A message with this id was already published: nothing was stored.")
    assert Message.objects.filter(topic="orders").count() == 1
    Message.objects.all().delete()
    assert "was already published" in client.post(url_of(URL), asked, follow=True).content.decode()
    assert "was already published" in client.post(url_of(URL), form).content.decode()
    assert not Message.objects.exists()
    assert filled(client)["id"] != form["id"]


def test_an_id_that_somebody_else_has_published(client: Client) -> None:
    offset = publish("orders", "theirs", key="k", id="order-7").offset
    asked = {"topic": "orders", "key": "k", "id": "order-7", "payload_format": "json", "payload": '"mine"'}
    response = confirm(client, URL, asked)
    assert told(response)[0].startswith("A message with this id was already published")
    assert response.redirect_chain[0][0] == url_of("message_change", offset)
    assert [one.payload for one in messages("orders")] == ["theirs"]


def test_two_at_once_store_one(client: Client) -> None:
    """The second request finds the row of the first, although its own session does not know it."""
    asked = {
        "topic": "orders",
        "key": "",
        "id": "order-7",
        "payload_format": "json",
        "payload": "1",
        "confirmed": "yes",
    }
    other = staff("publish_message", name="other")
    assert [one.post(url_of(URL), asked).status_code for one in (client, other)] == [302, 302]
    assert Message.objects.filter(topic="orders").count() == 1


def test_a_copy_begins_with_what_the_message_holds(client: Client) -> None:
    payload = {"order": 7, "text": "</textarea><script>"}
    offset = publish("orders", payload, key="k", id="a", kind="order", headers={"t": 1}).offset
    assert "</textarea><script>" not in html_of(client, url_of(URL), {"copy_of": str(offset)})
    form = filled(client, copy_of=str(offset))
    assert (form["topic"], form["key"], form["kind"]) == ("orders", "k", "order")
    assert form["id"] != "a"
    confirm(client, URL, {**form, "payload_format": "json"})
    first, second = messages("orders")
    assert (second.payload, second.headers, second.key, second.kind) == (
        first.payload,
        {"t": 1},
        "k",
        "order",
    )
    picture = publish("scans", bytes(range(256))).offset
    assert filled(client, copy_of=str(picture))["payload"] == base64.b64encode(bytes(range(256))).decode()


def test_what_cannot_be_copied_is_said(client: Client) -> None:
    long = publish("orders", "x" * 500_000).offset
    assert "is too long, or hidden" in html_of(client, url_of(URL), {"copy_of": str(long)})
    for word in ("0", "99999999", "x", "9" * 40):
        assert "There is no message" in html_of(client, url_of(URL), {"copy_of": word})
    secret = publish("orders", "secret").offset
    html = html_of(staff("publish_message", name="other"), url_of(URL), {"copy_of": str(secret)})
    assert "You may not see messages" in html
    assert "secret" not in html


def no_card(message: Inspected) -> Inspected:
    from dataclasses import replace

    return replace(message, payload={**message.payload, "card": "…"}, headers={})


def test_a_copy_of_what_is_masked_is_masked(client: Client) -> None:
    offset = publish(
        "orders", {"card": "5105105105105100", "order": 7}, headers={"card": "5105105105105100"}
    ).offset
    with override_settings(MQUEUE={"MASK": no_card}):
        html = html_of(client, url_of(URL), {"copy_of": str(offset)})
        assert "5105105105105100" not in html
        assert "Parts of this copy may be masked" in html
        assert json.loads(filled(client, copy_of=str(offset))["payload"]) == {"card": "…", "order": 7}
        seeing = staff("publish_message", "view_message", "unmask_message", name="other")
        assert "5105105105105100" in html_of(seeing, url_of(URL), {"copy_of": str(offset)})


def test_it_needs_its_right() -> None:
    client = staff("view_message", "add_message", "change_message", "hurry_message")
    asked = {"topic": "orders", "payload_format": "json", "payload": "1", "confirmed": "yes"}
    assert client.get(url_of(URL)).status_code == 403
    assert client.post(url_of(URL), asked).status_code == 403
    assert not Message.objects.exists()
    alone = staff("publish_message", name="alone")
    assert alone.post(url_of(URL), asked, follow=True).status_code == 200
    assert Message.objects.count() == 1


def test_nobody_gets_it() -> None:
    client = staff("publish_message")
    html = client.post(
        url_of(URL), {"topic": "ordres", "payload_format": "json", "payload": "1"}
    ).content.decode()
    assert "No group is registered for the topic. No group receives the message" in html
    assert "delivered" not in html.partition("No group receives the message")[2].partition("<form")[0]


def test_a_paused_group_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is not among the first groups by name."""
    monkeypatch.setattr(publishing, "GROUPS", 1)
    subscribe("orders", "billing")
    subscribe("orders", "stock")
    pause("orders", "stock")
    asked = {"topic": "orders", "payload_format": "json", "payload": "1", "group": "stock"}
    html = staff("publish_message").post(url_of(URL), asked).content.decode()
    assert "It is not delivered while the group is paused." in html


def test_it_says_when_it_is_delivered_to_whom() -> None:
    client = staff("publish_message")
    asked = {"topic": "orders", "payload_format": "json", "payload": "1"}
    subscribe("orders", "billing")
    assert "It can be delivered at once." in client.post(url_of(URL), asked).content.decode()
    pause("orders", "billing")
    for more in ({}, {"group": "billing"}):
        html = client.post(url_of(URL), {**asked, **more}).content.decode()
        assert "It is not delivered while the group is paused." in html
    subscribe("orders", "stock")
    html = client.post(url_of(URL), asked).content.decode()
    assert "It can be delivered at once, but not to paused groups." in html
    html = client.post(url_of(URL), {**asked, "group": "stock"}).content.decode()
    assert "It can be delivered at once." in html
