"""Sentences that say where a message is for a group, and why it is not delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..policy.durations import moment
from ..policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING, Inspected
from ..policy.names import key_of
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
from ..stats.texts import age
from ..store.queries.one_message import Ahead
from .obstacles import Facts
from .timeline import GroupView, MessageTimeline

EXPLANATIONS = {
    SKIPPED: gettext_lazy("The handler's filter excluded it: no handler received it."),
    DEAD_LETTERED: gettext_lazy(
        "It became a dead letter, which was purged, or was redriven as a message that is now deleted."
    ),
    REDRIVEN: gettext_lazy("It became a dead letter, and was redriven."),
    REMOVED: gettext_lazy("It was removed by hand: no handler received it after that."),
    SET_ASIDE: gettext_lazy("Its retry was parked outside the log, and was then moved back or removed."),
    BEFORE_START: gettext_lazy("The group's start position is after it."),
    NOT_RECORDED: gettext_lazy("The group's position is after it, but no delivery is recorded."),
}
"""Explanations for messages that are done although no handler has finished them."""

RESUME, START_WORKER, RELEASE, REDRIVE, RESET, SUBSCRIBE, UNHOLD, HURRY, LOOK_AT_FIRST = (
    "resume", "start_worker", "release", "redrive", "reset", "subscribe", "unhold", "hurry", "look_at_first",
)  # fmt: skip
"""The remedies of an explanation."""
LONG = timedelta(minutes=1)
"""A delivery in flight for longer than this may hang."""


@dataclass(frozen=True)
class Explanation:
    """The state of a message for one group.

    ``state``: sentences about its state, with their times. ``reasons``: sentences that say why it is not delivered or
    not finished. ``remedy``: what helps; None if nothing is needed. ``first``: the offset of the first message that
    must be finished before, if that is a reason.
    """

    group: str
    state: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    remedy: str | None = None
    first: int | None = None

    @property
    def text(self) -> str:
        return " ".join([*self.state, *self.reasons])


def status_text(state: GroupView) -> str:
    """Return a sentence about the message's status for the group, without times, or ""."""
    view = state.view
    if not state.is_for:
        return _("It is not for this group.")
    if _is_held(state):
        return _("An operator holds it.")
    if state.parked_retry is not None:
        return _("Its retry is parked outside the log until it is due.")
    if view.status == DONE:
        return str(EXPLANATIONS.get(view.outcome or "", ""))
    if view.status == PENDING:
        return _("Not delivered yet.")
    if view.status == WAITING and is_at_the_front(view):
        return _("It is due now, as the next message of its key.")
    return ""


def _is_held(state: GroupView) -> bool:
    return state.view.is_held or (state.parked_retry is not None and state.parked_retry.is_held)


def is_at_the_front(view: Inspected) -> bool:
    """Return whether the message was sent to the front of its key: its time is then almost 0."""
    return view.invisible_until is not None and view.invisible_until.timestamp() < 1


def explain(
    found: MessageTimeline,
    state: GroupView,
    facts: Facts | None,
    *,
    strict: bool | None = None,
    shown: Callable[[Inspected], Inspected] = lambda message: message,
) -> Explanation:
    """Return the explanation for one group.

    ``facts``: of the group, from ``obstacles.facts``; None if the message is done. ``strict``: whether the group's
    handler is strict; None if this is unknown. ``shown``: masks a message.
    """
    view = state.view
    sentences = [text for text in (status_text(state), *_times(found, state, facts)) if text]
    if state.is_for and (view.status in (WAITING, DEAD) or state.parked_retry is not None):
        seen = shown(replace(found.message, errors=view.errors, group=state.group, status=view.status))
        sentences += _last_error(seen)
    reasons, remedy, first = _Reasons(found, state, facts, strict).all()
    return Explanation(state.group, tuple(sentences), tuple(reasons), remedy, first)


def _last_error(message: Inspected) -> list[str]:
    """Return a sentence about the last failed attempt, if there is one."""
    return [
        _("Attempt %(attempt)s failed: %(error)s")
        % {"attempt": last.attempt or "?", "error": last.error.partition("\n")[0]}
        for last in message.errors[-1:]
    ]


