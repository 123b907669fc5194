"""The checker's time grows in proportion to the history: one pass over the events, and a few over the messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.checker import check, summary
from tests.proof.history import Closed, Deleted, Event, Fault, Finished, Registered, Sent, Started
from tests.proof.tests.stories import RULES, TOPIC, ns

MESSAGES, KEYS = 215_000, 60
GROUPS = {"billing": False, "ledger": True}


def long_history(messages: int) -> Iterator[Event]:
    """Yield a history of two groups, one of them strict.

    It has 100 messages per second, each in its own transaction, and a kill every 20 s.
    """
    for group, strict in GROUPS.items():
        yield Registered(0, TOPIC, group, strict, 3)
    for number in range(messages):
        at, message, key = number / 100 + 1, f"m{number}", f"key-{number % KEYS}"
        yield Sent(ns(at), f"p{number % 3}", f"t{number}", message, TOPIC, key)
        yield Closed(ns(at + 0.001), f"t{number}", "committed")
        for place, group in enumerate(GROUPS):
            worker = f"w{place}.{number // 2000}"
            start = at + 0.1 + place / 100
            yield Started(ns(start), worker, group, TOPIC, key, message, number, 1)
            yield Finished(ns(start + 0.005), worker, group, message, 1, "done")
        yield Deleted(ns(at + 1), TOPIC, message, number)
        if number % 2000 == 1999:
            yield Fault(ns(at + 0.5), "killed", f"w0.{number // 2000}")


@pytest.mark.long
def test_a_history_of_a_million_and_a_half_events() -> None:
    events = list(long_history(MESSAGES))
    assert len(events) > 1_500_000
    assert check(events, RULES) == []
    assert summary(events).sent == MESSAGES


def test_one_event_is_missed_among_many() -> None:
    events = list(long_history(4_000))
    middle = next(i for i, event in enumerate(events) if i > len(events) // 2 and isinstance(event, Finished))
    found = check(events[:middle] + events[middle + 1 :], RULES)
    assert {breach.rule for breach in found} >= {"lost", "deleted early"}
