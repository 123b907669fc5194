"""The reasons why a message is not delivered to a group or not finished, as sentences, and the remedy for each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..policy.durations import moment
from ..policy.message_query import DEAD, DONE, IN_FLIGHT, WAITING
from ..policy.names import key_of, pause_of
from ..policy.outcomes import BEFORE_START, HELD_UNTIL
from ..results import Inspected
from ..stats.texts import age, duration, local_time
from ..store.queries.one_message import MessagesAhead
from .delivery_facts import ROWS, Facts
from .timeline import GroupState, MessageTimeline

RESUME, START_WORKER, RELEASE, REDRIVE, RESET, SUBSCRIBE, UNHOLD, HURRY, LOOK_AT_FIRST = (
    "resume", "start_worker", "release", "redrive", "reset", "subscribe", "unhold", "hurry", "look_at_first",
)  # fmt: skip
"""The remedies of an explanation."""
LONG = timedelta(minutes=1)
"""A delivery in flight for longer than this may hang."""


def is_held(state: GroupState) -> bool:
    return state.message.is_held or (state.parked_retry is not None and state.parked_retry.is_held)


def is_at_the_front(message: Inspected) -> bool:
    """Return whether the message was sent to the front of its key: its due time is then almost 0."""
    return is_front_time(message.invisible_until)


def is_front_time(when: datetime | None) -> bool:
    return when is not None and when.timestamp() < 1


class Reasons:
    """The reasons why a message is open for a group."""

    def __init__(
        self, found: MessageTimeline, state: GroupState, facts: Facts | None, strict: bool | None
    ) -> None:
        self.found, self.state, self.message, self.strict = found, state, state.message, strict
        self.facts = facts

    def all(self) -> tuple[list[str], str | None, int | None]:
        """Return the sentences, the remedy, and for ``LOOK_AT_FIRST`` the offset of the message to finish first."""
        facts, message = self.facts, self.message
        if not self.state.is_for:
            return [], None, None
        if message.status == DEAD:
            return [], REDRIVE, None
        if message.status == DONE and self.state.parked_retry is None:
            return [], RESET if message.outcome == BEFORE_START else None, None
        if facts is None:
            return [], None, None
        if stopped := self._stopped(facts):
            return stopped
        if message.status == IN_FLIGHT:
            return self._in_flight(facts)
        if is_held(self.state):
            return [], UNHOLD, None
        parked = self.state.parked_retry
        if parked is not None and parked.available_at <= facts.now and not facts.workers:
            return [no_worker_text(facts)], START_WORKER, None
        if parked is not None or self._waits(facts):
            return [], HURRY, None
        return self._not_delivered(facts)

    def _waits(self, facts: Facts) -> bool:
        until = self.message.invisible_until
        return self.message.status == WAITING and until is not None and until > facts.now

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
        values = {"subscriber": self.message.delivered_to, "owner": facts.owner}
        if facts.is_orphan:
            text = _("%(subscriber)s has lost the lease of the partition, and cannot finish the message.")
            next_ = (
                _("The next holder of the lease delivers it again, alone.")
                if facts.is_handed
                else _("The next holder of the lease delivers it again.")
            )
            return [text % values, next_, *self._lease(facts)], None if facts.workers else START_WORKER, None
        if not facts.workers:
            return [*self._lease(facts), no_worker_text(facts)], START_WORKER, None
        sentences = [
            _("A handler has it.") if facts.is_handed else _("It waits for a free thread of the subscriber.")
        ]
        if facts.is_quarantined:
            sentences.append(_("It is in quarantine and runs alone, because a worker may have died of it."))
        if facts.is_expired:
            sentences += self._lease(facts)
        at = self.message.delivered_at
        if at is None or facts.now - at <= LONG:
            return sentences, None, None
        sentences.append(
            _("If the handler hangs, release the partition. If it still works, two handlers run at once.")
        )
        return sentences, RELEASE, None

    def _not_delivered(self, facts: Facts) -> tuple[list[str], str | None, int | None]:
        ahead = facts.ahead
        if not facts.workers:
            return [no_worker_text(facts), *self._ahead(ahead)], START_WORKER, None
        sentences = [*self._ahead(ahead), *self._lease(facts)]
        if ahead is None and facts.owner and not facts.is_expired:
            text = _("Nothing holds it back: it is delivered when the subscriber has room for it.")
            if pause := pause_of(self.found.partition):
                text = _("Its limit starts a job at least %(time)s after the end of the previous one.")
                text %= {"time": duration(timedelta(milliseconds=pause))}
            sentences.append(text)
        if ahead is not None and ahead.opened and self.strict is not False and self._has_key:
            return sentences, LOOK_AT_FIRST, ahead.first
        return sentences, None, None

    @property
    def _has_key(self) -> bool:
        return key_of(self.found.partition) is not None

    def _ahead(self, ahead: MessagesAhead | None) -> Iterator[str]:
        if ahead is None:
            return
        if not ahead.opened:
            text = _(
                "The first %(count)s earlier messages of its partition are finished. Others were not"
                " examined."
            )
            yield text % {"count": f"{ROWS:,}"}
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
        values |= {"subscriber": ahead.delivered_to, "since": local_time(moment(ahead.delivered_at))}
        values["time"] = local_time(moment(ahead.invisible_until))
        if ahead.in_flight is None:
            yield _("Message %(first)s is not delivered yet.") % values
        elif ahead.in_flight:
            yield _("%(subscriber)s has had message %(first)s since %(since)s.") % values
        elif ahead.invisible_until == HELD_UNTIL:
            yield _("An operator holds message %(first)s.") % values
        elif is_front_time(moment(ahead.invisible_until)):
            yield _("Message %(first)s is due now.") % values
        else:
            yield _("The retry of message %(first)s is due at %(time)s.") % values

    def _lease(self, facts: Facts) -> Iterator[str]:
        if not facts.owner or facts.renewed_at is None:
            yield _("No subscriber holds the lease of its partition.")
            return
        values = {
            "owner": facts.owner,
            "age": age(facts.now - facts.renewed_at),
            "since": local_time(facts.leased_at),
        }
        if facts.is_expired:
            text = _("The lease of its partition has expired: %(owner)s renewed it last %(age)s ago.")
        else:
            text = _(
                "%(owner)s has held the lease of its partition since %(since)s, and renewed it %(age)s ago."
            )
        yield text % values


def paused_text(facts: Facts) -> str:
    """Return a sentence about the pause of a group, with its author and reason if they were recorded."""
    if facts.pause is None:
        return _("The group has been paused since %(time)s or earlier.") % {"time": local_time(facts.since)}
    values = {"time": local_time(facts.pause.at), "by": facts.pause.by, "why": facts.pause.why}
    if facts.pause.why:
        return _("The group has been paused since %(time)s, by %(by)s: %(why)s.") % values
    return _("The group has been paused since %(time)s, by %(by)s.") % values


def no_worker_text(facts: Facts) -> str:
    if facts.last_seen is None:
        return _("No subscriber of the group is alive.")
    name, at = facts.last_seen
    values = {"subscriber": name, "time": local_time(at)}
    return _("No subscriber of the group is alive. The last was %(subscriber)s, until %(time)s.") % values
