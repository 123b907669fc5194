"""``@consumer(batch=True)``: a handler gets lists of one partition's messages in offset order.

A list fails as a whole.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async

from django_mqueue import (
    Delivery,
    Message,
    OutgoingMessage,
    Postpone,
    Reject,
    Retry,
    RetryOn,
    consumer,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState
from django_mqueue.models import Message as Row
from django_mqueue.workers.call_starter import CallStarter
from tests.support.running import Seen, registered, run, wait_until_extended
from tests.support.shop.models import Sale
from tests.support.threads import Background
from tests.support.waiting import PATIENCE, wait_until

from .batches import AT_ONCE, LATER, Batches, errors, letters, publish_all, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_lists_of_one_partition_in_offset_order() -> None:
    publish_many("t", [OutgoingMessage(n, key=f"k{n % 3}") for n in range(70)])
    with registered("t", seen := Batches(), batch=True, batch_size=8):
        output = run()
    assert "stopped: ack 70" in output
    for batch in seen.given:
        assert 1 <= len(batch) <= 8
        assert len({message.key for message in batch}) == 1
        assert [m.offset for m in batch] == sorted(m.offset for m in batch)
        assert {(m.attempt, m.group, m.topic) for m in batch} == {(1, "g", "t")}
    for key in ("k0", "k1", "k2"):
        of_key = [m.payload for batch in seen.given for m in batch if m.key == key]
        assert of_key == sorted(of_key), "one batch of a partition at a time"
        assert next(len(b) for b in seen.given if b[0].key == key) == 8, "it is filled"
    assert sorted(seen.handled) == list(range(70))
    assert states() == [(True, 0, 0)] * 70


@pytest.mark.parametrize("size", [30, 60, 150])
def test_batch_size_is_reached_where_so_many_wait(size: int) -> None:
    """A batch may be larger than the number of messages that a worker reads from a partition at once."""
    publish_all("t", range(310))
    with registered("t", seen := Batches(), batch=True, batch_size=size):
        run(max_messages=300)
    assert [len(batch) for batch in seen.given] == [size] * (300 // size)
    assert seen.handled == list(range(300))


def test_max_messages_counts_messages() -> None:
    publish_all("t", range(20))
    publish_all("t", range(20), key="other")
    with registered("t", seen := Batches(), batch=True, batch_size=8):
        assert "ack 11" in run(max_messages=11)
    assert sorted(map(len, seen.given)) == [3, 8]


def test_the_size_may_be_set_for_the_run() -> None:
    publish_all("t", range(6))
    with registered("t", seen := Batches(), batch=True):
        run(batch_size=2)
    assert [len(batch) for batch in seen.given] == [2, 2, 2]


def test_all_fail_with_what_was_raised_and_come_again_together() -> None:
    """The worker calls the retry policy once for the whole batch, so jitter does not separate the messages."""
    publish_all("t", range(5))
    asked: list[int] = []

    def handle(messages: list[Delivery]) -> None:
        if messages[0].attempt == 1:
            raise ValueError("no")

    def retry(attempt: int) -> float:
        asked.append(attempt)
        return 0.05 * len(asked)

    with registered("t", seen := Batches(handle), batch=True, retry=retry):
        output = run()
        run_until_done(5)
    assert "nack 5" in output
    assert seen.payloads == [[0, 1, 2, 3, 4]] * 2
    assert {m.last_error.partition("\n")[0] for m in seen.given[1]} == {"ValueError: no"}
    assert (asked, states(), errors()) == ([1], [(True, 1, 1)] * 5, ["ValueError: no"] * 5)


def run_until_done(count: int) -> None:
    while DeliveryState.objects.filter(acked=True).count() < count:
        run()


def test_out_of_attempts_all_are_dead_lettered() -> None:
    publish_all("t", range(130))

    def handle(messages: list[Delivery]) -> None:
        raise KeyError("never")

    with registered("t", seen := Batches(handle), batch=True, batch_size=130, retry=AT_ONCE, max_attempts=2):
        output = run()
    assert "dead-letter 130, nack 130" in output
    assert letters("t") == {str(n).encode(): "KeyError: 'never'" for n in range(130)}
    assert seen.attempts(7) == [1, 2]
    assert states() == [(True, 2, 1)] * 130


@pytest.mark.parametrize(
    ("raised", "left", "said"),
    [
        (Retry("later", delay=600), (False, 1, 0), "nack 3"),
        (Retry("later"), (False, 1, 0), "nack 3"),
        (Postpone(600), (False, 0, 0), "postpone 3"),
        (Reject("never"), (True, 1, 0), "dead-letter 3"),
        (SystemExit(1), (False, 1, 0), "nack 3"),
    ],
    ids=["retry-delay", "retry", "postpone", "reject", "exit"],
)
def test_what_is_raised_for_the_whole_batch(
    raised: BaseException, left: tuple[bool, int, int], said: str
) -> None:
    publish_all("t", range(3))

    def handle(messages: list[Delivery]) -> None:
        raise raised

    with registered("t", seen := Batches(handle), batch=True, retry=LATER):
        assert said in run()
    assert (seen.payloads, states()) == ([[0, 1, 2]], [left] * 3)


@pytest.mark.parametrize(
    "raised", [Retry("later", delay=86_400), Postpone(86_400)], ids=["retry", "postpone"]
)
def test_a_batch_that_waits_for_long_is_set_aside_message_by_message(raised: BaseException) -> None:
    publish_all("t", range(3))

    def handle(messages: list[Delivery]) -> None:
        raise raised

    with registered("t", Batches(handle), batch=True):
        run()
    assert Row.objects.filter(topic="t_scheduled").count() == 3


def test_a_policy_may_give_up_for_the_whole_batch() -> None:
    publish_all("t", range(3))

    def handle(messages: list[Delivery]) -> None:
        raise KeyError("x")

    with registered("t", Batches(handle), batch=True, retry=RetryOn(ValueError)):
        assert "dead-letter 3" in run()


def test_messages_of_different_attempts_in_one_batch() -> None:
    """The worker counts the attempts of each message separately."""
    publish_all("t", [0, 1])

    def handle(messages: list[Delivery]) -> None:
        if len(messages) == 2:
            publish("t", 2, key="k")
            raise ValueError("two")
        if len(messages) == 3 and messages[0].attempt == 2:
            raise ValueError("three")

    with registered("t", seen := Batches(handle), batch=True, retry=[0.1], max_attempts=3):
        run(max_messages=2)
        DeliveryState.objects.update(invisible_until=0)
        run_until_done(3)
    assert seen.payloads == [[0, 1], [0, 1, 2], [0, 1, 2]]
    assert [seen.attempts(n) for n in range(3)] == [[1, 2, 3], [1, 2, 3], [1, 2]]
    assert states() == [(True, 2, 2), (True, 2, 2), (True, 1, 1)]


@dataclass
class Order:
    n: int


def test_filter_and_kinds_are_asked_of_each_message() -> None:
    """The worker acks messages that the filter skips, and dead-letters messages that do not parse.

    The rest is the batch.
    """
    publish_many(
        "t",
        [
            OutgoingMessage(
                {"n": n}, key="k", kind="order" if n != 2 else "quote", headers={"wanted": n != 1}
            )
            for n in range(4)
        ]
        + [OutgoingMessage({"m": 4}, key="k", kind="order", headers={"wanted": True})],
    )
    with registered("t", seen := Batches(), batch=True, filter={"wanted": True}, kinds={"order": Order}):
        output = run()
    assert seen.payloads == [[Order(0), Order(3)]]
    assert "stopped: ack 3, dead-letter 2" in output
    assert {key: value[:9] for key, value in letters("t").items()} == {
        b'{"n":2}': "kind 'quo", b'{"m":4}': "the paylo"
    }  # fmt: skip


def test_a_batch_of_which_nothing_is_wanted_calls_nobody() -> None:
    publish_all("t", range(3))
    with registered("t", seen := Batches(), batch=True, filter={"wanted": True}):
        assert "ack 3" in run()
    assert seen.given == []


def test_a_failing_batch_fails_nobody_it_was_not_given() -> None:
    """The skipped message stays acked, and the message of another kind stays dead-lettered."""
    publish_many("t", [OutgoingMessage(n, key="k", kind=kind) for n, kind in enumerate("abc")])

    def handle(messages: list[Delivery]) -> None:
        raise ValueError("no")

    wants = lambda message: message.payload != 0  # noqa: E731
    with registered("t", Batches(handle), batch=True, filter=wants, kinds=["b"], retry=LATER):
        run()
    assert states() == [(True, 0, 0), (False, 1, 0), (True, 1, 0)]


def test_an_async_handler() -> None:
    publish_all("t", range(5))
    seen = Batches()

    async def handle(messages: list[Delivery]) -> None:
        await sync_to_async(seen)(messages)
        await Sale.objects.abulk_create([Sale(number=m.payload) for m in messages])
        if messages[0].attempt == 1:
            raise ValueError("not yet")

    with registered("t", handle, batch=True, retry=AT_ONCE):
        run()
    assert seen.payloads == [[0, 1, 2, 3, 4]] * 2
    assert Sale.objects.count() == 10


def test_extend_works_for_each_message() -> None:
    publish_all("t", range(2))

    def handle(messages: list[Delivery]) -> None:
        assert messages[1].extend(3600)

    with registered("t", Batches(handle), batch=True):
        run()
    first, second = DeliveryState.objects.order_by("message_offset")
    assert second.invisible_until > first.invisible_until + 3_000_000


def test_messages_are_kept_invisible_while_a_batch_runs() -> None:
    publish_all("t", range(3))

    def handle(messages: list[Delivery]) -> None:
        wait_until_extended(3000)

    with registered("t", seen := Batches(handle), batch=True, visibility_timeout=3):
        run(poll_interval=0.02)
    assert seen.payloads == [[0, 1, 2]]
    for state in DeliveryState.objects.all():
        assert state.invisible_until > state.delivered_at + 3000


@pytest.mark.parametrize(("keys_there", "concurrency", "at_once"), [(6, None, 4), (6, 2, 2), (3, None, 3)])
def test_as_many_batches_at_once_as_there_are_threads_keys_and_leave(
    keys_there: int, concurrency: int | None, at_once: int
) -> None:
    """A partition has only one batch at a time."""
    publish_many("t", [OutgoingMessage(n, key=f"k{n % keys_there}") for n in range(120)])
    lock, now, most = threading.Lock(), [0], [0]
    keys: list[str | None] = []
    claims, claim = [0], CallStarter.claim

    def counted(starter: CallStarter) -> int:
        found = claim(starter)
        claims[0] += 1
        return found

    def handle(messages: list[Delivery]) -> None:
        with lock:
            assert messages[0].key not in keys
            keys.append(messages[0].key)
            now[0] += 1
            most[0] = max(most[0], now[0])
        wait_until(lambda: most[0] >= at_once, "as many batches run at once")
        before = claims[0]
        wait_until(lambda: claims[0] >= before + 2, "the worker has tried to start more")
        with lock:
            keys.remove(messages[0].key)
            now[0] -= 1

    with (
        registered("t", seen := Batches(handle), batch=True, batch_size=5, concurrency=concurrency),
        patch.object(CallStarter, "claim", counted),
    ):
        run(threads=4)
    assert most[0] == at_once
    assert sorted(seen.handled) == list(range(120))
    assert states() == [(True, 0, 0)] * 120


def test_a_batch_that_is_not_full_holds_back_the_next_one_of_its_key() -> None:
    """The second message of the key waits, although the batch has room. A later message of another key is handled."""
    door = threading.Event()

    def handle(messages: list[Delivery]) -> None:
        if messages[0].payload == "first":
            assert door.wait(PATIENCE)

    publish("t", "first", key="k")
    with registered("t", seen := Batches(handle), batch=True, batch_size=5), Background(run) as working:
        wait_until(lambda: DeliveryState.objects.filter(in_flight=True).exists(), "the first batch runs")
        publish("t", "second", key="k")
        publish("t", "other", key="another")
        wait_until(
            lambda: DeliveryState.objects.filter(partition_key="another").exists(), "the other is claimed"
        )
        assert DeliveryState.objects.filter(partition_key="k").count() == 1
        door.set()
        working.result()
    assert sorted(map(str, seen.handled)) == ["first", "other", "second"]


def test_beside_a_handler_of_single_messages() -> None:
    publish_many("a", range(200))
    publish_all("b", range(200))
    one = Seen()
    with registered("a", one), registered("b", seen := Batches(), batch=True, batch_size=20):
        run(threads=2)
    assert sorted(one.payloads) == seen.handled == list(range(200))


def test_a_batch_is_one_claim_and_one_ack() -> None:
    """All messages have the same delivery time and token, and at most two different ack times."""
    publish_all("t", range(100))
    with registered("t", Batches(), batch=True, batch_size=100):
        run()
    assert DeliveryState.objects.values("delivered_at", "delivery_token").distinct().count() == 1
    assert DeliveryState.objects.values("acked_at").distinct().count() <= 2


def test_strict_and_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batch=True and strict=True exclude each other"):
        consumer("t", group="g", batch=True, strict=True)


def handle_nothing(messages: list[Message]) -> None: ...


def test_registered_by_its_options() -> None:
    with registered("t", handle_nothing, batch=True, batch_size=1000, atomic=True, max_runtime=5):
        from django_mqueue.workers.registry import handlers

        (handler,) = handlers(["t"])
        assert (handler.batch, handler.batch_size, handler.max_runtime) == (True, 1000, 5.0)
