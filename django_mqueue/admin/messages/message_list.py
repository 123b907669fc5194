"""The list of messages: the newest messages of all topics, or the messages of one topic that match the form."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from ... import conf, inspect
from ...browse import message_search
from ...exceptions import MQueueError
from ...inspect import Figure, Inspected, Page
from ...policy.message_query import DEAD, DONE
from ...policy.outcomes import (  # fmt: skip
    BEFORE_START,
    DEAD_LETTERED,
    NOT_RECORDED,
    REDRIVEN,
    REMOVED,
    SET_ASIDE,
    SKIPPED,
)
from ...stats.results import AT_LEAST, EXACT
from ..base.display import EMPTY, badge, cell, first_line, key, moment, name, printable, quiet
from ..base.links import address
from ..base.views import QueueView
from . import payloads
from .masking import as_seen, sees_all, shown
from .search_form import BY_DUE_TIME, TITLES, Asking

ROWS = 100
LOOKED_AT = 2_000
"""Maximum number of messages that a page reads if no index serves the filter."""
MASKED_IN_LIST = 16_384
"""Maximum bytes of a payload that the list reads in order to mask it."""
COUNTED = 1_000
KEPT = 10
"""Seconds for which a group's counts stay in Django's cache."""
BADGES = {
    "pending": "waiting", "in_flight": "good", "waiting": "waiting", "done": "over", "dead": "bad",
    "scheduled": "waiting",
}  # fmt: skip


class MessagesPage(QueueView):
    """The list of messages: ``?topic=`` and the other fields of ``Asking``.

    ``start``: the position from which the list continues; the link of the previous page contains it.
    """

    route, url_name, rights = "", "message_changelist", ("view_message",)
    template_name = "admin/django_mqueue/messages.html"
    title = "Messages"

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, (title, _), _ = super().crumbs()
        return [*above, (title, None)]

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = Asking(request.GET)
        found: Page | None = None
        if form.is_valid():
            try:
                found = self._found(form)
            except (MQueueError, ValueError, TypeError) as problem:
                form.add_error(None, printable(str(problem)))
            except ValidationError as problem:
                form.add_error(None, problem)
        topic = form.cleaned_data.get("topic") or ""
        context = self.get_context_data(title=self.title, form=form, topic=topic, found=found)
        if found is not None:
            context |= self._listed(form, found)
        return self.render_to_response(context)

    def _found(self, form: Asking) -> Page:
        request, topic = self.request, form.cleaned_data["topic"]
        start = request.GET.get("start") or None
        if not topic:
            everything = sees_all_topics(request)
            most = payloads.HEAD_BYTES if everything else MASKED_IN_LIST
            return message_search.newest_of_all(conf.database(), limit=ROWS, start=start, payload_limit=most)
        test, everything = form.test(), sees_all(request, topic)
        return inspect.messages(
            **form.question(),
            filter=None if test is None else as_seen(request, test),
            limit=ROWS,
            start=start,
            scan_limit=LOOKED_AT,
            payload_limit=payloads.HEAD_BYTES if everything else MASKED_IN_LIST,
        )

    def _listed(self, form: Asking, found: Page) -> dict[str, Any]:
        given = form.cleaned_data
        letters = not given["topic"] or given["status"] == DEAD
        rows = [self._row(shown(self.request, message), letters) for message in found]
        is_first = not self.request.GET.get("start")
        return {
            "rows": rows,
            "with_topic": not given["topic"],
            "with_group": bool(given["group"] or given["status"]),
            "is_short": found.next is not None and len(rows) < ROWS,
            "next_url": None if found.next is None else self._url(start=found.next),
            "first_url": None if is_first else self._url(start=None),
            "is_asked": any(value for name, value in given.items() if name not in ("order",)),
            "by_due_time": given["status"] in BY_DUE_TIME,
            "counts": self._counts(given) if is_first and given["group"] else [],
        }

    def _url(self, **changed: str | None) -> str:
        """Return the URL of this page with changed parameters."""
        given = self.request.GET
        asked: dict[str, object] = {
            name: given[name] for name in (*Asking.base_fields, "start") if given.get(name)
        }
        return address(self.request, self.url_name, **{**asked, **changed})

    def _counts(self, given: Mapping[str, Any]) -> list[tuple[str, Figure, str, bool]]:
        """Return (title, count, URL, is listed now) for each status of a group, except done."""
        topic, group, key_ = given["topic"], given["group"], given["key"]
        if key_:
            try:
                figures: Any = _of_key(topic, group, key_)
            except MQueueError:  # The group is not registered, but may have dead letters.
                return []
        else:
            figures = inspect.group_figures([(topic, group)], max_age=KEPT)[topic, group]
            if not figures.registered:
                return []
        return [
            (title, getattr(figures, status), self._url(status=status, start=None), given["status"] == status)
            for status, title in TITLES.items()
            if status != DONE
        ]

    def _row(self, message: Inspected, letters: bool) -> dict[str, Any]:
        offset = message.dead_letter if letters and message.dead_letter is not None else message.offset
        error = message.errors[-1].error if message.errors else ""
        who = f"{message.group}: " if message.group and letters else ""
        return {
            "offset": offset,
            "url": address(self.request, "message_change", offset),
            "topic": name(message.topic),
            "key": key_cell(message.key),
            "id": name(message.id),
            "kind": name(message.kind),
            "status": status_badge(message.status, message.outcome),
            "attempts": message.attempts or EMPTY,
            "payload": payloads.beginning(message),
            "published": when(message.published_at, short=True),
            "failure": cell(f"{who}{first_line(error)}") if error else EMPTY,
        }


def _of_key(topic: str, group: str, key_: str) -> SimpleNamespace:
    """Return the counts of one key by status, each up to ``COUNTED``."""
    counts = inspect.counts(topic, group=group, key=key_, cap=COUNTED, scan_limit=LOOKED_AT)
    found = {
        status: Figure(getattr(counts, status), AT_LEAST if status in counts.more else EXACT)
        for status in TITLES
        if status != DONE
    }
    return SimpleNamespace(**found)


def sees_all_topics(request: HttpRequest) -> bool:
    """Return whether the user sees the messages of all topics unmasked."""
    return all(sees_all(request, topic) for topic in ("", *conf.topics()))


def when(moment_: Any, *, short: bool = False) -> str:
    """Return an aware datetime as HTML."""
    return EMPTY if moment_ is None else moment(round(moment_.timestamp() * 1000), short=short)


def key_cell(key_: str | None) -> str:
    """Return the cell for a message's key. ``key_`` is None for a keyless message."""
    return quiet("no key") if key_ is None else key(key_)


OUTCOMES = {
    SKIPPED: "skipped", DEAD_LETTERED: "dead-lettered", REDRIVEN: "redriven", REMOVED: "removed",
    SET_ASIDE: "set aside", BEFORE_START: "before the group's start", NOT_RECORDED: "not on record",
}  # fmt: skip
"""Badges of messages that are done although no handler has finished them."""


def status_badge(status: str | None, outcome: str | None = None) -> str:
    if status is None:
        return EMPTY
    text = OUTCOMES.get(outcome or "") if status == DONE else None
    return badge(BADGES[status], text or TITLES[status].lower())
