"""The page of one message: its content, its status for each group, and its failed attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.admin.utils import unquote
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ... import conf
from ...browse import delivery_facts, explaining, masking
from ...browse.delivery_facts import Facts
from ...browse.reasons import is_at_the_front
from ...browse.timeline import GroupState, MessageTimeline, Related, message_timeline
from ...inspect import FailedAttempt, Inspected
from ...policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ..base.display import EMPTY, moment, printable
from ..base.forms import TopicForm, parse_number
from ..base.urls import allowed_url, link, may_open, page_url
from ..base.views import QueueView
from . import payloads
from .masking import masked_for, sees_all
from .message_list import status_badge
from .scheduling import scheduled_tools

GROUPS = 200
ERRORS = 100
"""Maximum number of tracebacks on the page; each group has ten at most."""


class MessagePage(QueueView):
    """The page of a row of the log, by its offset."""

    url_name = "message_change"
    template_name = "admin/django_mqueue/message.html"
    refresh_seconds = 5

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        word = unquote(kwargs["object_id"])
        found = read(request, word)
        if found is None:
            text = _(
                "There is no message %(offset)s. It was deleted, or never existed. A scheduled message gets"
                " another offset when it is due."
            )
            raise Http404(text % {"offset": printable(word)[:20]})
        self.title = _("Message %(offset)s") % {"offset": word}
        message = masked_for(request, found.message)
        offset = found.row_offset
        is_scheduled = found.message.status == SCHEDULED
        is_withheld = isinstance(message.payload, masking.Withheld)
        has_topic_page = TopicForm({"topic": found.topic}).is_valid()
        facts = delivery_facts.facts(conf.database(), found)
        if not may_open(request, "actions"):  # Who paused a group, and why, is for users who may see actions.
            facts = {group: replace(one, pause=None) for group, one in facts.items()}
        context = self.get_context_data(
            timeline=found,
            offset=offset,
            message=message,
            headers=EMPTY if is_withheld else payloads.document(message.headers),
            payload=payloads.body(message),
            rows=[_row(request, found, state, facts.get(state.group)) for state in found.group_states],
            errors=_attempts(request, found, message),
            related=_related(request, found),
            is_dead_letter=found.message.status == DEAD,
            dead_letter_url=allowed_url(request, "deadletter", offset=offset),
            is_scheduled=is_scheduled,
            scheduled_tools=scheduled_tools(request, offset) if is_scheduled else [],
            is_masked=not sees_all(request, found.stored_in),
            has_no_receiver=not found.more_groups and not any(one.is_for for one in found.group_states),
            topic_url=allowed_url(request, "topic", topic=found.topic) if has_topic_page else None,
        )
        if not is_scheduled and not found.more_groups and all(_is_done(one) for one in found.group_states):
            del context["refresh_url"]
        return self.render_to_response(context)


def read(request: HttpRequest, word: str) -> MessageTimeline | None:
    """Return the message at the offset in the URL, or None if there is no such message.

    It reads as much of the payload as the page needs for this user.
    """
    offset = parse_number(word)
    if not offset:
        return None

    def limit(topic: str) -> int:
        return payloads.BODY_BYTES if sees_all(request, topic) else masking.MASKABLE_BYTES

    return message_timeline(conf.database(), offset, payload_limit=limit, groups=GROUPS)


def _row(
    request: HttpRequest, found: MessageTimeline, state: GroupState, facts: Facts | None
) -> dict[str, Any]:
    """Return the status of the message for one group, as the page shows it."""
    message, parked = state.message, state.parked_retry
    hurry_url = skip_url = dead_letter_url = None
    if state.is_for and message.status in (PENDING, WAITING) and not (facts and facts.reads_log):
        names = {"topic": found.stored_in, "group": state.group, "offset": found.row_offset}
        hurry_url = allowed_url(request, "hurry_message", **names)
        skip_url = allowed_url(request, "skip_message", **names)
    if message.status == DEAD and message.dead_letter is not None:
        dead_letter_url = _dead_letter_url(request, message.dead_letter)
    status = status_badge(message.status, message.outcome) if state.is_for else EMPTY
    until_label, until = _until(state)
    reasons = explaining.explain(found, state, facts).reasons
    return {
        "message": message,
        "group": state.group,
        "url": allowed_url(request, "group", topic=found.stored_in, group=state.group),
        "status": status if parked is None else status_badge(WAITING),
        "text": printable(" ".join(filter(None, [explaining.status_text(state), *reasons]))),
        "until_label": until_label,
        "until": until,
        "hurry_url": hurry_url,
        "skip_url": skip_url,
        "dead_letter_url": dead_letter_url,
        "parked_url": None if parked is None else page_url(request, "message_change", parked.offset),
    }


def _is_done(state: GroupState) -> bool:
    """Return whether the group is done with the message. An operator may still redrive it."""
    return not state.is_for or (state.message.status in (DONE, DEAD) and state.parked_retry is None)


def _until(state: GroupState) -> tuple[str, str]:
    """Return the label and the HTML of the relevant time, or ("", "")."""
    message = state.message
    is_over = message.status == DEAD or (message.status == DONE and state.parked_retry is None)
    if is_over and message.done_at is not None:
        return _("Since"), moment(message.done_at)
    if message.status == IN_FLIGHT:
        label = _("It is delivered again if not acknowledged by")
        return label, moment(message.invisible_until)
    if message.status == WAITING and not is_at_the_front(message):
        return _("Retry at"), moment(message.invisible_until)
    return "", ""


def _attempts(
    request: HttpRequest, found: MessageTimeline, message: Inspected
) -> list[tuple[str, FailedAttempt]]:
    """Return (group, failed attempt) of all groups, newest first. Masks apply to each error."""
    by_group = []
    if message.status == DEAD or (message.status == SCHEDULED and message.errors):
        by_group.append((message.group or message.target or "", message.errors))
    for state in found.group_states:
        if state.message.errors:
            seen = replace(
                found.message, errors=state.message.errors, group=state.group, status=state.message.status
            )
            by_group.append((state.group, masked_for(request, seen).errors))
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
