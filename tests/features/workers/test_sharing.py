"""Handlers of one process share its threads, with any options. No handler waits until another has no work."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection

from django_mqueue import OutgoingMessage, pause, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState
from django_mqueue.protocol.claim_scheduler import ClaimScheduler
from django_mqueue.protocol.claiming import Claimer
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.workers.call_starter import CallStarter
from django_mqueue.workers.handler_calls import HandlerCall
from django_mqueue.workers.sharing import Sharing
from tests.support.running import Seen, registered, run
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 1 ms for each call (100 ms for ``slow``) and 2 ms for each claim, however busy the machine is."""
    claimed = Sharing.claimed

    def end(sharing: Sharing, call: HandlerCall) -> None:
        (topic,) = {delivery.topic for delivery in call.deliveries}
        sharing._turns.ended(sharing.subscriber_of(call.deliveries[0]), 0.1 if topic == "slow" else 0.001)

    def claim(sharing: Sharing, engine: Subscriber, count: int, seconds: float) -> None:
        claimed(sharing, engine, count, 0.002)

    monkeypatch.setattr(Sharing, "ended", end)
    monkeypatch.setattr(Sharing, "claimed", claim)


@pytest.fixture
def small_lots(measured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a thread at most ten messages at once, so that a run of some hundred messages has many rounds of claims."""
    monkeypatch.setattr("django_mqueue.workers.turns.LOT_MAX", 10)


class Calls:
    """Counts the calls of several handlers."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, topic: str) -> Callable[[Any], None]:
        def handle(given: Any) -> None:
            with self._lock:
                self.count[topic] += 1

        return handle


@pytest.mark.usefixtures("small_lots")
def test_a_limited_and_a_batch_handler_beside_a_plain_one_with_a_backlog() -> None:
    """Each handler has more work than the run does. Each gets a share of the calls."""
    calls = Calls()
    for topic in ("plain", "limited", "batch"):
        publish_many(topic, range(1500))
    with (
        registered("batch", calls.of("batch"), batch=True),
        registered("limited", calls.of("limited"), concurrency=2),
        registered("plain", calls.of("plain")),
    ):
        run(drain=False, max_messages=1500, max_seconds=60)
    assert min(calls.count.values()) > 10, calls.count


@pytest.mark.usefixtures("small_lots")
def test_a_batch_handler_beside_a_strict_one_of_one_key() -> None:
    """These two claim their next messages only after the last ones are settled."""
    calls = Calls()
    publish_many("batch", [OutgoingMessage(n, key="k") for n in range(1000)])
    publish_many("strict", [OutgoingMessage(n, key="k") for n in range(300)])
    publish_many("plain", range(2000))
    with (
        registered("batch", calls.of("batch"), batch=True),
        registered("plain", calls.of("plain")),
        registered("strict", calls.of("strict"), strict=True, atomic=True),
    ):
        run(drain=False, max_messages=1200, max_seconds=60)
    assert min(calls.count.values()) > 10, calls.count


@pytest.mark.usefixtures("measured")
def test_a_slow_handler_leaves_threads_to_a_quick_one() -> None:
    """Both handlers are plain. Each gets a share of the time, so most calls are calls of the quick one."""
    calls = Calls()
    publish_many("slow", range(500))
    publish_many("quick", range(500))
    with registered("quick", calls.of("quick")), registered("slow", calls.of("slow")):
        run(drain=False, max_messages=300, max_seconds=60)
    assert calls.count["quick"] > calls.count["slow"] > 0, calls.count


@pytest.mark.parametrize(
    "options", [{"concurrency": 2}, {"batch": True}, {}], ids=["limited", "batch", "plain"]
)
def test_what_cannot_be_claimed_keeps_no_thread(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group's claims get nothing, although it has work. The other handler gets all four threads."""
    claim = Claimer.claim
    tried = threading.Event()

    def claim_unless_locked(claimer: Claimer, *arguments: int, **others: Any) -> Any:
        if claimer.state.topic != "locked":
            return claim(claimer, *arguments, **others)
        tried.set()
        return []

    monkeypatch.setattr(Claimer, "claim", claim_unless_locked)
    publish_many("locked", range(100))
    publish_many("t", range(200))
    four = threading.Barrier(4, timeout=PATIENCE)
    with registered("locked", Seen(), **options), registered("t", seen := Seen(lambda message: four.wait())):
        run(drain=False, max_messages=200, max_seconds=60)
    assert len(seen.messages) == 200
    assert tried.is_set()
    assert not DeliveryState.objects.exclude(acked=True).exists()


@pytest.mark.usefixtures("measured")
def test_a_claim_that_got_nothing_is_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the empty claim the handler rests for longer than this test, although it has work."""
    claim = Claimer.claim
    tried: list[str] = []

    def claim_unless_locked(claimer: Claimer, *arguments: int, **others: Any) -> Any:
        tried.append(claimer.state.topic)
        return [] if claimer.state.topic == "locked" else claim(claimer, *arguments, **others)

    monkeypatch.setattr(Claimer, "claim", claim_unless_locked)
    monkeypatch.setattr("django_mqueue.workers.sharing.EMPTY_CLAIM_PAUSE", PATIENCE)
    publish_many("locked", range(100))
    publish_many("t", range(1000))
    with registered("locked", Seen()), registered("t", Seen()):
        run(drain=False, max_messages=1000, max_seconds=60)
    assert tried.count("t") > 1
    assert tried.count("locked") == 1


def test_a_new_message_ends_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim finds nothing, although memory shows work. The rest would last for an hour."""
    monkeypatch.setattr("django_mqueue.workers.sharing.EMPTY_CLAIM_PAUSE", 3600.0)
    claim = Claimer.claim
    late = list[int]()

    def claim_nothing(claimer: Claimer, *arguments: Any, **others: Any) -> Any:
        if late:
            return claim(claimer, *arguments, **others)
        late.append(publish("t", 2).offset)
        return []

    monkeypatch.setattr(Claimer, "claim", claim_nothing)
    publish("t", 1)
    with registered("t", seen := Seen()):
        run(drain=False, max_messages=2, max_seconds=30)
    assert sorted(seen.payloads) == [1, 2]


def test_acks_without_a_claim_do_not_delay_the_next_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarantined message waits for its turn, so no ack is joined with a claim. The worker claims as usual."""
    monkeypatch.setattr(Subscriber, "has_quarantined", True)
    monkeypatch.setattr(ClaimScheduler, "claim_quarantined", lambda scheduler, free: None)
    monkeypatch.setattr("django_mqueue.workers.sharing.EMPTY_CLAIM_PAUSE", 3600.0)
    publish_many("t", range(20))
    with registered("t", seen := Seen()):
        run(threads=2, drain=False, max_messages=20, max_seconds=30)
    assert len(seen.messages) == 20


def test_threads_that_a_claim_does_not_use_are_claimed_for_in_the_same_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both handlers claim for their shares. One claim gets nothing, so the other handler claims for all threads."""
    engine_claim, starter_claim = Subscriber.claim, CallStarter.claim
    claimed: dict[str, int] = {}
    idle: list[int] = []

    def claim(engine: Subscriber, *arguments: int) -> Any:
        got = [] if engine.state.topic == "locked" else engine_claim(engine, *arguments)
        claimed[engine.state.topic] = claimed.get(engine.state.topic, 0) + len(got)
        return got

    def claim_all(starter: CallStarter) -> int:
        claimed.clear()
        found = starter_claim(starter)
        if set(claimed) == {"locked", "t"}:
            idle.append(max(starter.free_threads() - starter.sharing.waiting, 0))
        return found

    monkeypatch.setattr(Subscriber, "claim", claim)
    monkeypatch.setattr(CallStarter, "claim", claim_all)
    publish_many("locked", range(100))
    publish_many("t", range(200))
    four = threading.Barrier(4, timeout=PATIENCE)
    with (
        registered("locked", Seen(), batch=True),
        registered("t", Seen(lambda message: four.wait()), concurrency=4),
    ):
        run(drain=False, max_messages=40, max_seconds=60)
    assert idle, "this proves nothing: they never claimed in one round"
    assert set(idle) == {0}


def test_a_paused_group_keeps_no_thread() -> None:
    for topic in ("paused", "t"):
        subscribe(topic, "g")
        publish_many(topic, range(100))
    pause("paused", "g")
    four = threading.Barrier(4, timeout=PATIENCE)
    with (
        registered("paused", resting := Seen(), batch=False),
        registered("t", Seen(lambda message: four.wait())),
    ):
        assert "stopped: ack 100" in run()
    assert resting.messages == []


def test_max_messages_is_exact_with_several_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One handler may claim the last allowed messages in the turn of the other."""
    publish_many("t", range(200))
    publish_many("u", range(200))
    for most in (1, 3, 50, 119):
        with registered("t", first := Seen()), registered("u", second := Seen(), batch=True):
            assert f"stopped: ack {most}" in run(drain=False, max_messages=most, max_seconds=60)
        assert len(first.messages) + sum(map(len, second.messages)) == most  # type: ignore[arg-type]


@pytest.mark.parametrize("handlers", [1, 2, 6])
@pytest.mark.usefixtures("measured")
def test_quick_handlers_share_claims_that_are_as_large_as_those_of_one(handlers: int) -> None:
    """A claim takes 20 or more of 900 messages on average, with one, two or six handlers."""
    claims = 0

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal claims
        claims += "INSERT INTO queue_delivery_state" in sql
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for n in range(handlers):
            publish_many(f"t{n}", range(1200))
            stack.enter_context(registered(f"t{n}", Seen()))
        with connection.execute_wrapper(count):
            run(drain=False, max_messages=900, max_seconds=60)
    assert 0 < claims <= 900 // 20


@pytest.mark.parametrize(("fit", "most"), [(10, 14), (240, 480)], ids=["single messages", "lots"])
@pytest.mark.usefixtures("measured")
def test_few_large_messages_are_claimed_ahead(fit: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``AHEAD_BYTES`` limits the messages in memory. The messages of four threads come on top."""
    monkeypatch.setattr("django_mqueue.workers.sharing.AHEAD_BYTES", fit * 1002)
    publish_many("large", ["x" * 1000] * 1500)
    held: list[int] = []
    start = CallStarter._start

    def count(starter: CallStarter, calls: Any) -> None:
        held.append(sum(len(subscriber.state.in_flight) for subscriber in starter.ready))
        start(starter, calls)

    monkeypatch.setattr(CallStarter, "_start", count)
    with registered("large", Seen()):
        run(drain=False, max_messages=1200, max_seconds=60)
    assert fit <= max(held) <= most


def test_what_a_claim_may_get_is_told_from_memory_alone() -> None:
    """``has_work`` sends no statement, because the loop reads it in each turn."""
    found: list[bool] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise AssertionError(sql)

    original = Subscriber.claim

    def claim(engine: Subscriber, *arguments: int) -> Any:
        with connection.execute_wrapper(look):
            found.append(engine.has_work)
        return original(engine, *arguments)

    publish_many("t", range(10))
    with pytest.MonkeyPatch.context() as patch, registered("t", Seen()):
        patch.setattr(Subscriber, "claim", claim)
        run()
    assert True in found
