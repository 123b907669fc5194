"""The list of messages: all filters, paging, and the notice that a search is not complete."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from django_mqueue import OutgoingMessage, publish, publish_many, subscribe
from django_mqueue.admin.messages import message_list
from django_mqueue.models import Message
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each, published, published_at, scheduled

from .looking import html_of, ids, links, listed, shown, text
from .operating import staff, url_of
from .rows import ODD_KEYS, list_url, message

pytestmark = pytest.mark.django_db
with_workers = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client() -> Client:
    cache.clear()
    return staff("view_message")


def said(client: Client, **asked: str) -> str:
    return text(html_of(client, list_url("message"), asked))


def counts(html: str) -> list[str]:
    """Return the counts of each status above the list."""
    over = html.partition('<ul class="mqueue-counts"')[2].partition("</ul>")[0]
    return [text(one) for one in re.findall(r"<a [^>]*>(.*?)</a>", over, re.S)]


def next_url(html: str, what: str = "Next page") -> str | None:
    found = re.search(rf'<a href="([^"]+)">{what}</a>', html)
    return unescape(found[1]) if found else None


@with_workers
def test_by_status_for_a_group(client: Client) -> None:
    """A filter by status finds exactly the messages with that status, and each row shows it."""
    one_of_each()
    for status, word in (
        ("pending", "pending"),
        ("in_flight", "in flight"),
        ("waiting", "for retry"),
        ("done", "done"),
    ):
        (row,) = listed(client, "message", topic=TOPIC, group=GROUP, status=status)
        assert (row["id_cell"], row["status"]) == (status, word)
    (letter,) = listed(client, "message", topic=TOPIC, group=GROUP, status="dead")
    assert (letter["id_cell"], letter["failure"]) == ("dead", "billing: ValueError: never")
    assert ids(client, topic=TOPIC, status="scheduled") == ["later-tomorrow"]
    assert set(ids(client, topic=TOPIC, group=GROUP)) == {"done", "dead", "waiting", "in_flight", "pending"}
    assert {row["status"] for row in listed(client, "message", topic=TOPIC, group="stock")} == {"pending"}


def test_scheduled_messages_show_when_they_are_due(client: Client) -> None:
    """The lists that can hold scheduled messages have a column for it. The column is empty for other messages."""
    (offset,) = scheduled("tomorrow")
    due = datetime.fromtimestamp(Message.objects.get(offset=offset).available_at / 1000, UTC)
    moment = f"{timezone.localtime(due):%Y-%m-%d %H:%M:%S}"
    published("now")
    (row,) = listed(client, "message", topic=TOPIC, status="scheduled")
    assert row["due"] == moment
    assert [row["due"] for row in listed(client, "message", derived="on")] == ["-", moment]
    assert "due" not in listed(client, "message")[0]
    assert "due" not in listed(client, "message", topic=TOPIC)[0]


@with_workers
def test_every_row_leads_to_its_page(client: Client) -> None:
    offsets = one_of_each()
    letter = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    (url,) = links(client, "message", topic=TOPIC, group=GROUP, status="dead")
    assert shown(client, url)["offset"] == str(letter)
    (url,) = links(client, "message", topic=TOPIC, status="scheduled")
    assert shown(client, url)["offset"] == str(offsets["scheduled"])
    (url,) = links(client, "message", topic=TOPIC, group=GROUP, id="dead")
    assert shown(client, url)["offset"] == str(offsets["dead"])
    assert len(links(client, "message", derived="on")) == 9, "with the record of two subscribes"


@with_workers
def test_how_many_there_are_of_each(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts stop at a limit. Each count links to its messages."""
    one_of_each()
    asked = {"topic": TOPIC, "group": GROUP}
    assert counts(html_of(client, list_url("message"), asked)) == [
        "Pending 1", "In flight 1", "For retry 1", "Dead 1", "Scheduled 1",
    ]  # fmt: skip
    cache.clear()  # The counts are cached for a moment.
    monkeypatch.setattr(message_list, "COUNT_MAX", 3)
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(7)])
    assert counts(html_of(client, list_url("message"), asked))[0] == "Pending 8"
    html = html_of(client, list_url("message"), {**asked, "key": "k"})
    assert counts(html)[:2] == ["Pending 3+ or more", "In flight 0"]
    url = next_url(html, "Pending <strong>.*?</strong>")
    assert url is not None
    assert html_of(client, url).count('<td class="field-status">') == 7


