"""``django_mqueue.testing``: ``drain`` and ``published``, in a ``TestCase`` and in a ``TransactionTestCase``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_mqueue import (
    HandlerError,
    Message,
    OutgoingMessage,
    Postpone,
    Reject,
    Retry,
    pause,
    publish,
    publish_many,
    scheduled,
    subscribe,
)
from django_mqueue.models import DeliveryState, SubscriberHeartbeat
from django_mqueue.store.connection.session_variables import moved_clock
from django_mqueue.testing import drain, published
from tests.support.processes import database_ms
from tests.support.running import Seen, registered
from tests.support.shop.models import Door, Sale


def fail(message: Message) -> None:
    raise ValueError("no")


class Helpers:
    """Tests that run in both kinds of test cases."""

    def test_published_lists_what_is_in_the_log(self) -> None:
        publish("t", {"n": 1}, key="k", id="one", kind="a", headers={"h": 1})
        publish("other", b"\x00")
        first, second = published()
        assert (first.topic, first.key, first.id, first.kind, first.headers) == (
            "t",
            "k",
            "one",
            "a",
            {"h": 1},
        )
        assert (first.payload, second.payload) == ({"n": 1}, b"\x00")
        assert [message.payload for message in published("t")] == [{"n": 1}]
        assert published("nothing") == []

    def test_drain_runs_handlers_until_nothing_is_deliverable(self) -> None:
        """``drain`` also delivers what handlers publish: each message once, in the order of its key."""
        seen, last = Seen(lambda message: publish("next", message.payload, key=message.key)), Seen()
        publish_many("t", [OutgoingMessage(n, key=f"k{n % 3}") for n in range(60)])
        with registered("t", seen), registered("next", last):
            handled = drain()
            assert drain() == []
        assert len(handled) == 120
        for key in ("k0", "k1", "k2"):
            assert [m.payload for m in handled if m.key == key and m.topic == "t"] == list(
                range(int(key[1]), 60, 3)
            )
        assert sorted(last.payloads) == list(range(60))
        assert DeliveryState.objects.filter(acked=True).count() == 120

    def test_drain_registers_a_group_of_an_empty_topic_and_starts_no_subscriber(self) -> None:
        publish("t", 1)
        with registered("t", Seen()), registered("empty", Seen(), start="latest"):
            drain()
            publish("empty", 1)
            assert set(SubscriberHeartbeat.objects.values_list("topic", flat=True)) == {"t"}
            assert [message.topic for message in drain()] == ["empty"]

    def test_until_a_time_each_message_runs_when_it_is_due(self) -> None:
        """A retry after two hours, which is parked, and one after ten minutes run between two scheduled messages."""
        seen = Seen(lambda message: handle(message))

        def handle(message: Message) -> None:
            if message.payload == "retried" and message.attempt < 3:
                raise Retry("later", delay=(600, 7200)[message.attempt - 1])

        publish("t", "first", delay=timedelta(minutes=1))
        publish("t", "retried")
        publish("t", "last", delay=timedelta(hours=3))
        publish("t", "too late", delay=timedelta(hours=5))
        with registered("t", seen, max_attempts=3):
            handled = drain(until=timedelta(hours=4))
            assert [(m.payload, m.attempt) for m in handled] == [
                ("retried", 1), ("first", 1), ("retried", 2), ("retried", 3), ("last", 1),
            ]  # fmt: skip
            assert [message.payload for message in scheduled("t")] == ["too late"]
            assert drain() == [], "the clock is the server's again"
            assert len(drain(until=datetime(2100, 1, 1, tzinfo=UTC))) == 1

    def test_the_clock_is_the_server_s_again_after_a_database_error(self) -> None:
        """Django then refuses further statements of the transaction."""

        def fail() -> None:
            with transaction.atomic(), moved_clock("default") as move:
                move(1_000)
                transaction.set_rollback(True)
                raise ValueError("first")

        with pytest.raises(ValueError, match="first"):
            fail()
        assert database_ms() > 1_000_000_000_000

    def test_until_a_time_with_a_handler_of_dead_letters(self) -> None:
        publish("t", 1, delay=60)
        with (
            registered("t", Seen(fail), max_attempts=1),
            registered("t_dlq", letters := Seen()),
        ):
            drain(until=timedelta(minutes=2))
        assert letters.payloads == [1]

    def test_until_a_time_with_a_paused_group(self) -> None:
        """A retry that is due cannot run. ``drain`` ends nevertheless."""
        publish("t", 1)
        with registered("t", seen := Seen(fail), max_attempts=2, retry=[60]):
            drain()
            pause("t", "g")
            assert drain(until=timedelta(hours=1)) == []
        assert seen.payloads == [1]

    def test_until_a_time_a_paused_group_does_not_stop_the_others(self) -> None:
        publish("t", 1)
        with registered("t", Seen(fail), max_attempts=2, retry=[1]), registered("u", seen := Seen()):
            drain("t")
            pause("t", "g")
            publish("u", 2, delay=10)
            drain(until=timedelta(minutes=1))
        assert seen.payloads == [2]

    def test_until_is_a_time(self) -> None:
        with registered("t", Seen()):
            for wrong in (datetime(2100, 1, 1), timedelta(seconds=-1), 5):
                with pytest.raises((TypeError, ValueError), match="until"):
                    drain(until=wrong)  # type: ignore[arg-type]

    def test_strict_handlers_and_many_messages_of_one_key(self) -> None:
        seen = Seen()
        publish_many("t", [OutgoingMessage(n, key="k") for n in range(30)])
        with registered("t", seen, strict=True):
            drain()
        assert seen.payloads == list(range(30))

    def test_what_handlers_raise(self) -> None:
        raised: dict[int, Exception] = {
            1: ValueError("no"),
            2: Reject("never"),
            3: Postpone(600),
            4: Retry("x", delay=600),
        }

        def handle(message: Message) -> None:
            if message.payload in raised:
                raise raised[message.payload]

        publish_many("t", range(5))
        with registered("t", handle, retry=[0]):
            handled = drain()
        assert sorted(m.payload for m in handled) == [0, 1, 1, 1, 2, 3, 4]
        assert [m.attempt for m in handled if m.payload == 1] == [1, 2, 3]
        assert sorted(m.payload for m in published("t_dlq")) == [1, 2]
        letter = next(m for m in published("t_dlq") if m.payload == 1)
        assert (letter.failure_count, letter.failed_group) == (3, "g")
        assert letter.last_error.startswith("ValueError: no")

    def test_what_ends_a_test_is_raised_after_the_message_is_settled(self) -> None:
        """A message that was claimed with it, and that no handler got, has not used an attempt."""
        for end in (KeyboardInterrupt(), pytest.fail.Exception("not called")):

            def handle(message: Message, end: BaseException = end) -> None:
                raise end

            publish("t", str(end))
            publish("t", "next")
            with registered("t", handle, max_attempts=1), pytest.raises(type(end)) as raised:
                drain()
            assert raised.value is end
            assert [letter.payload for letter in published("t_dlq")][-1] == str(end)
            with registered("t", Seen()):
                assert [(m.payload, m.attempt) for m in drain()] == [("next", 1)]

    def test_a_message_that_waits_is_left(self) -> None:
        publish("t", 1)
        with registered("t", self._fail, retry=[3600]):
            assert [m.attempt for m in drain()] == [1]
            assert drain() == []
            DeliveryState.objects.update(invisible_until=0)
            assert [m.attempt for m in drain()] == [2]

    @staticmethod
    def _fail(message: Message) -> None:
        raise ValueError("not yet")

    def test_topic_and_group_choose(self) -> None:
        seen = {name: Seen() for name in ("t:g", "t:h", "u:g")}
        for topic in ("t", "u"):
            publish(topic, topic)
        with (
            registered("t", seen["t:g"]),
            registered("t", seen["t:h"], group="h"),
            registered("u", seen["u:g"]),
        ):
            drain("t", "h")
            assert {name for name, one in seen.items() if one.messages} == {"t:h"}
            drain("t")
            assert {name for name, one in seen.items() if one.messages} == {"t:h", "t:g"}
            drain(group="g")
            assert {name for name, one in seen.items() if one.messages} == {"t:h", "t:g", "u:g"}
            with pytest.raises(HandlerError, match="no handler is registered for 'nowhere'"):
                drain("nowhere")
            with pytest.raises(HandlerError, match="no handler is registered for group 'nobody'"):
                drain(group="nobody")

    def test_a_database_error_of_a_handler_leaves_the_test_usable(self) -> None:
        Door.objects.create(name="front")

        def handle(message: Message) -> None:
            Sale.objects.create(number=message.payload)
            Door.objects.create(name="front")

        publish("t", 1)
        with registered("t", handle, retry=None):
            drain()
        assert [m.last_error.partition(":")[0] for m in published("t_dlq")] == [
            "django.db.utils.IntegrityError"
        ]
        with pytest.raises(IntegrityError), transaction.atomic():
            Door.objects.create(name="front")
        assert Door.objects.count() == 1

    def test_atomic_handlers(self) -> None:
        def handle(message: Message) -> None:
            Sale.objects.create(number=message.payload)
            publish("sold", message.payload)
            if message.attempt == 1:
                raise ValueError("not yet")

        publish_many("t", range(20))
        with registered("t", handle, atomic=True, retry=[0]):
            handled = drain()
        assert len(handled) == 40
        assert Sale.objects.count() == 20 == len(published("sold"))

    def test_filters_and_kinds(self) -> None:
        seen = Seen()
        publish("t", {"n": 1}, kind="a", headers={"x": 1})
        publish("t", {"n": 2}, kind="b", headers={"x": 1})
        publish("t", {"n": 3}, kind="a")
        with registered("t", seen, filter={"x": 1}, kinds={"a": lambda payload: payload["n"]}):
            drain()
        assert seen.payloads == [1]
        assert [m.payload for m in published("t_dlq")] == [{"n": 2}]

    def test_an_async_handler(self) -> None:
        seen: list[Any] = []

        async def handle(message: Message) -> None:
            await Sale.objects.acreate(number=message.payload)
            seen.append(message.payload)

        publish("t", 7)
        with registered("t", handle):
            drain()
        assert (seen, Sale.objects.count()) == ([7], 1)

    def test_a_group_s_own_messages_and_starts(self) -> None:
        subscribe("t", "g")
        publish("t", 1, group="g")
        first, second = Seen(), Seen()
        with registered("t", first), registered("t", second, group="h"):
            drain()
        assert (first.payloads, second.payloads) == ([1], [])


class TestInATransaction(Helpers, TestCase):
    """Nothing is ever committed."""


class TestWithCommits(Helpers, TransactionTestCase):
    pass


class TestInATransactionWithQuickSettings(Helpers, TestCase):
    @pytest.fixture(autouse=True)
    def quick(self) -> Iterator[None]:
        with override_settings(MQUEUE={"DISCOVERY_INTERVAL": 0.01, "GC_INTERVAL": 0.01, "RETENTION": 3600}):
            yield


@pytest.mark.parametrize(
    "way", ["plain", pytest.param("transaction", marks=pytest.mark.django_db(transaction=True))]
)
def test_the_fixtures(way: str, mqueue_drain: Any, mqueue_published: Any) -> None:
    seen = Seen()
    publish("t", 1)
    with registered("t", seen):
        assert [message.payload for message in mqueue_drain("t")] == [1]
    assert [message.payload for message in mqueue_published("t")] == [1]
