"""Sentences that say where a message is for a group, and why it is not delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ..policy.names import REPLIES_SUFFIX
from ..policy.outcomes import (  # fmt: skip
    BEFORE_START,
    DEAD_LETTERED,
    HANDLED,
    NOT_RECORDED,
    REDRIVEN,
    REMOVED,
    SET_ASIDE,
    SKIPPED,
)
from ..results import Inspected
from ..stats.texts import local_time
from .delivery_facts import Facts
from .reasons import HURRY, REDRIVE, START_WORKER, SUBSCRIBE, UNHOLD, Reasons, is_at_the_front, is_held
from .timeline import GroupState, MessageTimeline

EXPLANATIONS = {
    SKIPPED: gettext_lazy("The handler's filter excluded it: no handler received it."),
    DEAD_LETTERED: gettext_lazy(
        "It became a dead letter, which was purged, or was redriven as a message that is now deleted."
    ),
    REDRIVEN: gettext_lazy("It became a dead letter, and was redriven or redelivered."),
    REMOVED: gettext_lazy("It was removed by hand: no handler received it after that."),
    SET_ASIDE: gettext_lazy("Its retry was parked outside the log, and was then moved back or removed."),
    BEFORE_START: gettext_lazy("The group's start position is after it."),
    NOT_RECORDED: gettext_lazy("The group's position is after it, but no delivery is recorded."),
}
"""Explanations for messages that are done although no handler has finished them."""


@dataclass(frozen=True)
class Explanation:
    """The state of a message for one group.

    ``state``: sentences about its state, with their times. ``reasons``: sentences that say why it is not delivered or
    not finished. ``remedy``: a constant of the module ``reasons``; None if there is none. ``first``: the offset of
    the first message that must be finished before, if that is a reason.
    """

    group: str
    state: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    remedy: str | None = None
    first: int | None = None


def status_text(state: GroupState) -> str:
    """Return a sentence about the message's status for the group, without times, or ""."""
    message = state.message
    if not state.is_for:
        return _("It is not for this group.")
    if is_held(state):
        return _("An operator holds it.")
    if state.parked_retry is not None:
        return _("Its retry is parked outside the log until it is due.")
    if message.status == DONE:
        return str(EXPLANATIONS.get(message.outcome or "", ""))
    if message.status == PENDING:
        return _("Not delivered yet.")
    if message.status == WAITING and is_at_the_front(message):
        return _("It is due now, as the next message of its key.")
    return ""


def explain(
    found: MessageTimeline,
    state: GroupState,
    facts: Facts | None,
    *,
    strict: bool | None = None,
    mask: Callable[[Inspected], Inspected] = lambda message: message,
) -> Explanation:
    """Return the explanation for one group.

    ``facts``: of the group, from ``delivery_facts.facts``; None if the message is done. ``strict``: whether the group's
    handler is strict; None if this is unknown. ``mask``: masks a message.
    """
    message = state.message
    sentences = [text for text in (status_text(state), *_times(found, state, facts)) if text]
    if state.is_for and (message.status in (WAITING, DEAD) or state.parked_retry is not None):
        failed = replace(found.message, errors=message.errors, group=state.group, status=message.status)
        sentences += _last_error(mask(failed))
    reasons, remedy, first = Reasons(found, state, facts, strict).all()
    return Explanation(state.group, tuple(sentences), tuple(reasons), remedy, first)


def _last_error(message: Inspected) -> list[str]:
    """Return a sentence about the last failed attempt, if there is one."""
    return [
        _("Attempt %(attempt)s failed: %(error)s")
        % {"attempt": last.attempt or "?", "error": last.error.partition("\n")[0]}
        for last in message.errors[-1:]
    ]


