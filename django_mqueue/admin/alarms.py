"""What somebody should be woken for, in words: read off the figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..inspect import GroupFigures, Hold, KnownTopic, TopicFigures
from .scales import age

NOW = timedelta()


@dataclass(frozen=True)
class Alarm:
    """``is_bad``: something must be done; else it is only good to know."""

    text: str
    is_bad: bool = True


def of_group(figures: GroupFigures, late_after: timedelta) -> list[Alarm]:
    """The worst first."""
    if not figures.registered:
        return [Alarm("Not registered: it gets nothing, and deletion does not wait for it")]
    found = []
    waits = any(one.value for one in (figures.pending, figures.waiting, figures.in_flight))
    if figures.paused:
        found.append(Alarm("Paused, and messages wait" if waits else "Paused", is_bad=waits))
    if not figures.workers:
        found.append(
            Alarm("No worker is alive, and messages wait" if waits else "No worker is alive", is_bad=waits)
        )
    if figures.oldest_age is not None and figures.oldest_age > late_after:
        found.append(Alarm(f"Late: its oldest open message is {age(figures.oldest_age)} old"))
    return sorted(found, key=lambda alarm: not alarm.is_bad)


def of_topic(known: KnownTopic, figures: TopicFigures | None, holds: Sequence[Hold]) -> list[Alarm]:
    """``holds``: the oldest first. Of a topic without groups nothing more is said than that."""
    if not known.groups:
        held = figures is None or figures.kept.value or figures.scheduled.value
        return [Alarm("No group: nobody consumes it, and nothing of it is ever deleted")] if held else []
    return [alarm for hold in holds[:1] if (alarm := of_hold(hold)) is not None]


def of_hold(hold: Hold) -> Alarm | None:
    """What keeps the oldest message of a topic; None where that is as it should be."""
    if hold.reason == "retention" or (hold.reason == "collecting" and hold.overdue < timedelta(minutes=10)):
        return None
    if hold.reason == "no_group":
        return Alarm("Nothing is deleted: no group is registered")
    bad = hold.reason in ("paused", "no_worker") and hold.overdue > NOW
    since = f", {age(hold.overdue)} over its retention" if hold.overdue > NOW else ""
    if hold.reason == "settling":
        return Alarm(f"Deletion waits for a transaction that publishes to end{since}", is_bad=bool(since))
    if hold.reason == "no_collector":
        return Alarm(f"Nothing is deleted while no worker of any group is alive{since}", is_bad=bool(since))
    if hold.reason == "collecting":
        return Alarm(f"Deletion is behind{since}")
    why = {
        "paused": "which is paused",
        "no_worker": "of which no worker is alive",
        "waiting": "whose oldest message waits for a retry",
        "in_flight": "which is at work on its oldest message",
        "pending": "which was not given its oldest message yet",
    }[hold.reason]
    name = "a group" if hold.group is None else f"group {hold.group}"
    return Alarm(f"Deletion waits for {name}, {why}{since}", is_bad=bad)