def _times(found: MessageTimeline, state: GroupView, facts: Facts | None) -> Iterator[str]:
    """Yield sentences about the times of the message's deliveries."""
    view = state.view
    if not state.is_for or _is_held(state):
        return
    if state.parked_retry is not None:
        values = {"offset": state.parked_retry.offset, "time": time(state.parked_retry.available_at)}
        yield _("It is scheduled message %(offset)s, due at %(time)s.") % values
        return
    values = {"subscriber": view.delivered_to, "attempt": view.attempts, "time": time(view.done_at)}
    if view.status == DEAD:
        values |= {"offset": view.dead_letter or "", "count": view.failures}
        text = ngettext(
            "It is dead letter %(offset)s since %(time)s, after %(count)s failed attempt.",
            "It is dead letter %(offset)s since %(time)s, after %(count)s failed attempts.",
            view.failures,
        )
        yield text % values
    elif view.status == DONE and view.outcome == HANDLED:
        yield _("%(subscriber)s finished it at %(time)s, in attempt %(attempt)s.") % values
    elif view.status == DONE and view.done_at is not None:
        yield _("It has been done since %(time)s.") % values
    elif view.status == IN_FLIGHT:
        attempt = view.attempts if facts is None or facts.is_handed else view.attempts + 1
        values |= {"attempt": attempt, "time": time(view.delivered_at), "until": time(view.invisible_until)}
        yield _("%(subscriber)s has had it since %(time)s, in attempt %(attempt)s.") % values
        if facts is not None and view.invisible_until is not None and view.invisible_until <= facts.now:
            yield _("Its visibility timeout ended at %(until)s.") % values
        else:
            yield _("It is delivered again if not settled by %(until)s.") % values
    elif view.status == WAITING and not is_at_the_front(view):
        values["time"] = time(view.invisible_until)
        is_due = facts is not None and view.invisible_until is not None and view.invisible_until <= facts.now
        yield (
            _("Its retry is due since %(time)s.") if is_due else _("Its retry is due at %(time)s.")
        ) % values
    for copy in found.copies:
        if view.outcome == REDRIVEN and copy.group in ("", state.group):
            yield _("The redriven message is %(offset)s.") % {"offset": copy.offset}


class _Reasons:
    """The reasons why a message is open for a group."""

    def __init__(
        self, found: MessageTimeline, state: GroupView, facts: Facts | None, strict: bool | None
    ) -> None:
        self.found, self.state, self.view, self.strict = found, state, state.view, strict
        self.facts = facts

    def all(self) -> tuple[list[str], str | None, int | None]:
        """Return the sentences, the remedy, and the offset of the first message before it."""
        facts, view = self.facts, self.view
        if not self.state.is_for:
            return [], None, None
        if view.status == DEAD:
            return [], REDRIVE, None
        if view.status == DONE and self.state.parked_retry is None:
            return [], RESET if view.outcome == BEFORE_START else None, None
        if facts is None:
            return [], None, None
        if stopped := self._stopped(facts):
            return stopped
        if view.status == IN_FLIGHT:
            return self._in_flight(facts)
        if _is_held(self.state):
            return [], UNHOLD, None
        if self.state.parked_retry is not None or self._waits(facts):
            return [], HURRY, None
        return self._not_delivered(facts)

    def _waits(self, facts: Facts) -> bool:
        until = self.view.invisible_until
        return self.view.status == WAITING and until is not None and until > facts.now

    def _stopped(self, facts: Facts) -> tuple[list[str], str | None, int | None] | None:
        """Return the reason why the group gets no messages at all, if there is one."""
        if facts.resetting:
            return (
                [_("The group is being reset: nothing is delivered until its old state is deleted.")],
                None,
                None,
            )
        if self.state.is_paused:
            return [paused_text(facts)], RESUME, None
        if facts.reads_log:
            return [_("The group reads the log itself: nothing is delivered to it.")], None, None
        return None

    def _in_flight(self, facts: Facts) -> tuple[list[str], str | None, int | None]:
        values = {"subscriber": self.view.delivered_to, "owner": facts.owner}
        if facts.is_orphan:
            text = _("%(subscriber)s no longer holds the lease of the partition, and cannot finish it.")
            next_ = _("The next holder of the lease delivers it again, alone.")
            return [text % values, next_, *self._lease(facts)], None if facts.workers else START_WORKER, None
        if not facts.workers:
            return [*self._lease(facts), no_worker_text(facts)], START_WORKER, None
        sentences = [
            _("A handler has it.") if facts.is_handed else _("It waits for a free thread of the subscriber.")
        ]
        if facts.is_alone:
            sentences.append(_("It is in quarantine and runs alone, because a worker may have died of it."))
        if facts.is_expired:
            sentences += self._lease(facts)
        at = self.view.delivered_at
        return sentences, RELEASE if at is not None and facts.now - at > LONG else None, None

    def _not_delivered(self, facts: Facts) -> tuple[list[str], str | None, int | None]:
        ahead = facts.ahead
        if not facts.workers:
            return [no_worker_text(facts), *self._ahead(ahead)], START_WORKER, None
        sentences = [*self._ahead(ahead), *self._lease(facts)]
        if ahead is None and facts.owner and not facts.is_expired:
            sentences.append(_("Nothing holds it back: it is delivered when the subscriber has room for it."))
        if ahead is not None and self.strict is not False and self._has_key:
            return sentences, LOOK_AT_FIRST, ahead.first
        return sentences, None, None

    @property
    def _has_key(self) -> bool:
        return key_of(self.found.partition) is not None

    def _ahead(self, ahead: Ahead | None) -> Iterator[str]:
        if ahead is None:
            return
        values = {"count": f"{ahead.opened:,}{'+' if ahead.is_partial else ''}", "first": ahead.first}
        text = ngettext(
            "%(count)s earlier message of its partition is not finished: %(first)s.",
            "%(count)s earlier messages of its partition are not finished, the first is %(first)s.",
            ahead.opened,
        )
        yield text % values
        if self._has_key:
            if self.strict:
                yield _("The handler is strict: it gets this message after message %(first)s.") % values
            elif self.strict is None:
                yield _("If the handler is strict, it gets this message after message %(first)s.") % values
        values |= {"subscriber": ahead.delivered_to, "since": time(moment(ahead.delivered_at))}
        values["time"] = time(moment(ahead.invisible_until))
        if ahead.in_flight is None:
            yield _("Message %(first)s is not delivered yet.") % values
        elif ahead.in_flight:
            yield _("%(subscriber)s has had message %(first)s since %(since)s.") % values
        else:
            yield _("The retry of message %(first)s is due at %(time)s.") % values

    def _lease(self, facts: Facts) -> Iterator[str]:
        if not facts.owner or facts.renewed_at is None:
            yield _("No subscriber holds the lease of its partition.")
            return
        values = {
            "owner": facts.owner,
            "age": age(facts.now - facts.renewed_at),
            "since": time(facts.leased_at),
        }
        if facts.is_expired:
            text = _("The lease of its partition has expired: %(owner)s renewed it last %(age)s ago.")
        else:
            text = _(
                "%(owner)s has held the lease of its partition since %(since)s, and renewed it %(age)s ago."
            )
        yield text % values


