"""Texts and severity of the alarms: pure functions."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_mqueue.inspect import Figure, GroupFigures, Hold, KnownTopic, TopicFigures
from django_mqueue.stats.alarms import of_blocker, of_group, of_topic
from django_mqueue.stats.results import HOLD_REASONS

ROOT = Path(__file__).resolve().parents[2]
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
    """The alarm is bad if messages are pending, waiting or in flight. Scheduled and dead messages do not count."""
    assert told(replace(WELL, workers=0, scheduled=ONE, dead=ONE)) == [("No subscriber is alive", False)]
    waits: Any = {status: ONE}
    assert told(replace(WELL, workers=0, reads_log=True, **waits)) == []
    assert told(replace(WELL, workers=0, **waits)) == [("No subscriber is alive, and messages wait", True)]


def test_paused() -> None:
    assert told(replace(WELL, paused=True)) == [("Paused", False)]
    assert told(replace(WELL, paused=True, pending=ONE)) == [("Paused, and messages wait", True)]


def test_late() -> None:
    found = told(replace(WELL, paused=True, oldest_age=timedelta(hours=2, minutes=5)))
    assert found == [("Late: its oldest open message is 2 h 5 min old", True), ("Paused", False)], (
        "the worst first"
    )
    late = replace(WELL, reads_log=True, oldest_age=2 * LATE)
    assert told(late) == [("Late: its oldest open message is 20 min old", True)]
    assert told(replace(late, workers=0)) == [], "it works again at its next run"


MINUTES = timedelta(minutes=5)
SECOND = timedelta(seconds=1)


def test_a_handler_that_runs_far_over_its_usual_time() -> None:
    slow = replace(WELL, in_flight=ONE, running_for=MINUTES, usual=SECOND)
    assert told(slow) == [("A handler has run for 5 min; 95 of 100 messages take 1 s or less", True)]
    assert told(replace(slow, usual=None)) == [("A handler has run for 5 min", True)]
    assert told(replace(slow, usual=40 * SECOND)) == [], "that is usual"
    assert told(replace(slow, running_for=59 * SECOND)) == [], "that is short"
    assert told(replace(slow, workers=0)) == [("No subscriber is alive, and messages wait", True)]


def test_a_worker_whose_threads_are_all_busy() -> None:
    busy = replace(WELL, in_flight=ONE, queued_for=MINUTES, usual=SECOND)
    text = "All threads of a subscriber are busy: a delivered message has waited for 5 min"
    assert told(busy) == [(text, True)]
    assert told(replace(busy, usual=MINUTES)) == []


def test_no_progress() -> None:
    still = replace(WELL, pending=ONE, quiet_for=MINUTES, oldest_age=2 * MINUTES)
    text = "No progress for 5 min, while messages wait and a subscriber is alive"
    assert told(still) == [(text, True)]
    assert told(replace(still, workers=2, waiting=ONE, in_flight=ONE)) == [
        (text.replace("a subscriber is", "2 subscribers are"), True)
    ]
    assert told(replace(still, oldest_age=SECOND)) == [], "there was nothing to do"
    assert told(replace(still, pending=NONE, in_flight=ONE)) == [], "nothing waits"
    assert told(replace(still, usual=MINUTES)) == [], "its handlers take as long"
    assert told(replace(still, waiting=ONE)) == [], "it waits for a retry, in order"
    assert told(replace(still, paused=True)) == [("Paused, and messages wait", True)]


def test_many_dead_letters_at_once() -> None:
    assert told(replace(WELL, dead=Figure(600), dead_lately=Figure(9))) == []
    assert told(replace(WELL, workers=0, dead_lately=Figure(10))) == [
        ("10 dead letters in the last 10 min", True),
        ("No subscriber is alive", False),
    ]
    many = replace(WELL, dead_lately=Figure(200, "at_least"))
    assert told(many) == [("At least 200 dead letters in the last 10 min", True)]


def test_not_registered() -> None:
    assert [bad for _, bad in told(replace(WELL, registered=False, workers=0, paused=True))] == [True]


@pytest.mark.parametrize("reason", HOLD_REASONS)
def test_each_reason_has_its_words(reason: str) -> None:
    """An overdue blocker is a bad alarm, except ``retention``. If nothing is overdue, only ``no_group`` is bad."""
    late = of_blocker(replace(HELD, reason=reason, overdue=timedelta(hours=1)))
    if reason == "retention":
        assert late is None
        return
    assert late is not None
    assert late.is_bad
    assert reason == "no_group" or late.text.endswith("1 h past the retention")
    now = of_blocker(replace(HELD, reason=reason, overdue=timedelta()))
    assert (now is None) == (reason == "collecting")
    if now is not None:
        assert now.is_bad == (reason == "no_group")
        assert "past the retention" not in now.text


def test_who_holds_back_is_named() -> None:
    alarm = of_blocker(replace(HELD, reason="paused", overdue=timedelta(seconds=3)))
    assert alarm is not None
    assert alarm.is_bad
    assert alarm.text == "Deletion waits for group g, which is paused, 3 s past the retention"


def test_topics() -> None:
    lonely, known = KnownTopic("t", ()), KnownTopic("t", ("g",))
    assert [alarm.is_bad for alarm in of_topic(lonely, TOPIC, None)] == [True]
    assert of_topic(lonely, replace(TOPIC, kept=NONE), None) == []
    assert len(of_topic(lonely, replace(TOPIC, kept=NONE, scheduled=ONE), None)) == 1
    assert of_topic(known, TOPIC, []) == []
    assert len(of_topic(known, TOPIC, [HELD, replace(HELD, group="h")])) == 1, "the first of them"
    (behind,) = of_topic(known, TOPIC, None, timedelta(hours=1))
    assert (behind.text, behind.is_bad) == ("Deletion is late by 1 h", False)
    assert of_topic(known, TOPIC, None, timedelta(minutes=1)) == []


def every_alarm() -> set[str]:
    """Return the texts of all kinds of alarms, as the pages show them."""
    groups = [
        replace(WELL, registered=False),
        replace(WELL, registered=False, removing=True),
        replace(WELL, removing=True),
        replace(WELL, workers=0, pending=ONE),
        replace(WELL, workers=0),
        replace(WELL, paused=True, pending=ONE),
        replace(WELL, paused=True),
        replace(WELL, oldest_age=timedelta(hours=1)),
        replace(WELL, dead_lately=Figure(600)),
        replace(WELL, running_for=MINUTES, usual=SECOND),
        replace(WELL, queued_for=MINUTES),
        replace(WELL, pending=ONE, quiet_for=MINUTES, oldest_age=MINUTES),
    ]
    hour = timedelta(hours=1)
    found = [alarm for figures in groups for alarm in of_group(figures, LATE)]
    found += of_topic(KnownTopic("t", ()), TOPIC, None)
    found += of_topic(KnownTopic("t", ("g",)), TOPIC, None, hour)
    holds = (of_blocker(replace(HELD, reason=reason, overdue=hour)) for reason in HOLD_REASONS)
    return {alarm.text for alarm in [*found, *(one for one in holds if one is not None)]}


def test_the_documentation_lists_each_alarm_and_no_other() -> None:
    page = (ROOT / "docs" / "how-to" / "watch-the-queue.md").read_text(encoding="utf-8")
    table = page.partition("## What needs attention")[2].partition("## ")[0]
    listed = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    patterns = {
        one: re.compile(".*".join(map(re.escape, one.split("…"))))
        for one in listed
        if not one.startswith("It says")
    }
    texts = every_alarm()
    assert [text for text in texts if not any(one.match(text) for one in patterns.values())] == []
    assert [name for name, one in patterns.items() if not any(map(one.match, texts))] == []
