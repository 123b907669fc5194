"""Masks on the pages: no list, page, filter or error reveals a masked value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.inspect import Inspected
from django_mqueue.models import Message
from django_mqueue.policy import names
from tests.support.fixtures import with_settings
from tests.support.subscribers import poll_until

from .looking import html_of, listed
from .operating import staff, url_of
from .rows import list_url

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "5105105105105100"
"""Long enough that no time, number or token on a page contains it by chance."""


def mask(message: Inspected) -> Inspected:
    errors = tuple(replace(one, error=one.error.replace(SECRET, "…")) for one in message.errors)
    headers = {name: value for name, value in message.headers.items() if name != "card"}
    return replace(message, payload={**message.payload, "card": "…"}, headers=headers, errors=errors)


def broken(message: Inspected) -> Inspected:
    raise ValueError(f"{message.payload} {message.headers} {message.errors}")


_masked = with_settings(autouse=False, MQUEUE={"MASK": mask})


@pytest.fixture
def looker() -> Client:
    return staff("view_message", "view_deliverystate", "view_deadletter", name="looker")


@pytest.fixture
def seer() -> Client:
    return staff("view_message", "view_deliverystate", "unmask_message", name="seer")


def some_messages() -> list[int]:
    """Publish messages with the secret: one waits for a retry, one is dead, one is scheduled."""
    subscribe("orders", "billing")
    for n in (1, 2):
        publish(
            "orders", {"card": SECRET, "order": n}, key="k", id=f"order-{n}", headers={"card": SECRET, "n": n}
        )
    publish("orders", {"card": SECRET, "order": 3}, id="order-3", delay=3600, headers={"card": SECRET})
    with Subscription("orders", "billing", name="w") as subscription:
        first, second = poll_until(subscription, 2)
        first.nack(delay=600, error=f"ValueError: no card {SECRET}\n\nTraceback {SECRET}")
        second.reject(f"ValueError: no card {SECRET}\n\nTraceback {SECRET}")
    return list(Message.objects.exclude(topic=names.ACTIONS_TOPIC).values_list("offset", flat=True))


LISTS: list[dict[str, str]] = [
    {},
    {"topic": "orders"},
    {"topic": "orders", "group": "billing"},
    {"topic": "orders", "status": "dead"},
    {"topic": "orders", "status": "scheduled"},
    {"topic": "orders_dlq"},
    {"topic": "orders_scheduled"},
    {"topic": "orders", "path": "order", "value": "1"},
]


def pages(client: Client, offsets: list[int]) -> list[str]:
    lists = [html_of(client, list_url("message"), asked) for asked in LISTS]
    return [*lists, *(html_of(client, url_of("message_change", offset)) for offset in offsets)]


@pytest.mark.usefixtures("_masked")
def test_no_page_shows_what_is_masked(looker: Client, seer: Client) -> None:
    offsets = some_messages()
    assert len(offsets) == 4
    for html in pages(looker, offsets):
        assert SECRET not in html
    shown = html_of(looker, url_of("message_change", offsets[0]))
    assert "Parts of the content may be masked" in shown
    assert "&quot;card&quot;: &quot;…&quot;" in shown
    assert "ValueError: no card …" in shown
    for html in pages(seer, offsets):
        assert SECRET in html
    assert "masked" not in html_of(seer, url_of("message_change", offsets[0]))


@pytest.mark.parametrize("function", [broken, "no.such.mask"])
def test_a_mask_that_fails_shows_nothing(
    looker: Client, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = some_messages()
    with override_settings(MQUEUE={"MASK": function}):
        for html in pages(looker, offsets):
            assert SECRET not in html
        assert "masked: the mask failed" in html_of(looker, list_url("message"))
        assert "masked: the mask failed" in html_of(looker, url_of("message_change", offsets[0]))
        assert listed(looker, "message", topic="orders", path="card", value=f'"{SECRET}"') == []
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("_masked")
def test_no_filter_tells_what_is_masked(looker: Client, seer: Client) -> None:
    """A search compares only the values that its user can see."""
    some_messages()

    def found(client: Client, **asked: str) -> list[str]:
        return [row["id_cell"] for row in listed(client, "message", topic="orders", **asked)]

    for status in (
        {},
        {"status": "dead"},
        {"status": "scheduled"},
        {"status": "waiting", "group": "billing"},
    ):
        assert found(looker, path="card", value=f'"{SECRET}"', **status) == []
        assert found(looker, header="card", header_value=f'"{SECRET}"', **status) == []
        assert found(seer, path="card", value=f'"{SECRET}"', **status) != []
        assert found(seer, header="card", header_value=f'"{SECRET}"', **status) != []
        assert found(looker, path="card", value="…", **status) != []
        assert found(seer, path="card", value="…", **status) == []
    assert found(looker, path="order", value="1") == ["order-1"]


@pytest.mark.usefixtures("_masked")
def test_what_is_too_long_to_be_masked_is_not_shown(looker: Client, seer: Client) -> None:
    """A list reads too little of a long payload to mask it. The message's page masks it up to a limit."""
    offset = publish("orders", {"card": SECRET, "text": "x" * 20_000}).offset
    larger = {"MASK": mask, "MAX_PAYLOAD_BYTES": 8 * 1_048_576}
    with override_settings(MQUEUE=larger):
        huge = publish("orders", {"card": SECRET, "text": "x" * 5_000_000}).offset
        for row in listed(looker, "message", topic="orders"):
            assert row["payload_head"] == "masked: too long to be masked here"
        assert "&quot;card&quot;: &quot;…&quot;" in html_of(looker, url_of("message_change", offset))
        html = html_of(looker, url_of("message_change", huge))
        assert "masked: too long to be masked here" in html
        assert SECRET not in html
        assert SECRET in html_of(seer, url_of("message_change", huge))


def test_a_mask_of_one_topic_is_used_in_the_list_of_all(looker: Client) -> None:
    publish_many("orders", [OutgoingMessage({"card": SECRET, "n": n}) for n in range(3)])
    publish("mails", {"to": "everybody", "text": "x" * 600})
    with override_settings(MQUEUE={"TOPICS": {"orders": {"MASK": mask}}}):
        html = html_of(looker, list_url("message"))
        assert SECRET not in html
        assert "everybody" in html


@pytest.mark.usefixtures("_masked")
def test_the_table_of_deliveries_withholds_errors_where_there_is_a_mask(looker: Client, seer: Client) -> None:
    """The errors are on the message's page, masked."""
    some_messages()
    html = html_of(looker, list_url("deliverystate"))
    assert SECRET not in html
    assert "masked: see the message" in html
    assert SECRET in html_of(seer, list_url("deliverystate"))
    for client, is_there in ((looker, False), (seer, True)):
        url = next(
            line for line in html_of(client, list_url("deliverystate")).split('"') if "/change/" in line
        )
        assert (SECRET in html_of(client, url)) is is_there
