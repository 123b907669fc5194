"""What is alarming, in words: pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_mqueue.admin.alarms import of_group, of_hold, of_topic
from django_mqueue.inspect import Figure, GroupFigures, Hold, KnownTopic, TopicFigures
from django_mqueue.policy.figures import HOLD_REASONS

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NONE, ONE = Figure(0), Figure(1)
LATE = timedelta(minutes=10)

WELL = GroupFigures("t", "g", NOW, True, False, 1, NONE, NONE, NONE, NONE, NONE)
HELD = Hold("t", "pending", "g", "k", "k", 3, 4, NOW, timedelta(), None)
TOPIC = TopicFigures("t", NOW, ONE, NONE, NONE)


def told(figures: GroupFigures) -> list[tuple[str, bool]]:
    return [(alarm.text, alarm.is_bad) for alarm in of_group(figures, LATE)]


def test_a_group_that_is_well_says_nothing() -> None:
    assert told(WELL) == []
    assert told(replace(WELL, pending=ONE, dead=ONE, oldest_age=LATE)) == []


@pytest.mark.parametrize("status", ["pending", "waiting", "in_flight"])
def test_nobody_there(status: str) -> None:
    """Alarming if something waits for somebody; scheduled and dead ones do not."""
    assert told(replace(WELL, workers=0, scheduled=ONE, dead=ONE)) == [("No worker is alive", False)]
    waits: Any = {status: ONE}
    assert told(replace(WELL, workers=0, **waits)) == [("No worker is alive, and messages wait", True)]


def test_paused() -> None:
    assert told(replace(WELL, paused=True)) == [("Paused", False)]
    assert told(replace(WELL, paused=True, pending=ONE)) == [("Paused, and messages wait", True)]


def test_late() -> None:
    found = told(replace(WELL, paused=True, oldest_age=timedelta(hours=2, minutes=5)))
    assert found == [("Late: its oldest open message is 2 h 5 min old", True), ("Paused", False)], (
        "the worst first"
    )


def test_not_registered() -> None:
    assert [bad for _, bad in told(replace(WELL, registered=False, workers=0, paused=True))] == [True]


@pytest.mark.parametrize("reason", HOLD_REASONS)
def test_each_reason_has_its_words(reason: str) -> None:
    """What is as it should be has none; late it is bad, whatever the reason."""
    late = of_hold(replace(HELD, reason=reason, overdue=timedelta(hours=1)))
    if reason == "retention":
        assert late is None
        return
    assert late is not None
    assert late.is_bad
    assert reason == "no_group" or late.text.endswith("1 h over its retention")
    now = of_hold(replace(HELD, reason=reason, overdue=timedelta()))
    assert (now is None) == (reason == "collecting")
    if now is not None:
        assert now.is_bad == (reason == "no_group")
        assert "over its retention" not in now.text


def test_who_holds_back_is_named() -> None:
    alarm = of_hold(replace(HELD, reason="paused", overdue=timedelta(seconds=3)))
    assert alarm is not None
    assert alarm.is_bad
    assert alarm.text == "Deletion waits for group g, which is paused, 3 s over its retention"


def test_topics() -> None:
    lonely, known = KnownTopic("t", ()), KnownTopic("t", ("g",))
    assert [alarm.is_bad for alarm in of_topic(lonely, TOPIC, None)] == [True]
    assert of_topic(lonely, replace(TOPIC, kept=NONE), None) == []
    assert len(of_topic(lonely, replace(TOPIC, kept=NONE, scheduled=ONE), None)) == 1
    assert of_topic(known, TOPIC, []) == []
    assert len(of_topic(known, TOPIC, [HELD, replace(HELD, group="h")])) == 1, "the first of them"
    (behind,) = of_topic(known, TOPIC, None, timedelta(hours=1))
    assert (behind.text, behind.is_bad) == ("Deletion is behind by 1 h", False)
    assert of_topic(known, TOPIC, None, timedelta(minutes=1)) == []