def of_message(
    found: MessageTimeline,
    now: datetime,
    workers: int,
    shown: Callable[[Inspected], Inspected] = lambda message: message,
) -> Explanation:
    """Return the explanation of a message itself, whatever its groups: it is scheduled, a dead letter, or has no group.

    ``workers``: the number of live subscribers of the topic, of all groups. They move due messages into the log.
    ``shown``: masks a message.
    """
    message = found.message
    values = {"group": message.group or message.target or "", "time": time(message.available_at)}
    if message.status == DEAD:
        text = _("It is a dead letter of group %(group)s since %(time)s.")
        state = [text % {**values, "time": time(message.done_at)}, *_last_error(shown(message))]
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
    if message.target and not found.more_groups and not any(view.is_for for view in found.group_views):
        text = _("It is only for group %(group)s, which is not registered.") % values
        return Explanation(message.target, (text,), (), SUBSCRIBE)
    if not found.group_views:
        text = _("No group is registered for the topic. The message is kept until a group is registered.")
        return Explanation("", (text,), (), SUBSCRIBE)
    return Explanation("", ())


def paused_text(facts: Facts) -> str:
    """Return a sentence about the pause of a group: who, when and why, if that was recorded."""
    if facts.pause is None:
        return _("The group has been paused since %(time)s or earlier.") % {"time": time(facts.since)}
    values = {"time": time(facts.pause.at), "by": facts.pause.by, "why": facts.pause.why}
    if facts.pause.why:
        return _("The group has been paused since %(time)s, by %(by)s: %(why)s.") % values
    return _("The group has been paused since %(time)s, by %(by)s.") % values


def no_worker_text(facts: Facts) -> str:
    if facts.last_seen is None:
        return _("No subscriber of the group is alive.")
    name, at = facts.last_seen
    values = {"subscriber": name, "time": time(at)}
    return _("No subscriber of the group is alive. The last was %(subscriber)s, until %(time)s.") % values


def time(when: datetime | None) -> str:
    """Return a time in the current time zone: ``2026-03-01 08:00:00 UTC``."""
    if when is None:
        return "?"
    return f"{when.astimezone(timezone.get_current_timezone()):%Y-%m-%d %H:%M:%S %Z}"
