"""The list of messages: the newest messages of all topics, or the messages of one topic that match the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf, inspect
from ...browse import id_search, masking, message_search
from ...exceptions import MQueueError, NotRegistered
from ...inspect import Figure, Inspected, Page
from ...policy import errors, names
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
from ...stats.results import AT_LEAST, EXACT
from ..base import choices
from ..base.display import EMPTY, Text, badge, cell, first_line, key, printable, problem_text, quiet
from ..base.urls import NAVIGATION, page_url
from ..base.views import QueueView
from . import payloads
from .masking import masked_for, sees_all
from .search_form import BY_DUE_TIME, TITLES, SearchForm

ROWS = 100
SCAN_LIMIT = 2_000
"""Maximum number of messages that a page reads if no index serves the filter."""
COUNT_MAX = 1_000
COUNTS_MAX_AGE = 10
"""Seconds for which a group's counts stay in Django's cache."""
BADGES = {
    PENDING: ("waiting", gettext_lazy("pending")),
    IN_FLIGHT: ("good", gettext_lazy("in flight")),
    WAITING: ("waiting", gettext_lazy("for retry")),
    DONE: ("over", gettext_lazy("done")),
    DEAD: ("bad", gettext_lazy("dead")),
    SCHEDULED: ("waiting", gettext_lazy("scheduled")),
}
"""The kind and the text of the badge of each status."""
OUTCOMES = {
    SKIPPED: gettext_lazy("skipped"),
    DEAD_LETTERED: gettext_lazy("dead-lettered"),
    REDRIVEN: gettext_lazy("redriven"),
    REMOVED: gettext_lazy("removed"),
    SET_ASIDE: gettext_lazy("parked"),
    BEFORE_START: gettext_lazy("before the group's start"),
    NOT_RECORDED: gettext_lazy("not recorded"),
}
"""Badges of messages that are done although no handler has finished them."""


class MessagesPage(QueueView):
    """The list of messages: ``?topic=`` and the other fields of ``SearchForm``.

    ``start``: the position from which the list continues; the link of the previous page contains it.
    """

    url_name = "message_changelist"
    template_name = "admin/django_mqueue/messages.html"
    title = NAVIGATION["message_changelist"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = SearchForm(self.request.GET)
        found: Page | None = None
        self.partial: list[str] = []
        self.is_cut = False
        if form.is_valid():
            try:
                found = self._found(form)
                found = None if self._lacks_topic(form, found) else found
            except (MQueueError, ValueError, TypeError) as problem:
                if not (isinstance(problem, NotRegistered) and self._lacks_topic(form, None)):
                    form.add_error(None, problem_text(problem))
            except ValidationError as problem:
                form.add_error(None, problem)
        listed = {} if found is None else self._listed(form, found)
        topic = form.cleaned_data.get("topic") or ""
        return super().get_context_data(
            form=form, topic=topic, found=found, partial=self.partial, is_cut=self.is_cut, **listed, **kwargs
        )

    def _lacks_topic(self, form: SearchForm, found: Page | None) -> bool:
        """Return whether the search found nothing because the topic does not exist. The form then has an error."""
        topic = form.cleaned_data.get("topic")
        if not topic or found or (problem := choices.no_such_topic(topic)) is None:
            return False
        form.add_error("topic", problem)
        return True

    def _found(self, form: SearchForm) -> Page:
        topic, start = form.cleaned_data["topic"], self.request.GET.get("start") or None
        topics = [topic] if topic else ["", *conf.topics()]
        sees_everything = all(sees_all(self.request, one) for one in topics)
        payload_limit = payloads.HEAD_BYTES if sees_everything else masking.MASKABLE_BYTES_IN_LIST
        if text := form.cleaned_data["find"]:
            return self._find(text, topic or None, payload_limit)
        if not topic:
            return message_search.newest_of_all(
                conf.database(),
                limit=ROWS,
                start=start,
                payload_limit=payload_limit,
                with_derived=form.cleaned_data["derived"],
            )
        test = form.test()
        return inspect.messages(
            **form.arguments(),
            filter=None if test is None else lambda message: test(masked_for(self.request, message)),
            limit=ROWS,
            start=start,
            scan_limit=SCAN_LIMIT,
            payload_limit=payload_limit,
        )

    def _find(self, text: str, topic: str | None, payload_limit: int) -> Page:
        """Find messages by id, key or offset, in all topics or in one."""
        found: dict[int, Inspected] = {}
        for id, key_ in ((text, None), (None, text)):
            search = id_search.find(
                conf.database(), id=id, key=key_, topic=topic, limit=ROWS + 1, payload_limit=payload_limit
            )
            self.partial += search.partial
            found |= {one.row_offset: replace(one.message, topic=one.stored_in) for one in search.messages}
        self.is_cut = len(found) > ROWS
        rows = sorted(found.items(), reverse=True)[:ROWS]
        return Page([message for _offset, message in rows], None, len(rows))

    def _listed(self, form: SearchForm, found: Page) -> dict[str, Any]:
        given = form.cleaned_data
        with_topic = bool(not given["topic"] or given["find"])
        has_dead_letters = with_topic or given["status"] == DEAD
        messages = list(found) if given["group"] else _with_errors(list(found))
        rows = [self._row(masked_for(self.request, message), has_dead_letters) for message in messages]
        is_first = not self.request.GET.get("start")
        return {
            "rows": rows,
            "with_topic": with_topic,
            "with_due": bool(given["find"] or given["derived"]) or given["status"] == SCHEDULED,
            "with_published": given["status"] != SCHEDULED,
            "with_group": bool(given["group"] or given["status"]),
            "is_short": found.next is not None and len(rows) < ROWS,
            "next_url": None if found.next is None else self._url(start=found.next),
            "first_url": None if is_first else self._url(start=None),
            "is_asked": form.is_asked,
            "is_find": bool(given["find"]),
            "derived": given["derived"],
            "by_due_time": given["status"] in BY_DUE_TIME,
            "counts": self._counts(given) if is_first and given["group"] else [],
        }

    def _url(self, **changed: str | None) -> str:
        """Return the URL of this page with changed parameters."""
        query = self.request.GET
        given: dict[str, object] = {
            name: query[name] for name in (*SearchForm.base_fields, "start") if query.get(name)
        }
        return page_url(self.request, self.url_name, **{**given, **changed})

    def _counts(self, given: Mapping[str, Any]) -> list[tuple[Text, Figure, str, bool]]:
        """Return (title, count, URL, is listed now) for each status of a group, except done."""
        counts = _counts(given["topic"], given["group"], given["key"])
        return [
            (TITLES[status], count, self._url(status=status, start=None), given["status"] == status)
            for status, count in counts.items()
        ]

    def _row(self, message: Inspected, has_dead_letters: bool) -> dict[str, Any]:
        offset = message.offset
        if has_dead_letters and message.dead_letter is not None:
            offset = message.dead_letter
        is_of_asked_group = bool(self.request.GET.get("group")) and not has_dead_letters
        prefix = f"{message.group}: " if message.group and not is_of_asked_group else ""
        error = message.errors[-1].error if message.errors else ""
        return {
            "message": message,
            "offset": offset,
            "url": page_url(self.request, "message_change", offset),
            "due": message.available_at if _is_scheduled(message) else None,
            "key": quiet(_("no key")) if message.key is None else key(message.key),
            "status": status_badge(message.status, message.outcome),
            "payload": payloads.beginning(message),
            "failure": _failure(prefix, first_line(error)) if error else EMPTY,
        }


def _failure(prefix: str, line: str) -> str:
    """Return the first line of an error with the short name of its class. The tooltip has the whole name."""
    return format_html('<span title="{}">{}</span>', printable(line), cell(f"{prefix}{errors.short(line)}"))


def _with_errors(messages: Sequence[Inspected]) -> list[Inspected]:
    """Return the messages, with the errors of the group whose attempt failed last."""
    wanted = [one.offset for one in messages if not one.errors and one.status is None]
    found = message_search.last_failures(conf.database(), wanted)
    return [
        replace(one, group=found[one.offset][0], errors=found[one.offset][1]) if one.offset in found else one
        for one in messages
    ]


def _counts(topic: str, group: str, key_: str) -> dict[str, Figure]:
    """Return the counts of a group, or of one key up to ``COUNT_MAX``, by status. Done messages are not counted."""
    statuses = [status for status in TITLES if status != DONE]
    if not key_:
        figures = inspect.group_figures([(topic, group)], max_age=COUNTS_MAX_AGE)[topic, group]
        return {status: getattr(figures, status) for status in statuses} if figures.registered else {}
    try:
        counts = inspect.counts(topic, group=group, key=key_, cap=COUNT_MAX, scan_limit=SCAN_LIMIT)
    except MQueueError:  # The group is not registered, but may have dead letters.
        return {}
    return {
        status: Figure(getattr(counts, status), AT_LEAST if status in counts.more else EXACT)
        for status in statuses
    }


def _is_scheduled(message: Inspected) -> bool:
    """Return whether the message is not due yet. In the list of all topics, only the row's topic shows this."""
    return message.status == SCHEDULED or message.topic.endswith(names.SCHEDULED_SUFFIX)


def status_badge(status: str | None, outcome: str | None = None) -> str:
    if status is None:
        return EMPTY
    kind, text = BADGES[status]
    return badge(kind, OUTCOMES.get(outcome or "", text) if status == DONE else text)
