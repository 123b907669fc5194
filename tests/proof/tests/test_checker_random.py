"""Random histories of a correct queue have no breach. After one damage, the checker reports the right breach."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.proof.checker import check, summary
from tests.proof.history import Closed, DeadLettered, Deleted, Event, Fault, Finished, Sent, Started
from tests.proof.tests.simulator import history
from tests.proof.tests.stories import RULES, TOPIC, ns

SEEDS = st.integers(min_value=0, max_value=1 << 32)
Kind = TypeVar("Kind")


def of(events: list[Event], kind: type[Kind]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]


def runs(events: list[Event]) -> list[tuple[Started, Finished]]:
    """Return the runs that ended."""
    open_ones: dict[tuple[str, str, str, int], Started] = {}
    found = []
    for event in events:
        if isinstance(event, Started):
            open_ones[event.worker, event.group, event.message, event.attempt] = event
        elif isinstance(event, Finished):
            start = open_ones.pop((event.worker, event.group, event.message, event.attempt))
            found.append((start, event))
    return found


def ended_once(events: list[Event]) -> list[tuple[Started, Finished]]:
    """Return the successful runs that were the only run of their message in the group."""
    counts: dict[tuple[str, str], int] = {}
    for start in of(events, Started):
        counts[start.group, start.message] = counts.get((start.group, start.message), 0) + 1
    return [(s, e) for s, e in runs(events) if counts[s.group, s.message] == 1 and e.outcome == "done"]


def without(events: list[Event], *gone: Event) -> list[Event]:
    return [event for event in events if not any(event is one for one in gone)]


def in_peace(events: list[Event], some: list[tuple[Started, Finished]]) -> list[tuple[Started, Finished]]:
    """Return the runs without a fault from 12 s before to 5 s after. Stops and downtime are shorter than 12 s."""
    faults = sorted(fault.at for fault in of(events, Fault) if fault.kind != "joined")
    return [
        (start, end)
        for start, end in some
        if bisect_left(faults, start.at - ns(12)) == bisect_left(faults, end.at + ns(5))
    ]


def lose_the_end(events: list[Event], dice: Random) -> list[Event]:
    return without(events, dice.choice(ended_once(events))[1])


def lose_a_delivery(events: list[Event], dice: Random) -> list[Event]:
    return without(events, *dice.choice(ended_once(events)))


def deliver_what_rolled_back(events: list[Event], dice: Random) -> list[Event]:
    gone = {closed.transaction for closed in of(events, Closed) if closed.outcome == "rolled back"}
    sent = [sent for sent in of(events, Sent) if sent.transaction in gone]
    assume(sent)
    one, at = dice.choice(sent), events[-1].at
    start = Started(at, "w1", "billing", TOPIC, one.key, one.message, 10_000, 1)
    return [*events, start, Finished(at + 1, "w1", "billing", one.message, 1, "done")]


def deliver_too_soon(events: list[Event], dice: Random) -> list[Event]:
    """A scheduled message starts half of its delay early."""
    delayed = {sent.message: sent for sent in of(events, Sent) if sent.delay}
    some = [start for start, _ in ended_once(events) if start.message in delayed]
    assume(some)
    start = dice.choice(some)
    at = delayed[start.message].at + ns(delayed[start.message].delay / 2)
    return [*without(events, start), replace(start, at=at)]


def swap_in_a_strict_key(events: list[Event], dice: Random) -> list[Event]:
    """Swap two messages of a key in all events of the group. One was committed before the other was sent."""
    pairs = [(s, e) for s, e in ended_once(events) if s.group == "ledger" and s.key is not None]
    sent = {one.message: one for one in of(events, Sent)}
    closed = {one.transaction: one for one in of(events, Closed) if one.outcome == "committed"}
    ordered = [
        (one, other)
        for one in pairs
        for other in pairs
        if one[0].key == other[0].key
        and not sent[one[0].message].delay
        and (end := closed.get(sent[one[0].message].transaction)) is not None
        and end.at < sent[other[0].message].at
    ]
    assume(ordered)
    (a, a_end), (b, b_end) = dice.choice(ordered)
    rest = without(events, a, a_end, b, b_end)
    return [
        *rest,
        replace(a, message=b.message, offset=b.offset),
        replace(a_end, message=b.message),
        replace(b, message=a.message, offset=a.offset),
        replace(b_end, message=a.message),
    ]


def bury_twice(events: list[Event], dice: Random) -> list[Event]:
    letters = of(events, DeadLettered)
    assume(letters)
    return [*events, replace(dice.choice(letters))]


def bury_without_a_reason(events: list[Event], dice: Random) -> list[Event]:
    start, end = dice.choice(ended_once(events))
    return [*events, DeadLettered(end.at + 1, TOPIC, start.group, start.message, 1)]


def count_too_many(events: list[Event], dice: Random) -> list[Event]:
    start, end = dice.choice(runs(events))
    rest = without(events, start, end)
    return [*rest, replace(start, attempt=start.attempt + 100), replace(end, attempt=end.attempt + 100)]


def delete_early(events: list[Event], dice: Random) -> list[Event]:
    done = {(s.message, s.group): e.at for s, e in ended_once(events)}
    early = [
        gone
        for gone in of(events, Deleted)
        if max(done.get((gone.message, group), 0) for group in ("billing", "ledger")) > ns(3)
    ]
    assume(early)
    one = dice.choice(early)
    last = max(done.get((one.message, group), 0) for group in ("billing", "ledger"))
    return [*without(events, one), replace(one, at=last - ns(1.1))]


def run_beside(events: list[Event], dice: Random) -> list[Event]:
    """Another worker receives the message in the middle of a run, far from any fault."""
    long = [(start, end) for start, end in in_peace(events, runs(events)) if end.at - start.at > 4]
    assume(long)
    start, end = dice.choice(long)
    at = (start.at + end.at) // 2
    return [
        *events,
        replace(start, at=at, worker="w1000"),
        replace(end, at=at + 1, worker="w1000"),
    ]


def come_again(events: list[Event], dice: Random) -> list[Event]:
    """A worker receives a finished message again, far from any fault."""
    quiet = in_peace(events, ended_once(events))
    assume(quiet)
    start, end = dice.choice(quiet)
    at = end.at + ns(2)
    return [
        *events,
        replace(start, at=at, attempt=start.attempt + 1),
        replace(end, at=at + 1, attempt=start.attempt + 1),
    ]


DAMAGES: dict[Callable[[list[Event], Random], list[Event]], str] = {
    lose_the_end: "lost",
    lose_a_delivery: "lost",
    deliver_what_rolled_back: "ghost",
    deliver_too_soon: "ghost",
    swap_in_a_strict_key: "order",
    bury_twice: "dead letter",
    bury_without_a_reason: "dead letter",
    count_too_many: "attempts",
    delete_early: "deleted early",
    run_beside: "overlap",
    come_again: "again",
}


@settings(max_examples=20)
@given(SEEDS)
def test_a_correct_queue_breaks_no_promise(seed: int) -> None:
    found = check(history(seed, 20), RULES)
    assert not found, "\n".join(map(str, found[:3]))


def test_the_histories_hold_what_the_rules_are_about() -> None:
    """Without these events, the test above proves nothing."""
    total = [summary(history(seed)) for seed in range(12)]
    for what in ("killed", "stopped", "stolen", "server down"):
        assert sum(one.faults.get(what, 0) for one in total) > 5
    for what in ("done", "failed", "rejected", "postponed", "without an end"):
        assert sum(one.outcomes.get(what, 0) for one in total) > 5
    assert sum(one.redelivered for one in total) > 50
    assert sum(one.unknown for one in total) > 20
    assert sum(one.scheduled for one in total) > 20
    assert sum(sum(one.dead_letters.values()) for one in total) > 20
    assert max(one.unowned for one in total) > 1


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@settings(max_examples=5)
@given(seed=SEEDS)
def test_any_damage_is_found(damage: Callable[[list[Event], Random], list[Event]], seed: int) -> None:
    needs_peace = damage in (run_beside, come_again)
    damaged = damage(history(seed, 20, faults=0.003 if needs_peace else 0.03), Random(seed))
    assert DAMAGES[damage] in {breach.rule for breach in check(damaged, RULES)}
