"""Queries read no more of a payload than requested. An offset finds one message."""

from __future__ import annotations

from typing import Any

import pytest

from django_mqueue import publish, subscribe
from django_mqueue.browse import message_search
from django_mqueue.inspect import Cut, Unreadable, messages, remove, send_to_front
from django_mqueue.models import Message

from .scene import GROUP, TOPIC, every, one_of_each, published, scheduled

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_a_long_payload_the_beginning_is_told() -> None:
    publish(TOPIC, "x" * 1_000)
    publish(TOPIC, b"\xff" * 1_000)
    publish(TOPIC, {"a": 1})
    text, raw, short = messages(TOPIC, payload_limit=10)
    assert text.payload == Cut(b'"xxxxxxxxx', is_json=True)
    assert raw.payload == Cut(b"\xff" * 10, is_json=False)
    assert short.payload == {"a": 1}
    assert [one.size for one in (text, raw, short)] == [1_002, 1_000, 7]


def test_with_a_filter_the_whole_is_compared_and_the_beginning_told() -> None:
    publish(TOPIC, {"pad": "x" * 1_000, "order": 7})
    publish(TOPIC, {"pad": "x" * 1_000, "order": 8})
    (found,) = messages(TOPIC, payload__order=7, payload_limit=5)
    assert found.payload == Cut(b'{"pad', is_json=True)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_that_has_read_very_much_ends_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    """The size of the payloads ends a page, whatever the number of messages. The next page leaves none out."""
    monkeypatch.setattr(message_search, "READ_BYTES", 10_000)
    monkeypatch.setattr(message_search, "BYTES_PER_STATEMENT", 4_000)
    for n in range(30):
        publish(TOPIC, {"n": n, "pad": "x" * 1_000}, key=f"k{n % 3}")
    page = messages(TOPIC, filter=lambda message: message.payload["n"] in (1, 28), newest_first=newest_first)
    assert page.next is not None
    assert len(page) == 1
    found = every(filter=lambda message: message.payload["n"] % 2 == 0, newest_first=newest_first)
    assert sorted(one.payload["n"] for one in found) == list(range(0, 30, 2))
    subscribe(TOPIC, GROUP)
    found = every(group=GROUP, status="pending", filter=lambda message: message.payload["n"] % 2 == 0)
    assert sorted(one.payload["n"] for one in found) == list(range(0, 30, 2))


def test_what_is_changed_is_not_bounded_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_search, "READ_BYTES", 2_000)
    monkeypatch.setattr(message_search, "BYTES_PER_STATEMENT", 1_000)
    subscribe(TOPIC, GROUP)
    published(*[{"n": n, "pad": "x" * 1_000} for n in range(20)])
    assert remove(TOPIC, group=GROUP, filter=lambda message: True) == 20


def test_payloads_that_cannot_be_decoded() -> None:
    for body in (b"[" * 100_000, b"\xff", b"{", b"9" * 5_000):
        publish(TOPIC, 1)
        Message.objects.filter(topic=TOPIC).update(payload=body)
        (one, *_) = messages(TOPIC)
        assert isinstance(one.payload, Unreadable)
        assert one.payload == body


def test_one_message_by_its_offset() -> None:
    """An offset finds a message of the log, a scheduled one or a dead letter, but none of another topic."""
    offsets = one_of_each()
    other = publish("other", 1).offset
    (one,) = messages(TOPIC, offset=offsets["pending"])
    assert one.id == "pending"
    for status in ("pending", "in_flight", "waiting", "done"):
        (one,) = messages(TOPIC, group=GROUP, status=status, offset=offsets[status])
        assert (one.id, one.status) == (status, status)
        assert not messages(TOPIC, group=GROUP, status="dead", offset=offsets[status])
    letter = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    (one,) = messages(TOPIC, status="dead", offset=letter)
    assert (one.offset, one.dead_letter) == (offsets["dead"], letter)
    (one,) = messages(TOPIC, status="scheduled", offset=offsets["scheduled"])
    assert one.offset == offsets["scheduled"]
    assert not messages(TOPIC, offset=other)
    assert not messages(TOPIC, offset=offsets["pending"], key="else")
    assert not messages(TOPIC, offset=10**12)
    assert messages(TOPIC, offset=offsets["pending"]).next is None


@pytest.mark.parametrize("offset", [0, -1, 1 << 63, "1", True, 1.0])
def test_what_no_offset_can_be(offset: Any) -> None:
    with pytest.raises(ValueError, match="offset must be a whole number from 1 to 9223372036854775807, not "):
        messages(TOPIC, offset=offset)
    with pytest.raises((TypeError, ValueError), match="payload_limit"):
        messages(TOPIC, payload_limit=-1)


def test_one_is_sent_to_the_front_or_removed_by_its_offset() -> None:
    subscribe(TOPIC, GROUP)
    first, second, third = published(1, 2, 3)
    (later,) = scheduled(4)
    assert send_to_front(TOPIC, group=GROUP, offset=second) == 1
    assert remove(TOPIC, group=GROUP, offset=third) == 1
    assert remove(TOPIC, group=None, status="scheduled", offset=first) == 0
    assert send_to_front(TOPIC, group=None, status="scheduled", offset=later) == 1
    assert {one.offset: one.status for one in messages(TOPIC, group=GROUP)} == {
        first: "pending", second: "waiting", third: "done",
    }  # fmt: skip


def test_the_newest_of_all_topics() -> None:
    """Each message has the topic that stores it. Its payload is cut at ``payload_limit``."""
    one_of_each()
    publish("other", "x" * 100)
    page = message_search.newest_of_all("default", limit=3, start=None, payload_limit=20)
    assert [one.topic for one in page] == ["other", f"{TOPIC}_scheduled", TOPIC]
    assert isinstance(page.messages[0].payload, Cut)
    rest = message_search.newest_of_all("default", limit=100, start=page.next, payload_limit=20)
    assert rest.next is None
    offsets = [one.dead_letter or one.offset for one in (*page, *rest)]
    assert offsets == sorted(offsets, reverse=True)
    assert len(offsets) == Message.objects.count()
    (letter,) = [one for one in rest if one.topic == f"{TOPIC}_dlq"]
    assert (letter.id, letter.group, letter.errors[-1].error) == (
        "dead",
        GROUP,
        "ValueError: never\n\nTraceback",
    )
    for start in ("x", '["newest of all"]', '["newest of all","1"]', '["newest",1]'):
        with pytest.raises(ValueError, match="start must be the value of next"):
            message_search.newest_of_all("default", limit=1, start=start, payload_limit=1)


def test_a_filter_that_matches_nothing_reads_no_more_payloads_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step of the search fits into one read of payloads."""
    monkeypatch.setattr(message_search, "READ_BYTES", 10_000)
    monkeypatch.setattr(message_search, "CHUNK", 4)
    for n in range(30):
        publish(TOPIC, {"n": n, "pad": "x" * 1_000}, key="k")
    page = messages(TOPIC, payload__n=29)
    assert list(page) == []
    assert page.next is not None
    assert page.scanned == 12