def _times(found: MessageTimeline, state: GroupState, facts: Facts | None) -> Iterator[str]:
    """Yield sentences about the times of the message's deliveries."""
    message = state.message
    if not state.is_for or is_held(state):
        return
    if state.parked_retry is not None:
        values = {"offset": state.parked_retry.offset, "time": local_time(state.parked_retry.available_at)}
        yield _("It is scheduled message %(offset)s, due at %(time)s.") % values
        return
    until = message.invisible_until
    is_due = facts is not None and until is not None and until <= facts.now
    values = {"subscriber": message.delivered_to, "attempt": message.attempts}
    values["time"] = local_time(message.done_at)
    if message.status == DEAD:
        values |= {"offset": message.dead_letter or "", "count": message.failures}
        text = ngettext(
            "It is dead letter %(offset)s since %(time)s, after %(count)s failed attempt.",
            "It is dead letter %(offset)s since %(time)s, after %(count)s failed attempts.",
            message.failures,
        )
        yield text % values if message.done_at else _("It is dead letter %(offset)s.") % values
    elif message.status == DONE and message.outcome == HANDLED:
        yield _("%(subscriber)s finished it at %(time)s, in attempt %(attempt)s.") % values
    elif message.status == DONE and message.done_at is not None:
        yield _("It has been done since %(time)s.") % values
    elif message.status == IN_FLIGHT:
        attempt = message.attempts if facts is None or facts.is_handed else message.attempts + 1
        values |= {"attempt": attempt, "time": local_time(message.delivered_at), "until": local_time(until)}
        yield _("%(subscriber)s has had it since %(time)s, in attempt %(attempt)s.") % values
        if is_due:
            yield _("Its visibility timeout ended at %(until)s.") % values
        else:
            yield _("It is delivered again if not settled by %(until)s.") % values
    elif message.status == WAITING and not is_at_the_front(message):
        values["time"] = local_time(until)
        yield (
            _("Its retry is due since %(time)s.") if is_due else _("Its retry is due at %(time)s.")
        ) % values
    for copy in found.copies:
        if message.outcome == REDRIVEN and copy.offset > message.offset and copy.group in ("", state.group):
            yield _("The new message is %(offset)s.") % {"offset": copy.offset}


def of_message(
    found: MessageTimeline,
    now: datetime,
    workers: int,
    mask: Callable[[Inspected], Inspected] = lambda message: message,
) -> Explanation:
    """Return the explanation of a message that is scheduled, a dead letter, or without a group; else an empty one.

    ``workers``: the number of live subscribers of the topic, of all groups. They move due messages into the log.
    ``mask``: masks a message.
    """
    message = found.message
    values = {"group": message.group or message.target or "", "time": local_time(message.available_at)}
    if message.status == DEAD:
        text = _("It is a dead letter of group %(group)s since %(time)s.")
        state = [text % {**values, "time": local_time(message.done_at)}, *_last_error(mask(message))]
        return Explanation("", tuple(state), (), REDRIVE)
    if message.status == SCHEDULED:
        state = []
        if found.original_offset is not None:
            values["offset"] = str(found.original_offset)
            state.append(_("It is the parked retry of message %(offset)s for group %(group)s.") % values)
        elif message.target:
            state.append(_("It is only for group %(group)s.") % values)
        if message.is_held:
            return Explanation(message.target or "", (*state, _("An operator holds it.")), (), UNHOLD)
        if message.available_at > now:
            text = _("It is scheduled until %(time)s. Then a subscriber moves it into the log.")
            return Explanation(message.target or "", (*state, text % values), (), HURRY)
        state.append(
            _("It is due since %(time)s, and a subscriber of the topic moves it into the log.") % values
        )
        if workers:
            return Explanation("", tuple(state))
        return Explanation("", tuple(state), (_("No subscriber of the topic is alive."),), START_WORKER)
    if message.target and not found.more_groups and not any(one.is_for for one in found.group_states):
        text = _("It is only for group %(group)s, which is not registered.") % values
        return Explanation(message.target, (text,), (), SUBSCRIBE)
    if not found.group_states and not found.stored_in.endswith(REPLIES_SUFFIX):
        text = _("No group is registered for the topic. The message is kept until a group is registered.")
        return Explanation("", (text,), (), SUBSCRIBE)
    return Explanation("", ())
