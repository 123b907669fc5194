"""The page of one message: its content, its status for each group, and its failed attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from ... import conf
from ...browse.timeline import GroupView, MessageTimeline, Related, life
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
from ..base.display import EMPTY, block, first_line, key, moment, name, printable
from ..base.links import address, link
from ..base.views import QueueView, may
from . import payloads
from .masking import sees_all, shown
from .message_list import status_badge, when

GROUPS = 200
ERRORS = 100
"""Maximum number of tracebacks on the page; each group has ten at most."""
MASKED_WHOLE = 4 * 1_048_576
"""Maximum bytes of a payload that is read whole in order to mask it."""


class LifePage(QueueView):
    """The page of a row of the log, by its offset."""

    route, url_name, rights = "", "message_change", ("view_message",)
    template_name = "admin/django_mqueue/life.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        word = unquote(kwargs["object_id"])
        found = read(request, word)
        if found is None:
            return self.page.not_there(request, word)
        self.title = f"Message {word}"
        message = shown(request, found.message)
        context = self.get_context_data(
            title=self.title,
            life=found,
            offset=_offset(found),
            due=when(found.message.available_at),
            sections=sections(found, message),
            stands=[Row(request, found, stand) for stand in found.stands],
            errors=attempts(request, found, message),
            related=related(request, found),
            is_letter=found.message.status == DEAD,
            letter_url=to_letter(request, _offset(found)) if may(request, "view_deadletter") else None,
            is_scheduled=found.message.status == SCHEDULED,
            is_masked=not sees_all(request, found.stored_in),
            for_nobody=bool(found.message.target) and not any(one.is_for for one in found.stands),
            topic_url=address(request, "topic", topic=found.topic) if may(request, "view_topic") else None,
        )
        return self.render_to_response(context)


def read(request: HttpRequest, word: str) -> MessageTimeline | None:
    """Return the message at the offset in the URL, or None if there is no such message.

    It reads as much of the payload as the page needs for this user.
    """
    if not (word.isascii() and word.isdigit() and len(word) < 20 and 0 < int(word) < 1 << 63):
        return None

    def limit(topic: str) -> int:
        return payloads.BODY_BYTES if sees_all(request, topic) else MASKED_WHOLE

    return life(conf.database(), int(word), payload_limit=limit, groups=GROUPS)


def sections(found: MessageTimeline, message: Inspected) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the facts as (title, fields). A field is (name, label, HTML)."""
    where = [
        ("offset", "Offset", str(_offset(found))),
        ("topic", "Topic", name(found.stored_in)),
        ("key", "Key", key(found.partition)),
        ("message_id", "Id", name(message.id)),
        ("for_group", "For", name(message.target) if message.target else "all groups"),
        ("kind", "Kind", name(message.kind)),
    ]
    if found.id != message.id:
        where.append(("stored_id", "Id of this row", name(found.id)))
    letter = [
        ("original_topic", "Published in", name(found.topic)),
        ("original_id", "Original id", name(message.id)),
        ("failed_group", "Given up by", name(message.group or "")),
        ("failed", "Given up", when(message.done_at)),
        ("failure_count", "Failures", str(message.failures)),
    ]
    times = [
        ("created", "Created", moment(found.created_at)),
        ("available", "Due", when(message.available_at)),
    ]
    if message.status != SCHEDULED:
        times.append(("published", "Published", when(message.published_at)))
    return [
        ("", where),
        *([("Dead letter", letter)] if message.status == DEAD else []),
        ("Times", times),
        (
            "Content",
            [("headers", "Headers", headers(message)), ("payload_body", "Payload", payloads.body(message))],
        ),
    ]


def headers(message: Inspected) -> str:
    if isinstance(message.payload, payloads.Withheld):
        return EMPTY
    return payloads.document(message.headers)


def _offset(found: MessageTimeline) -> int:
    letter = found.message.dead_letter
    return found.message.offset if letter is None else letter


class Row:
    """The status of the message for one group, as the page shows it."""

    def __init__(self, request: HttpRequest, found: MessageTimeline, stand: GroupView) -> None:
        self.stand, view = stand, stand.view
        self.group = name(stand.group)
        self.url = None
        if may(request, "view_consumergroup"):
            self.url = address(request, "group", topic=found.stored_in, group=stand.group)
        self.status: str = status_badge(view.status, view.outcome) if stand.is_for else EMPTY
        if stand.set_aside is not None:
            self.status = status_badge(WAITING)
        self.words = _words(stand)
        self.until_says, self.until = _until(stand)
        self.delivered_to, self.delivered_at = name(view.delivered_to), when(view.delivered_at)
        self.is_used = bool(view.delivered_to)
        self.attempts = view.attempts
        self.hurry_url = self.letter_url = self.aside_url = None
        offset = str(_offset(found))
        if stand.is_for and view.status in (PENDING, WAITING) and may(request, "hurry_message"):
            self.hurry_url = address(
                request, "hurry_message", topic=found.stored_in, group=stand.group, offset=offset
            )
        if view.status == DEAD and view.dead_letter is not None:
            self.letter_url = to_letter(request, view.dead_letter)
        if stand.set_aside is not None:
            self.aside_url = address(request, "message_change", stand.set_aside.offset)


