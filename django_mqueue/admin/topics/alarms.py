"""Alarms in words, derived from the figures of a topic or a group. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ...drawing.scales import age, duration
from ...inspect import GroupFigures, Hold, KnownTopic, TopicFigures
from ...stats.results import LATELY
from ..base.display import count

NOTHING = timedelta()
A_WHILE = timedelta(minutes=10)
"""Late deletion is an alarm only above this delay."""
DEAD_LETTERS = 10
"""From this number within ``LATELY``, dead letters are an alarm: they probably have a common cause."""
TIMES_AS_LONG = 10
"""A handler is too slow if it runs longer than the usual time multiplied by this."""
LEAST = timedelta(seconds=60)
"""A shorter time is never an alarm, even if the usual time is very short."""


@dataclass(frozen=True)
class Alarm:
    """An alarm. If ``is_bad`` is false, it is only a note: the operator need not act."""

    text: str
    is_bad: bool = True


def of_group(figures: GroupFigures, late_after: timedelta) -> list[Alarm]:
    """Return the alarms of a group, bad ones first. ``late_after``: the age at which an open message is late."""
    if not figures.registered:
        if figures.removing:
            text = "Being removed: it is not registered, and its delivery state is being deleted"
            return [Alarm(text, is_bad=False)]
        return [Alarm("Not registered: the group receives nothing, and deletion does not wait for it")]
    waits = any(one.value for one in (figures.pending, figures.waiting, figures.in_flight))
    also = ", and messages wait" if waits else ""
    oldest = figures.oldest_age or NOTHING
    dead_letters = count(figures.dead_lately, "dead letter").capitalize()
    checks = [
        (figures.removing, "Resetting: nothing is delivered until its old delivery state is deleted", False),
        (figures.paused, f"Paused{also}", waits),
        (not figures.workers, f"No subscriber is alive{also}", waits),
        (oldest > late_after, f"Late: its oldest open message is {age(oldest)} old", True),
        (figures.dead_lately.value >= DEAD_LETTERS, f"{dead_letters} in the last {age(LATELY)}", True),
    ]
    if figures.workers:
        checks += [(applies, text, True) for applies, text in _of_handlers(figures)]
    found = [Alarm(text, is_bad) for applies, text, is_bad in checks if applies]
    return sorted(found, key=lambda alarm: not alarm.is_bad)


def _of_handlers(figures: GroupFigures) -> list[tuple[bool, str]]:
    """Return (applies, text) of the alarms about live workers: slow handlers, busy threads, no progress."""
    far = max(LEAST, TIMES_AS_LONG * (figures.usual or NOTHING))
    usual = ""
    if figures.usual is not None:
        usual = f"; 95 of 100 messages take {duration(figures.usual / timedelta(milliseconds=1))} or less"
    running, queued = figures.running_for or NOTHING, figures.queued_for or NOTHING
    # A paused group makes no progress. Neither does a group that waits for retries and has no message in flight.
    has_work = figures.pending.value and (figures.in_flight.value or not figures.waiting.value)
    quiet = min(figures.quiet_for or NOTHING, figures.oldest_age or NOTHING)
    subscribers = "a subscriber is" if figures.workers == 1 else f"{figures.workers} subscribers are"
    return [
        (running > far, f"A handler has run for {age(running)}{usual}"),
        (queued > far, f"All threads of a worker are busy: a delivered message has waited for {age(queued)}"),
        (
            bool(has_work and not figures.paused and quiet > far),
            f"No progress for {age(quiet)}, while messages wait and {subscribers} alive",
        ),
    ]


def of_topic(
    known: KnownTopic,
    figures: TopicFigures | None,
    holds: Sequence[Hold] | None,
    overdue: timedelta = NOTHING,
) -> list[Alarm]:
    """Return the alarms of a topic.

    ``holds``: the retention blockers, oldest first, or None if they were not queried. Without them the function reports
    only ``overdue``: how far the oldest message is past its retention. For a topic without groups, the only alarm is
    that nothing is consumed or deleted.
    """
    if not known.groups:
        text = "No group: no group consumes the topic, and none of its messages are ever deleted"
        is_empty = figures is not None and not figures.kept.value and not figures.scheduled.value
        return [] if is_empty else [Alarm(text)]
    if holds is None:
        return [Alarm(f"Deletion is late by {age(overdue)}", is_bad=False)] if overdue > A_WHILE else []
    return [alarm for hold in holds[:1] if (alarm := of_hold(hold)) is not None]


def of_hold(hold: Hold) -> Alarm | None:
    """Return the alarm for a retention blocker, or None if the blocker is normal."""
    is_late = hold.overdue > A_WHILE
    if hold.reason == "retention" or (hold.reason == "collecting" and not is_late):
        return None
    if hold.reason == "no_group":
        return Alarm("Nothing is deleted: no group is registered")
    bad = is_late or (
        hold.reason in ("resetting", "paused", "no_worker", "no_collector") and hold.overdue > NOTHING
    )
    by = f", {age(hold.overdue)} past the retention" if hold.overdue > NOTHING else ""
    if hold.reason == "no_collector":
        return Alarm(f"Nothing is deleted while no worker of any group is alive{by}", is_bad=bad)
    if hold.reason == "collecting":
        return Alarm(f"Deletion is late{by}", is_bad=bad)
    why = {
        "resetting": "whose reset is not finished",
        "paused": "which is paused",
        "no_worker": "which has no live subscriber",
        "waiting": "whose oldest message waits for a retry",
        "in_flight": "which is handling its oldest message",
        "pending": "which has not received its oldest message yet",
        "settling": "whose watermark waits for a transaction that publishes to this topic, or to one of the same gate",
    }[hold.reason]
    return Alarm(f"Deletion waits for group {hold.group}, {why}{by}", is_bad=bad)