def test_by_kind_time_payload_and_headers(client: Client) -> None:
    first = publish(TOPIC, {"customer": {"id": 7}, "lines": [{"art": "tea"}]}, id="a", kind="order").offset
    publish(
        TOPIC, {"customer": {"id": "7"}, "vip": True}, id="b", kind="order", headers={"trace": "t-1", "n": 1}
    )
    publish(TOPIC, b"bytes", id="c", kind="scan")
    assert ids(client, topic=TOPIC, kind="order") == ["b", "a"]
    assert ids(client, topic=TOPIC, path="customer.id", value="7") == ["a"]
    assert ids(client, topic=TOPIC, path="customer.id", value='"7"') == ["b"]
    assert ids(client, topic=TOPIC, path="lines.0.art", value="tea") == ["a"]
    assert ids(client, topic=TOPIC, path="vip", value="true") == ["b"]
    assert ids(client, topic=TOPIC, path="vip", value="1") == []
    assert ids(client, topic=TOPIC, header="trace", header_value="t-1") == ["b"]
    assert ids(client, topic=TOPIC, header="n", header_value="1", path="vip", value="true", kind="order") == [
        "b"
    ]
    published_at([first], 1_700_000_000_000)
    assert ids(client, topic=TOPIC, before="2024-01-01T00:00") == ["a"]
    assert ids(client, topic=TOPIC, after="2024-01-01T00:00:00") == ["c", "b"]
    assert ids(client, topic=TOPIC, order="oldest") == ["a", "b", "c"]


def test_times_are_of_the_current_time_zone(client: Client) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    published_at([publish(TOPIC, 1, id="noon").offset], round(at.timestamp() * 1000))
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert ids(client, topic=TOPIC, after="2026-01-01T20:59", before="2026-01-01T21:01") == ["noon"]
        assert ids(client, topic=TOPIC, after="2026-01-01T21:00:01") == []
    with override_settings(TIME_ZONE="Europe/Berlin"):  # The first hour exists twice, the second never.
        for odd in ("2025-10-26T02:30", "2025-03-30T02:30", "0001-01-01T00:00", "yesterday"):
            assert "errorlist" in html_of(client, list_url("message"), {"topic": TOPIC, "after": odd})