ENDED = {
    SKIPPED: "The handler's filter excluded it: no handler received it.",
    DEAD_LETTERED: "It became a dead letter. The dead letter was purged, or redriven and then deleted.",
    REDRIVEN: "It became a dead letter, and was sent back.",
    REMOVED: "It was removed by hand: no handler received it after that.",
    SET_ASIDE: "It waited for a retry apart from the log, and came back or was removed there.",
    BEFORE_START: "The group began after it.",
    NOT_RECORDED: "The group is past it; no delivery of it is on record.",
}
"""Explanations for messages that are done although no handler has finished them."""


def _words(stand: GroupView) -> str:
    """Return a text about the message's current position, or ""."""
    view = stand.view
    if not stand.is_for:
        return "It is not for this group."
    if stand.set_aside is not None:
        return "It waits for a retry, apart from the log."
    paused = " The group is paused." if stand.is_paused else ""
    if view.status == PENDING:
        return f"Not delivered yet.{paused}"
    if view.status == DONE:
        return ENDED.get(view.outcome or "", "")
    if view.status == WAITING and _is_at_the_front(stand):
        return f"It was sent to the front: the first of its key.{paused}"
    return paused.strip()


def _is_at_the_front(stand: GroupView) -> bool:
    until = stand.view.invisible_until
    return until is not None and until.timestamp() < 1


def _until(stand: GroupView) -> tuple[str, str | None]:
    """Return the label and the HTML of the relevant time, or ("", None)."""
    view = stand.view
    if view.status == DONE and view.done_at is not None and stand.set_aside is None:
        return "Since", when(view.done_at)
    if view.status == DEAD and view.done_at is not None:
        return "Since", when(view.done_at)
    if view.status == IN_FLIGHT:
        return "A handler has it; delivered again if unanswered at", when(view.invisible_until)
    if view.status == WAITING:
        return ("", None) if _is_at_the_front(stand) else ("Again at", when(view.invisible_until))
    return "", None


def attempts(request: HttpRequest, found: MessageTimeline, message: Inspected) -> list[dict[str, Any]]:
    """Return the failed attempts of all groups, newest first. Masks apply to each error."""
    of_groups: list[tuple[str, Sequence[FailedAttempt]]] = []
    if message.status == DEAD or (message.status == SCHEDULED and message.errors):
        of_groups.append((message.group or message.target or "", message.errors))
    for stand in found.stands:
        if stand.view.errors:
            seen = replace(
                found.message, errors=stand.view.errors, group=stand.group, status=stand.view.status
            )
            of_groups.append((stand.group, shown(request, seen).errors))
    rows = [
        {
            "group": name(group),
            "number": one.attempt or EMPTY,
            "by": name(one.by),
            "at": when(one.at),
            "line": printable(first_line(one.error))[:200],
            "block": block(one.error),
            "when": one.at,
        }
        for group, errors in of_groups
        for one in errors
    ]
    return sorted(rows, key=lambda row: row["when"], reverse=True)[:ERRORS]


def to_letter(request: HttpRequest, offset: int) -> str:
    """Return the URL of a dead letter's page, or of its row if the user may not see dead letters."""
    if may(request, "view_deadletter"):
        return address(request, "deadletter", offset=offset)
    return address(request, "message_change", offset)


def related(request: HttpRequest, found: MessageTimeline) -> list[tuple[str, SafeString | str]]:
    """Return (title, link) for each row that belongs to the same message."""

    def to(one: Related) -> SafeString:
        return link(address(request, "message_change", one.offset), f"{one.offset} in {one.topic}")

    rows: list[tuple[str, SafeString | str]] = []
    if found.original is not None:
        rows.append(("The original", to(found.original)))
    elif found.original_offset is not None:
        rows.append(("The original", f"{found.original_offset} in {printable(found.topic)}: deleted since"))
    rows += [
        (
            f"Dead letter of {printable(one.group)}",
            link(to_letter(request, one.offset), f"{one.offset} in {one.topic}"),
        )
        for one in found.letters
    ]
    rows += [(f"Sent back to {printable(one.group) or 'all groups'}", to(one)) for one in found.copies]
    return rows
