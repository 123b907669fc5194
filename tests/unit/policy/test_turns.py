"""Fair turns of handlers, in simulated threads with a simulated clock."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import pytest

from django_mqueue.workers.turns import LOT_MAX, LOT_SECONDS, UNKNOWN, Contender, Turns


@dataclass
class Load:
    """A handler that has, from ``begins`` on, more messages than its threads can process. A call takes ``seconds``."""

    seconds: float
    limit: int = 1000
    begins: float = 0.0


def simulate(
    loads: dict[str, Load], threads: int, until: float, weights: dict[str, int] | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each handler's running time within ``until`` seconds, and its longest wait without a thread."""
    turns: Turns[str] = Turns(threads, weights)
    now, used, waited = 0.0, dict.fromkeys(loads, 0.0), dict.fromkeys(loads, 0.0)
    idle_since = {key: load.begins for key, load in loads.items()}
    running: list[tuple[float, str, int]] = []
    while now < until:
        at_work = Counter(key for _, key, _ in running)
        contenders = {
            key: Contender(load.limit - at_work[key], turns.lot_size(key))
            for key, load in loads.items()
            if load.begins <= now and at_work[key] < load.limit
        }
        remaining: Counter[str] = Counter()
        for _, key, calls in running:
            remaining[key] += calls * turns.average(key)  # type: ignore[assignment]
        for key, share in turns.share(threads - len(running), contenders, remaining).items():
            if not at_work[key]:
                waited[key] = max(waited[key], now - idle_since[key])
            for _ in range(share):
                calls = contenders[key].calls
                heapq.heappush(running, (now + calls * loads[key].seconds, key, calls))
        now, key, calls = heapq.heappop(running)
        for _ in range(calls):
            turns.ended(key, loads[key].seconds)
        used[key] += calls * loads[key].seconds
        idle_since[key] = now
    for key in loads.keys() - {key for _, key, _ in running}:
        waited[key] = max(waited[key], until - idle_since[key])
    return used, waited


def test_a_quick_and_a_slow_handler_use_the_same_time() -> None:
    used, _ = simulate({"quick": Load(0.002), "slow": Load(1.0)}, threads=4, until=30)
    assert used["quick"] == pytest.approx(used["slow"], rel=0.1)
    assert sum(used.values()) > 4 * 28


def test_on_one_thread_too() -> None:
    used, _ = simulate({"quick": Load(0.002), "slow": Load(1.0)}, threads=1, until=30)
    assert used["quick"] == pytest.approx(used["slow"], rel=0.1)


@pytest.mark.parametrize("threads", [1, 4])
def test_weights_share_the_time(threads: int) -> None:
    loads = {"urgent": Load(0.002), "slow": Load(0.2), "usual": Load(0.02)}
    used, waited = simulate(loads, threads, until=60, weights={"urgent": 3, "slow": 2})
    whole = sum(used.values())
    assert used["urgent"] / whole == pytest.approx(3 / 6, rel=0.1)
    assert used["slow"] / whole == pytest.approx(2 / 6, rel=0.1)
    assert waited["usual"] < 2


def test_more_handlers_than_threads() -> None:
    loads = {f"h{n}": Load(0.003 * (n + 1)) for n in range(12)}
    used, waited = simulate(loads, threads=4, until=30)
    assert min(used.values()) > 0.8 * max(used.values())
    assert max(waited.values()) < 12 * 2 * LOT_SECONDS, "no handler waits longer than a round"


def test_a_limited_handler_has_its_limit_and_the_others_the_rest() -> None:
    loads = {"plain": Load(0.002), "limited": Load(0.5, limit=1)}
    used, waited = simulate(loads, threads=4, until=50)
    assert used["limited"] > 49
    assert used["plain"] > 3 * 49
    assert waited["limited"] <= LOT_SECONDS + 0.01


def test_a_handler_that_could_not_use_its_share_has_saved_up_no_more_than_a_turn() -> None:
    """One handler is new, and one has used little time because of its limit. Neither takes all threads."""
    loads = {"plain": Load(0.002), "limited": Load(0.02, limit=1), "new": Load(0.01, begins=20)}
    _, waited = simulate(loads, threads=4, until=25)
    assert waited["plain"] < 3 * LOT_SECONDS
    assert waited["new"] < 3 * LOT_SECONDS


def test_a_newcomer_starts_as_soon_as_a_thread_is_free() -> None:
    loads = {"old": Load(0.01), "new": Load(0.01, begins=5)}
    used, waited = simulate(loads, threads=2, until=5.025)
    assert used["new"] > 0
    assert waited["new"] <= 0.011


def test_of_two_that_are_not_known_yet_each_gets_half() -> None:
    assert Turns[str](4).share(4, {"a": Contender(1000), "b": Contender(1000)}, {}) == {"a": 2, "b": 2}


def test_a_handler_without_room_gets_no_thread_and_no_more_than_its_room() -> None:
    shares = Turns[str](4).share(4, {"none": Contender(0), "two": Contender(2), "all": Contender(9)}, {})
    assert shares == {"two": 2, "all": 2}


def test_what_runs_counts_as_spent() -> None:
    contenders = {"busy": Contender(1000), "idle": Contender(1000)}
    assert Turns[str](4).share(2, contenders, {"busy": 2 * UNKNOWN}) == {"idle": 2}


def test_a_lot_is_the_work_of_a_moment() -> None:
    turns: Turns[str] = Turns(2)
    assert (turns.average("a"), turns.lot_size("a")) == (UNKNOWN, 1)
    for key, seconds, calls in (("quick", 0.0, LOT_MAX), ("usual", 0.002, 25), ("slow", 1.0, 1)):
        turns.ended(key, seconds)
        assert turns.lot_size(key) == calls
