"""Alarms in words, derived from the figures of a topic or a group. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .results import LATELY, GroupFigures, Hold, KnownTopic, TopicFigures
from .texts import age, duration, number

ZERO = timedelta()
LATE_DELETION_AFTER = timedelta(minutes=10)
"""Late deletion is an alarm only above this delay."""
DEAD_LETTERS = 10
"""From this number within ``LATELY``, dead letters are an alarm: they probably have a common cause."""
SLOW_FACTOR = 10
"""A handler is too slow if it runs longer than the usual time multiplied by this."""
ALARM_TIME_MIN = timedelta(seconds=60)
"""A shorter time is never an alarm, even if the usual time is very short."""
WAITS_FOR_GROUP = {
    "resetting": gettext_lazy("Deletion waits for group %(group)s, whose reset is not finished"),
    "paused": gettext_lazy("Deletion waits for group %(group)s, which is paused"),
    "no_worker": gettext_lazy("Deletion waits for group %(group)s, which has no live subscriber"),
    "waiting": gettext_lazy(
        "Deletion waits for group %(group)s, whose oldest message waits for a retry or is held"
    ),
    "in_flight": gettext_lazy("Deletion waits for group %(group)s, which is handling its oldest message"),
    "pending": gettext_lazy(
        "Deletion waits for group %(group)s, which has not received its oldest message yet"
    ),
    "settling": gettext_lazy(
        "Deletion waits for group %(group)s, whose watermark has not moved yet; a transaction that"
        " publishes may still be open"
    ),
}
"""The texts of retention blockers that are groups, by reason."""


@dataclass(frozen=True)
class Alarm:
    """An alarm. If ``is_bad`` is false, it is only a note: the operator need not act."""

    text: str
    is_bad: bool = True


def of_group(figures: GroupFigures, late_after: timedelta) -> list[Alarm]:
    """Return the alarms of a group, bad ones first. ``late_after``: the age at which an open message is late."""
    if not figures.registered:
        if figures.removing:
            text = _("Being removed: it is not registered, and its delivery state is being deleted")
            return [Alarm(text, is_bad=False)]
        return [Alarm(_("Not registered: the group receives nothing, and deletion does not wait for it"))]
    waits = any(one.value for one in (figures.pending, figures.waiting, figures.in_flight))
    oldest = figures.oldest_age or ZERO
    is_idle_reader = figures.reads_log and not figures.workers  # Such as an archive between two runs.
    resetting = _("Resetting: nothing is delivered until its old delivery state is deleted")
    paused = _("Paused, and messages wait") if waits else _("Paused")
    no_subscriber = _("No subscriber is alive, and messages wait") if waits else _("No subscriber is alive")
    late = _("Late: its oldest open message is %(age)s old") % {"age": age(oldest)}
    checks = [
        (figures.removing, resetting, False),
        (figures.paused, paused, waits),
        (not figures.workers and not is_idle_reader, no_subscriber, waits),
        (oldest > late_after and not is_idle_reader, late, True),
        (figures.dead_lately.value >= DEAD_LETTERS, _dead_letters(figures), True),
    ]
    if figures.workers:
        checks += [(applies, text, True) for applies, text in _of_handlers(figures)]
    found = [Alarm(text, is_bad) for applies, text, is_bad in checks if applies]
    return sorted(found, key=lambda alarm: not alarm.is_bad)


def _dead_letters(figures: GroupFigures) -> str:
    found = figures.dead_lately
    text = ngettext(
        "%(count)s dead letter in the last %(time)s",
        "%(count)s dead letters in the last %(time)s",
        found.value,
    )
    return capfirst(text % {"count": number(found), "time": age(LATELY)})


def _of_handlers(figures: GroupFigures) -> list[tuple[bool, str]]:
    """Return (applies, text) of the alarms about live workers: slow handlers, busy threads, no progress."""
    longest = max(ALARM_TIME_MIN, SLOW_FACTOR * (figures.usual or ZERO))
    running, queued = figures.running_for or ZERO, figures.queued_for or ZERO
    slow = _("A handler has run for %(time)s") % {"time": age(running)}
    if figures.usual is not None:
        slow = _("%(alarm)s; 95 of 100 messages take %(time)s or less") % {
            "alarm": slow, "time": duration(figures.usual),
        }  # fmt: skip
    busy = _("All threads of a subscriber are busy: a delivered message has waited for %(time)s")
    # No alarm for a paused group, or while a strict handler may wait for a retry: then nothing is in flight.
    has_work = figures.pending.value and (figures.in_flight.value or not figures.waiting.value)
    quiet = min(figures.quiet_for or ZERO, figures.oldest_age or ZERO)
    no_progress = ngettext(
        "No progress for %(time)s, while messages wait and a subscriber is alive",
        "No progress for %(time)s, while messages wait and %(count)s subscribers are alive",
        figures.workers,
    )
    return [
        (running > longest, slow),
        (queued > longest, busy % {"time": age(queued)}),
        (
            bool(has_work and not figures.paused and quiet > longest),
            no_progress % {"time": age(quiet), "count": figures.workers},
        ),
    ]


def of_topic(
    known: KnownTopic,
    figures: TopicFigures,
    blockers: Sequence[Hold] | None,
    overdue: timedelta = ZERO,
) -> list[Alarm]:
    """Return the alarms of a topic.

    ``blockers``: the retention blockers, oldest first, or None if they were not queried. Without them the function
    reports only ``overdue``: how far the oldest message is past its retention. For a topic without groups, the only
    alarm is that nothing is consumed or deleted.
    """
    if not known.groups:
        text = _("No group: no group consumes the topic, and none of its messages are ever deleted")
        is_empty = not figures.kept.value and not figures.scheduled.value
        return [] if is_empty else [Alarm(text)]
    if blockers is None:
        text = _("Deletion is late by %(time)s") % {"time": age(overdue)}
        return [Alarm(text, is_bad=False)] if overdue > LATE_DELETION_AFTER else []
    return [alarm for blocker in blockers[:1] if (alarm := of_blocker(blocker)) is not None]


def of_blocker(blocker: Hold) -> Alarm | None:
    """Return the alarm for a retention blocker, or None if the blocker is normal."""
    reason, overdue = blocker.reason, blocker.overdue
    is_late = overdue > LATE_DELETION_AFTER
    if reason == "retention" or (reason == "collecting" and not is_late):
        return None
    if reason == "no_group":
        return Alarm(_("Nothing is deleted: no group is registered"))
    if reason == "no_collector":
        text = _("Nothing is deleted while no subscriber of any group is alive")
    elif reason == "collecting":
        text = _("Deletion is late")
    else:
        text = WAITS_FOR_GROUP[reason] % {"group": blocker.group}
    if overdue > ZERO:
        text = _("%(alarm)s, %(time)s past the retention") % {"alarm": text, "time": age(overdue)}
    needs_action = reason in ("resetting", "paused", "no_worker", "no_collector") and overdue > ZERO
    return Alarm(text, is_bad=is_late or needs_action)