@pytest.mark.parametrize(
    "asked", [{}, {"topic": TOPIC}, {"topic": TOPIC, "order": "oldest"}, {"topic": TOPIC, "key": "k"}]
)
def test_pages_go_on_where_the_last_one_ended(client: Client, asked: dict[str, str]) -> None:
    """Each page starts at a key. New messages shift nothing, and each message is shown once."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k", id=f"id-{n}") for n in range(250)])
    seen: list[str] = []
    url: str | None = f"{list_url('message')}?{urlencode(asked)}"
    pages = 0
    while url:
        html = html_of(client, url)
        seen += [text(one) for one in re.findall(r'<td class="field-id_cell">(.*?)</td>', html)]
        url = next_url(html)
        pages += 1
        if asked.get("order") != "oldest":
            publish(TOPIC, "new", key="k", id=f"new-{pages}")
    assert pages == 3
    wanted = [f"id-{n}" for n in range(250)]
    assert seen == (wanted if asked.get("order") == "oldest" else wanted[::-1])
    assert "First page" in html


def test_it_says_how_far_it_has_looked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next page continues there and skips nothing."""
    monkeypatch.setattr(message_list, "SCAN_LIMIT", 100)
    publish_many(TOPIC, [OutgoingMessage({"n": n}, id=f"id-{n}") for n in range(250)])
    asked = {"topic": TOPIC, "path": "n", "value": "3"}
    html, pages = html_of(client, list_url("message"), asked), 1
    assert "No match so far." in html
    assert re.search(r"0 found; \d+ messages and keys were examined", html)
    while url := next_url(html, "Search further"):
        html, pages = html_of(client, url), pages + 1
    assert "id-3" in html
    assert pages <= 3
    assert "No message matches." in html_of(client, list_url("message"), {"topic": TOPIC, "id": "nothing"})


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"id": "a"}, "Give a topic. Without a topic, only the newest messages of all topics are listed."),
        ({"topic": TOPIC, "status": "pending"}, "Pending is the status of a message for one group. Give the group."),
        ({"topic": TOPIC, "group": "nobody"}, "Group nobody is not registered for topic orders."),
        ({"topic": TOPIC, "path": "a"}, "Give the value: a number"),
        ({"topic": TOPIC, "value": "a"}, "Give the path or the header that has this value."),
        ({"topic": TOPIC, "path": "a..b", "value": "1"}, "an empty part, between two dots"),
        ({"topic": TOPIC, "header": "payload__x", "header_value": "1"}, "cannot be searched"),
        ({"topic": TOPIC, "status": "lost"}, "not one of the available choices"),
        ({"topic": " x"}, "topic must not begin or end with blanks"),
        ({"topic": "x" * 500}, "topic may have at most"),
        ({"topic": TOPIC, "key": "a\nb"}, "control characters"),
        ({"topic": TOPIC, "start": "nonsense"}, "start must be the value of next on a page"),
        ({"topic": TOPIC, "start": '["newest",9e999]'}, "start must be the value of next on a page"),
        ({"topic": TOPIC, "start": "[" * 20_000}, "start must be the value of next on a page"),
        ({"start": '["newest of all","x"]'}, "start must be the value of next on a page"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said(client: Client, asked: dict[str, str], problem: str) -> None:
    publish(TOPIC, 1)
    html = html_of(client, list_url("message"), asked)
    assert problem in text(html)
    assert 'id="result_list"' not in html


def test_a_position_beyond_all_offsets_is_no_error(client: Client) -> None:
    publish(TOPIC, 1)
    for start in (f'["newest of all",{10**30}]', f'["newest of all",{-(10**30)}]'):
        assert client.get(list_url("message"), {"start": start}).status_code == 200
    assert (
        client.get(list_url("message"), {"topic": TOPIC, "start": f'["newest",{10**30}]'}).status_code == 200
    )


def test_odd_names_can_be_asked_for(client: Client) -> None:
    for odd in ODD_KEYS:
        topic = odd[:100]
        subscribe(topic, odd[:128])
        publish(topic, {"x": odd}, key=odd, id=odd, kind=odd, headers={"h": odd})
        publish(topic, 1, key="other")
        asked = {
            "topic": topic, "group": odd[:128], "key": odd, "id": odd, "kind": odd, "header": "h", "path": "x",
            "header_value": json.dumps(odd), "value": json.dumps(odd, ensure_ascii=False),
        }  # fmt: skip
        (row,) = listed(client, "message", **asked)
        assert row["id_cell"] == odd
        html = html_of(client, list_url("message"), asked)
        assert "<b>bold" not in html
        (url,) = links(client, "message", **asked)
        assert shown(client, url)["message_id"] == odd
        assert len(listed(client, "message", topic=topic, group=odd[:128], status="pending")) == 2


HOSTILE: list[Any] = [
    b'{"a": "<script>alert(1)</script>"}', b"[" * 20_000, b'"\\ud800"', b"\xff\xfe", b"", b"9" * 5_000, b"NaN",
    b'{"a": 1e999}', b"[" * 300 + b"]" * 300, b'"' + b"x" * 1_048_576 + b'"',
]  # fmt: skip


@pytest.mark.parametrize("encoding", ["json", "bytes", "nonsense"])
def test_hostile_payloads(client: Client, encoding: str) -> None:
    """The list, a filter and the message's page show hostile payloads without an error and escape markup."""
    for body in HOSTILE:
        message(payload=body, metadata={"encoding": encoding, "kind": 5, "headers": ["x"], "retry": "x"})
    assert len(listed(client, "message")) == len(HOSTILE)
    html = html_of(client, list_url("message"), {"topic": "orders"})
    assert "<script>alert" not in html
    assert len(html) < 60_000
    assert listed(client, "message", topic="orders", path="a", value="2") == []
    for url in links(client, "message"):
        page = html_of(client, url)
        assert "<script>alert" not in page
        assert len(page) < 2_000_000


def test_rights(client: Client) -> None:
    """The page needs ``view_message``. Its button needs ``publish_message``."""
    assert staff("publish_message", name="other").get(list_url("message")).status_code == 403
    assert url_of("publish_message") not in html_of(client, list_url("message"))
    both = staff("view_message", "publish_message", name="both")
    assert url_of("publish_message") in html_of(both, list_url("message"))
    assert client.post(list_url("message"), {"topic": "x"}).status_code == 405
