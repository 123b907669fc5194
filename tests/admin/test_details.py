"""The pages of single rows."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from django_mqueue.models import Offset

from .looking import first_shown, html_of, links, shown
from .rows import ODD_KEYS, PAGES, dead_letter, delivery, list_url, message, offset, one_of_each

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("page", PAGES)
def test_each_row_has_a_page(admin_client: Client, page: str) -> None:
    one_of_each()
    (url,) = links(admin_client, page)
    html = html_of(admin_client, url)
    assert shown(admin_client, url)["topic"] == "orders"
    assert 'name="_save"' not in html
    assert "/history/" not in html
    assert "/delete/" not in html


def test_a_message_whole(admin_client: Client) -> None:
    message(
        payload={"order": 1, "name": "Zoë 😀", "nested": [1.5, None]},
        metadata={"kind": "order.made", "headers": {"trace": "<i>"}, "encoding": "json"},
        consumer_group="billing",
    )
    fields = first_shown(admin_client, "message")
    assert "failed_group" not in fields
    assert fields["kind"] == "order.made"
    assert fields["for_group"] == "billing"
    assert fields["headers"] == '{\n  "trace": "<i>"\n}'
    assert (
        '{\n  "order": 1,\n  "name": "Zoë 😀",\n  "nested": [\n    1.5,\n    null\n  ]\n}'
        in fields["payload_body"]
    )
    assert fields["published"] == "2026-01-01 12:00:00.123 UTC"


def test_a_long_payload_is_cut_and_says_so(admin_client: Client) -> None:
    message(payload={"pad": "😀" * 200_000})
    body = first_shown(admin_client, "message")["payload_body"]
    assert body.startswith("JSON, 800,011 bytes; the first 262,144 are shown")
    assert "\ufffd" not in body


def test_bytes_as_a_hexadecimal_table(admin_client: Client) -> None:
    message(payload=b"<b>GIF89a\x00\xff" + bytes(1000))
    body = first_shown(admin_client, "message")["payload_body"]
    assert body.startswith("1,011 bytes; the first 512 are shown")
    assert "00000000  3c 62 3e 47 49 46 38 39 61 00 ff 00 00 00 00 00  <b>GIF89a......." in body


@pytest.mark.parametrize("body", [b"{broken", b"\xff\xfe", b"[" * 20_000, b'"\\ud800"', b""])
def test_what_others_wrote_into_the_log_is_shown_too(admin_client: Client, body: bytes) -> None:
    """Other programs may write rows: invalid JSON, incomplete characters, metadata of another type."""
    message(payload=body, metadata={"encoding": "json"})
    message(payload=body, metadata=["something", "else"])
    for url in links(admin_client, "message"):
        assert "byte" in shown(admin_client, url)["payload_body"]


def test_a_dead_letter_shows_its_traceback(admin_client: Client) -> None:
    dead_letter()
    (url,) = links(admin_client, "message", derived="on")
    fields = shown(admin_client, url)
    assert "Traceback (most recent call last)" in html_of(admin_client, url)
    assert (fields["original_topic"], fields["original_id"], fields["failed_group"]) == (
        "orders",
        "order-7",
        "billing",
    )


@pytest.mark.parametrize("odd", ODD_KEYS)
def test_delivery_state_of_any_key(admin_client: Client, odd: str) -> None:
    """A composite primary key may contain any characters. The list's link leads to exactly that row."""
    name = odd[:128]
    delivery(consumer_group=name, topic=name, partition_key=odd, delivered_to="the right one")
    delivery(consumer_group=name, topic=name, partition_key=odd, message_offset=43)
    delivery(
        consumer_group=name, topic=name, partition_key=odd.upper() + "!"[: 255 - len(odd)], message_offset=44
    )
    url = next(
        each
        for each in links(admin_client, "deliverystate")
        if "the right one" in html_of(admin_client, each)
    )
    fields = shown(admin_client, url)
    assert (fields["consumer_group"], fields["topic"], fields["key"]) == (name, name, odd)
    assert fields["message"] == "42"
    assert len({*links(admin_client, "deliverystate")}) == 3


def test_errors_of_a_delivery_newest_first(admin_client: Client) -> None:
    delivery(
        retry_count=1,
        failure_count=2,
        errors=[
            {
                "at": 1_767_268_800_000,
                "attempt": 1,
                "by": "worker-1",
                "error": "ValueError: <one>\n\nTraceback 1",
            },
            {
                "at": 1_767_268_801_000,
                "attempt": 2,
                "by": "worker-2",
                "error": "KeyError: two\n\nTraceback 2",
            },
            {"at": 1_767_268_802_000, "attempt": 0, "by": "", "error": "removed by hand"},
        ],
    )
    html = html_of(admin_client, links(admin_client, "deliverystate")[0])
    errors = first_shown(admin_client, "deliverystate")["all_errors"]
    assert re.search(
        r"2026-01-01 12:00:02.000 UTC\s*removed by hand\s*"
        r"Attempt 2, by worker-2, 2026-01-01 12:00:01.000 UTC\s*KeyError: two\n\nTraceback 2\s*"
        r"Attempt 1, by worker-1, 2026-01-01 12:00:00.000 UTC\s*ValueError: <one>",
        errors,
    )
    assert "ValueError: &lt;one&gt;" in html
    assert "Attempt 0" not in errors


def test_errors_of_another_shape(admin_client: Client) -> None:
    delivery(errors=[{"at": "?"}, "text", {"error": {"a": 1}}])
    assert "{'a': 1}" in first_shown(admin_client, "deliverystate")["all_errors"]


def test_a_delivery_leads_to_its_message(admin_client: Client) -> None:
    stored = message()
    delivery(message_offset=stored.offset)
    html = html_of(admin_client, links(admin_client, "deliverystate")[0])
    url = reverse("admin:django_mqueue_message_change", args=(stored.offset,))
    assert f'href="{url}"' in html
    assert shown(admin_client, url)["offset"] == str(stored.offset)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("word", ["0", "999999999999999999999999", "nonsense", "W10", "😀"])
def test_a_row_that_is_not_there(admin_client: Client, page: str, word: str) -> None:
    """The page of the admin says so, with the status 404."""
    response = admin_client.get(f"{list_url(page)}{word}/change/")
    assert response.status_code == 404
    html = response.content.decode()
    assert "There is no message" in html if page == "message" else "There is no such row." in html
    assert f'href="{list_url(page)}"' in html


def test_gate_rows_have_no_page(admin_client: Client) -> None:
    gate = Offset.objects.filter(consumer_group="", topic="")[0]
    assert admin_client.get(reverse("admin:django_mqueue_offset_change", args=(gate.pk,))).status_code == 404
    own = offset(consumer_group="", partition_key="")
    assert (
        shown(admin_client, reverse("admin:django_mqueue_offset_change", args=(own.pk,)))["topic"] == "orders"
    )
