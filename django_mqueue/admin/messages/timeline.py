"""The page of one message: its content, its status for each group, and its failed attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...browse.timeline import GroupView, MessageTimeline, Related, message_timeline
from ...inspect import FailedAttempt, Inspected
from ...policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ...policy.outcomes import (  # fmt: skip
    BEFORE_START,
    DEAD_LETTERED,
    NOT_RECORDED,
    REDRIVEN,
    REMOVED,
    SET_ASIDE,
    SKIPPED,
)
from ..base.display import EMPTY, moment, printable
from ..base.forms import parse_offset
from ..base.urls import allowed_url, link, page_url
from ..base.views import QueueView
from . import payloads
from .masking import sees_all, shown
from .message_list import status_badge

GROUPS = 200
ERRORS = 100
"""Maximum number of tracebacks on the page; each group has ten at most."""
MASKED_WHOLE = 4 * 1_048_576
"""Maximum bytes of a payload that is read whole in order to mask it."""
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


class MessagePage(QueueView):
    """The page of a row of the log, by its offset."""

    url_name = "message_change"
    template_name = "admin/django_mqueue/message.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        word = unquote(kwargs["object_id"])
        found = read(request, word)
        if found is None:
            text = _("There is no message %(offset)s.")
            messages.warning(request, text % {"offset": printable(word)[:20]})
            return HttpResponseRedirect(self.index_url())
        self.title = _("Message %(offset)s") % {"offset": word}
        message = shown(request, found.message)
        offset = _offset(found)
        is_withheld = isinstance(message.payload, payloads.Withheld)
        context = self.get_context_data(
            timeline=found,
            offset=offset,
            message=message,
            headers=EMPTY if is_withheld else payloads.document(message.headers),
            payload=payloads.body(message),
            rows=[_row(request, found, view) for view in found.group_views],
            errors=_attempts(request, found, message),
            related=_related(request, found),
            is_dead_letter=found.message.status == DEAD,
            dead_letter_url=allowed_url(request, "deadletter", offset=offset),
            is_scheduled=found.message.status == SCHEDULED,
            is_masked=not sees_all(request, found.stored_in),
            has_no_receiver=not found.more_groups and not any(one.is_for for one in found.group_views),
            topic_url=allowed_url(request, "topic", topic=found.topic),
        )
        return self.render_to_response(context)


def read(request: HttpRequest, word: str) -> MessageTimeline | None:
    """Return the message at the offset in the URL, or None if there is no such message.

    It reads as much of the payload as the page needs for this user.
    """
    offset = parse_offset(word)
    if not offset:
        return None

    def limit(topic: str) -> int:
        return payloads.BODY_BYTES if sees_all(request, topic) else MASKED_WHOLE

    return message_timeline(conf.database(), offset, payload_limit=limit, groups=GROUPS)


def _offset(found: MessageTimeline) -> int:
    dead_letter = found.message.dead_letter
    return found.message.offset if dead_letter is None else dead_letter


def _row(request: HttpRequest, found: MessageTimeline, state: GroupView) -> dict[str, Any]:
    """Return the status of the message for one group, as the page shows it."""
    view, parked = state.view, state.parked_retry
    hurry_url = dead_letter_url = None
    if state.is_for and view.status in (PENDING, WAITING):
        names = {"topic": found.stored_in, "group": state.group, "offset": _offset(found)}
        hurry_url = allowed_url(request, "hurry_message", **names)
    if view.status == DEAD and view.dead_letter is not None:
        dead_letter_url = _dead_letter_url(request, view.dead_letter)
    status = status_badge(view.status, view.outcome) if state.is_for else EMPTY
    until_label, until = _until(state)
    return {
        "view": view,
        "group": state.group,
        "url": allowed_url(request, "group", topic=found.stored_in, group=state.group),
        "status": status if parked is None else status_badge(WAITING),
        "text": _text(state),
        "until_label": until_label,
        "until": until,
        "hurry_url": hurry_url,
        "dead_letter_url": dead_letter_url,
        "parked_url": None if parked is None else page_url(request, "message_change", parked.offset),
    }


def _text(state: GroupView) -> str:
    """Return sentences about the message's state for the group, or ""."""
    view = state.view
    if not state.is_for:
        return _("It is not for this group.")
    if state.parked_retry is not None:
        return _("Its retry is parked outside the log until it is due.")
    if view.status == DONE:
        return str(EXPLANATIONS.get(view.outcome or "", ""))
    sentences = []
    if view.status == PENDING:
        sentences.append(_("Not delivered yet."))
    elif view.status == WAITING and _is_at_the_front(state):
        sentences.append(_("It is due now, as the next message of its key."))
    if state.is_paused:
        sentences.append(_("The group is paused."))
    return " ".join(sentences)


def _is_at_the_front(state: GroupView) -> bool:
    """Return whether the message was sent to the front of its key: its time is then almost 0."""
    until = state.view.invisible_until
    return until is not None and until.timestamp() < 1


def _until(state: GroupView) -> tuple[str, str]:
    """Return the label and the HTML of the relevant time, or ("", "")."""
    view = state.view
    is_over = view.status == DEAD or (view.status == DONE and state.parked_retry is None)
    if is_over and view.done_at is not None:
        return _("Since"), moment(view.done_at)
    if view.status == IN_FLIGHT:
        label = _("A handler has it. It is delivered again if not acknowledged by")
        return label, moment(view.invisible_until)
    if view.status == WAITING and not _is_at_the_front(state):
        return _("Retry at"), moment(view.invisible_until)
    return "", ""


def _attempts(
    request: HttpRequest, found: MessageTimeline, message: Inspected
) -> list[tuple[str, FailedAttempt]]:
    """Return (group, failed attempt) of all groups, newest first. Masks apply to each error."""
    by_group = []
    if message.status == DEAD or (message.status == SCHEDULED and message.errors):
        by_group.append((message.group or message.target or "", message.errors))
    for state in found.group_views:
        if state.view.errors:
            seen = replace(
                found.message, errors=state.view.errors, group=state.group, status=state.view.status
            )
            by_group.append((state.group, shown(request, seen).errors))
    attempts = [(group, one) for group, errors in by_group for one in errors]
    attempts.sort(key=lambda pair: pair[1].at, reverse=True)
    return attempts[:ERRORS]


def _dead_letter_url(request: HttpRequest, offset: int) -> str:
    """Return the URL of a dead letter's page, or of its row if the user may not see dead letters."""
    return allowed_url(request, "deadletter", offset=offset) or page_url(request, "message_change", offset)


def _related(request: HttpRequest, found: MessageTimeline) -> list[tuple[str, SafeString | str]]:
    """Return (title, link) for each row that belongs to the same message."""

    def to(one: Related, url: str | None = None) -> SafeString:
        text = _("%(offset)s in %(topic)s") % {"offset": one.offset, "topic": one.topic}
        return link(url or page_url(request, "message_change", one.offset), text)

    rows: list[tuple[str, SafeString | str]] = []
    if found.original is not None:
        rows.append((_("Original message"), to(found.original)))
    elif found.original_offset is not None:
        values = {"offset": found.original_offset, "topic": printable(found.topic)}
        rows.append((_("Original message"), _("%(offset)s in %(topic)s: deleted") % values))
    for one in found.dead_letters:
        title = _("Dead letter of %(group)s") % {"group": printable(one.group)}
        rows.append((title, to(one, _dead_letter_url(request, one.offset))))
    for one in found.copies:
        title = _("Redriven to all groups")
        if one.group:
            title = _("Redriven to %(group)s") % {"group": printable(one.group)}
        rows.append((title, to(one)))
    return rows
