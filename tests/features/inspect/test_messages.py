"""``messages`` filters messages, and reports their status for a group."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    redrive,
    subscribe,
)
from django_mqueue.inspect import messages
from django_mqueue.models import DeliveryState, Message
from django_mqueue.policy.message_query import STATUSES
from tests.support.subscribers import consume, poll_until

from .scene import GROUP, TOPIC, every, found, one_of_each, published, published_at, scheduled

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_status_finds_its_message() -> None:
    offsets = one_of_each()
    for status in STATUSES:
        (message,) = messages(TOPIC, group=GROUP, status=status)
        assert (message.offset, message.status, message.group) == (offsets[status], status, GROUP)
        assert message.payload == ("tomorrow" if status == "scheduled" else {"is": status})
        assert message.topic == TOPIC


def test_all_that_the_log_holds_with_how_it_stands() -> None:
    offsets = one_of_each()
    page = messages(TOPIC, group=GROUP)
    assert [(m.offset, m.status) for m in page] == sorted(
        (o, s) for s, o in offsets.items() if s != "scheduled"
    )
    assert page.next is None
    assert [m.status for m in messages(TOPIC, group="stock")] == ["pending"] * 5
    assert [m.status for m in messages(TOPIC)] == [None] * 5
    assert [m.offset for m in messages(TOPIC, newest_first=True)] == [
        m.offset for m in reversed(page.messages)
    ]


def test_what_is_told_of_a_failed_attempt() -> None:
    one_of_each()
    (waiting,) = messages(TOPIC, group=GROUP, status="waiting")
    assert (waiting.attempts, waiting.failures, waiting.delivered_to) == (1, 1, "worker-1")
    assert waiting.delivered_at is not None
    assert waiting.invisible_until is not None
    assert waiting.invisible_until - waiting.delivered_at > timedelta(seconds=99)
    (error,) = waiting.errors
    assert (error.attempt, error.by, error.error) == (1, "worker-1", "ConnectionError: not now")
    assert isinstance(error.at, datetime)
    (dead,) = messages(TOPIC, group=GROUP, status="dead")
    assert dead.errors[-1].error == "ValueError: never\n\nTraceback"
    assert dead.dead_letter == Message.objects.get(topic=f"{TOPIC}_dlq").offset
    assert dead.done_at is not None
    (same,) = messages(TOPIC, group=GROUP, id="dead")
    assert (same.status, same.offset, same.dead_letter) == ("dead", dead.offset, dead.dead_letter)


def test_all_errors_of_a_message_are_told_oldest_first() -> None:
    published(1)
    with Subscription(TOPIC, GROUP, max_attempts=9) as subscription:
        for n in range(3):
            poll_until(subscription, 1)[0].nack(error=f"error {n}")
        (message,) = messages(TOPIC, group=GROUP)
    assert [(e.attempt, e.error) for e in message.errors] == [(1, "error 0"), (2, "error 1"), (3, "error 2")]
    assert (message.status, message.attempts, message.failures) == ("waiting", 3, 3)


def test_a_dead_letter_keeps_the_errors_of_all_attempts() -> None:
    """The letter keeps them after its original message and state are deleted. A redriven message has none of them."""
    (offset,) = published({"order": 1}, headers={"type": "order"})
    with Subscription(TOPIC, GROUP, max_attempts=3) as subscription:
        for n in range(3):
            poll_until(subscription, 1)[0].nack(error=f"error {n} 🦉")
        Message.objects.filter(offset=offset).delete()
        DeliveryState.objects.all().delete()
        (dead,) = messages(TOPIC, group=GROUP, status="dead")
        assert [(e.attempt, e.error) for e in dead.errors] == [(n + 1, f"error {n} 🦉") for n in range(3)]
        assert (dead.offset, dead.attempts, dead.failures, dead.headers) == (offset, 3, 3, {"type": "order"})
        assert redrive(TOPIC) == 1
        (back,) = Message.objects.filter(topic=TOPIC).values_list("metadata", flat=True)
        assert back == {"kind": "", "headers": {"type": "order"}, "encoding": "json"}
        (again,) = poll_until(subscription, 1)
        assert (again.attempt, again.last_error, again.headers) == (1, "", {"type": "order"})


def test_dead_letters_are_found_without_their_originals_and_their_groups() -> None:
    one_of_each()
    Message.objects.filter(topic=TOPIC).delete()
    (dead,) = messages(TOPIC, status="dead")
    assert (dead.id, dead.group, dead.key) == ("dead", GROUP, "dead")
    assert messages(TOPIC, group="stock", status="dead").messages == []
    assert [m.id for m in messages(TOPIC, status="dead", id="dead")] == ["dead"]
    assert [m.id for m in messages(TOPIC, status="dead", id="done")] == []


def test_what_is_for_another_group_is_not_this_ones() -> None:
    subscribe(TOPIC, GROUP)
    subscribe(TOPIC, "stock")
    publish(TOPIC, "mine", group=GROUP)
    publish(TOPIC, "theirs", group="stock")
    publish(TOPIC, "all")
    scheduled("soon", group="stock")
    assert sorted(found(messages(TOPIC, group=GROUP))) == ["all", "mine"]
    assert sorted(found(messages(TOPIC, group=GROUP, status="pending"))) == ["all", "mine"]
    assert found(messages(TOPIC, group=GROUP, status="scheduled")) == []
    assert [m.target for m in messages(TOPIC, status="scheduled")] == ["stock"]
    assert [m.target for m in messages(TOPIC)] == [GROUP, "stock", None]


def test_what_lies_before_a_groups_start_is_done() -> None:
    published(1, 2)
    subscribe(TOPIC, GROUP, "latest")
    published(3)
    assert [m.status for m in messages(TOPIC, group=GROUP)][-1] == "pending"
    assert found(messages(TOPIC, group=GROUP, status="pending"))[-1:] == [3]


class TestFilters:
    @pytest.fixture(autouse=True)
    def some(self) -> None:
        publish_many(
            TOPIC,
            [
                OutgoingMessage({"customer": {"id": n % 3}, "n": n}, key=f"k{n % 4}", id=f"id-{n}",
                                kind=f"kind-{n % 2}", headers={"type": "even" if n % 2 == 0 else "odd"})
                for n in range(12)
            ],
        )  # fmt: skip
        subscribe(TOPIC, GROUP)

    def test_all_that_is_given_must_fit(self) -> None:
        cases: list[tuple[dict[str, Any], list[int]]] = [
            ({"key": "k1"}, [1, 5, 9]),
            ({"kind": "kind-1"}, [1, 3, 5, 7, 9, 11]),
            ({"kind": {"kind-0", "other"}}, [0, 2, 4, 6, 8, 10]),
            ({"payload__customer__id": 2}, [2, 5, 8, 11]),
            ({"payload__customer__id": {1, 2}, "key": "k0"}, [4, 8]),
            ({"filter": {"type": "even", "payload__n": 4}}, [4]),
            ({"filter": lambda m: m.payload["n"] > 9}, [10, 11]),
            ({"filter": lambda m: m.status == "pending", "payload__n": 3}, [3]),
            ({"id": "id-7"}, [7]),
            ({"id": "id-7", "key": "k3"}, [7]),
            ({"id": "id-7", "key": "k1"}, []),
            ({"id": "id-7", "kind": "kind-0"}, []),
            ({"payload__n__0": 1}, []),
        ]
        more: list[dict[str, Any]] = [{}, {"status": "pending"}, {"newest_first": True}, {"limit": 1}]
        for asked, numbers in cases:
            for one in more:
                got = every(group=GROUP, **asked, **one)
                assert sorted(m.payload["n"] for m in got) == numbers, (asked, one)

    def test_a_time_includes_its_beginning_and_not_its_end(self) -> None:
        offsets = [m.offset for m in messages(TOPIC)]
        times = [
            published_at([offset], 1_000_000_000_000 + n * 3_600_000) for n, offset in enumerate(offsets)
        ]
        ways: list[dict[str, Any]] = [
            {}, {"newest_first": True}, {"group": GROUP, "status": "pending"}, {"key": "k1"},
        ]  # fmt: skip
        for more in ways:
            got = sorted(m.offset for m in every(after=times[3], before=times[9], **more))
            assert got == [o for o in offsets[3:9] if "key" not in more or (offsets.index(o) % 4) == 1]
        assert every(after=times[11] + timedelta(hours=1)) == []
        assert len(every(before=times[0] + timedelta(seconds=1))) == 1

    def test_messages_that_overtook_each_other_are_found_by_their_times(self) -> None:
        """A statement was delayed for half a minute before it wrote its row."""
        offsets = [m.offset for m in messages(TOPIC)]
        start = 1_000_000_000_000
        for n, offset in enumerate(offsets):
            published_at([offset], start + n * 10_000)
        late = published_at([offsets[8]], start + 50_000)
        for newest_first in (False, True):
            got = every(after=late, before=late + timedelta(milliseconds=1), newest_first=newest_first)
            assert sorted(m.offset for m in got) == [offsets[5], offsets[8]]


def test_a_message_that_came_back_is_found_by_its_own_id() -> None:
    published("again", id="mine")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)[0].reject("no")
        redrive(TOPIC)
        assert [(m.id, m.status) for m in every(group=GROUP, id="mine")] == [
            ("mine", "pending"),
            ("mine", "done"),
        ]
        assert [m.status for m in every(group=GROUP, id="mine", key="k", limit=1)] == ["done", "pending"]
        poll_until(subscription, 1)[0].reject("no")
        assert sorted(m.status or "" for m in every(group=GROUP, id="mine")) == ["dead", "done"]


def test_a_payload_that_cannot_be_decoded_is_told_as_bytes() -> None:
    (offset,) = published(1)
    Message.objects.filter(offset=offset).update(payload=b"{")
    publish(TOPIC, b"\x00raw")
    assert sorted(found(messages(TOPIC))) == [b"\x00raw", b"{"]
    assert len(messages(TOPIC, payload__x=1)) == 0
    strange: list[Any] = [[], {"encoding": "morse"}]
    for metadata in strange:
        Message.objects.filter(offset=offset).update(metadata=metadata)
        assert messages(TOPIC, key="k").messages[0].payload == b"{"


def test_a_message_that_waits_apart_for_its_retry_tells_what_it_has_been_through() -> None:
    subscribe(TOPIC, GROUP)
    (offset,) = scheduled("soon", group=GROUP)
    retry = {
        "id": "mine",
        "count": 2,
        "failures": 2,
        "errors": [{"at": 1, "attempt": 2, "by": "w", "error": "no"}],
    }
    row = Message.objects.get(offset=offset)
    Message.objects.filter(offset=offset).update(metadata={**row.metadata, "retry": retry})
    (message,) = messages(TOPIC, group=GROUP, status="scheduled", id="mine")
    assert (message.id, message.attempts, message.failures, message.errors[0].error) == ("mine", 2, 2, "no")


class TestPages:
    @pytest.mark.parametrize("more", [{}, {"newest_first": True}, {"group": GROUP, "status": "pending"}])
    def test_pages_go_on_where_the_last_one_ended(self, more: dict[str, Any]) -> None:
        """There are eleven messages of each of eight keys. A walk over partitions reads fewer of each key at once."""
        publish_many(TOPIC, [OutgoingMessage([k, n], key=f"k{k}") for n in range(11) for k in range(8)])
        subscribe(TOPIC, GROUP)
        for limit in (1, 3, 7, 50):
            got = [tuple(m.payload) for m in every(limit=limit, **more)]
            assert len(got) == len(set(got)) == 88
            order = sorted(got) if "status" in more else sorted(got, key=lambda m: (m[1], m[0]))
            assert got == (order[::-1] if "newest_first" in more else order)

    @pytest.mark.parametrize("status", ["waiting", "in_flight"])
    def test_what_is_open_comes_by_key_and_due_time(self, status: str) -> None:
        publish_many(TOPIC, [OutgoingMessage([k, n], key=f"k{k}") for n in range(7) for k in range(3)])
        with Subscription(TOPIC, GROUP) as subscription:
            for delivery in poll_until(subscription, 21):
                if status == "waiting":
                    delivery.nack(delay=500 - 60 * delivery.payload[1])
            for limit in (1, 4, 50):
                got = [m.payload for m in every(group=GROUP, status=status, limit=limit)]
                assert len(got) == 21
                assert [k for k, _ in got] == [0] * 7 + [1] * 7 + [2] * 7
                if status == "waiting":
                    assert got[:7] == [[0, n] for n in range(6, -1, -1)]
                of_one = every(group=GROUP, status=status, limit=limit, key="k1")
                assert [m.payload for m in of_one] == got[7:14]

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_pages_of_a_time_go_on_where_the_last_one_ended(self, newest_first: bool) -> None:
        """One query may read the whole time range and more, but a page holds only a part of it."""
        offsets = published(*range(30))
        times = [
            published_at([offset], 1_000_000_000_000 + n * 3_600_000) for n, offset in enumerate(offsets)
        ]
        got = every(after=times[5], before=times[25], limit=3, newest_first=newest_first)
        assert sorted(m.payload for m in got) == list(range(5, 25))

    def test_a_search_says_how_far_it_came(self) -> None:
        published(*range(40), key="k")
        steps, start = [], None
        for _ in range(4):
            page = messages(TOPIC, filter=lambda m: m.payload == 39, scan_limit=10, start=start)
            steps.append((found(page), page.scanned))
            start = page.next
        assert steps == [([], 10), ([], 10), ([], 10), ([39], 10)]

    def test_large_payloads_end_a_page_early(self) -> None:
        published(*("x" * 1_000_000 for _ in range(40)))
        first = messages(TOPIC)
        assert 30 < len(first) < 40
        assert first.next is not None
        assert len(first) + len(messages(TOPIC, start=first.next)) == 40

    def test_a_cursor_of_another_question_is_refused(self) -> None:
        published(1, 2)
        subscribe(TOPIC, GROUP)
        cursor = messages(TOPIC, limit=1).next
        for bad in (cursor, "x", "[]", '["pending", 1]', '["pending","k"]', '["pending","k","x"]'):
            with pytest.raises(ValueError, match="next on a page of the same query"):
                messages(TOPIC, group=GROUP, status="pending", start=bad)
        with pytest.raises(TypeError, match="start"):
            messages(TOPIC, start=5)  # type: ignore[arg-type]


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"status": "lost"}, ValueError, "status must be one of pending"),
    ({"status": "pending"}, ValueError, "also give group"),
    ({"group": "nobody"}, NotRegistered, "nobody"),
    ({"group": ""}, ValueError, "group must not be empty"),
    ({"key": " k"}, ValueError, "key must not begin"),
    ({"id": 7}, TypeError, "id must be a str"),
    ({"kind": 7}, TypeError, "kind"),
    ({"kind": []}, TypeError, "kind"),
    ({"after": 7}, TypeError, "after must be an aware datetime"),
    ({"before": datetime(2026, 1, 1)}, ValueError, "before must be an aware datetime"),
    ({"limit": 0}, ValueError, "limit"),
    ({"limit": 10_001}, ValueError, "limit"),
    ({"scan_limit": 0}, ValueError, "scan_limit"),
    ({"filter": 7}, TypeError, "filter"),
    ({"colour": "red"}, TypeError, "payload__"),
    ({"payload__a____b": 1}, ValueError, "empty part"),
    ({"group": GROUP, "status": "waiting", "newest_first": True}, ValueError, "newest_first"),
]


def test_what_cannot_be_asked_is_refused() -> None:
    subscribe(TOPIC, GROUP)
    for asked, error, text in REFUSED:
        with pytest.raises(error, match=text):
            messages(TOPIC, **asked)


def test_done_messages_that_are_kept_are_history() -> None:
    published(*range(5))
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 5)
    assert found(messages(TOPIC, group=GROUP, status="done")) == [0, 1, 2, 3, 4]
    assert found(messages(TOPIC, group=GROUP, status="done", newest_first=True, limit=2)) == [4, 3]
