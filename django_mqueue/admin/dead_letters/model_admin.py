"""Dead letters: topics, a topic's dead letters by error, a list, and the page of one dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...browse import dead_letter_details, dead_letter_list, dead_letter_topics, dead_letters
from ...browse.dead_letter_topics import CAP
from ...browse.masking import MASKABLE_BYTES_IN_LIST
from ...policy.dead_letter_filter import DeadLetterQuery
from ...policy.errors import plain
from ...results import Inspected
from ..base import choices
from ..base.display import EMPTY, Text, first_line, printable
from ..base.forms import parse_number
from ..base.operations import Data
from ..base.tables import ReadOnlyAdmin
from ..base.urls import NAVIGATION, allowed_url, page_url
from ..base.views import QueueView
from ..messages import masking, payloads
from . import handing_over, visible
from .background import RunPage
from .editing import EditDeadLetter
from .filters import DeadLetterFilter, dead_topic, query_of
from .operations import PurgeMatching, PurgeSelected, RedriveMatching, RedriveSelected
from .tracebacks import Part, parts
from .visible import Visibility

TOPICS = 50
PAGE = 50
RELATED = 20
"""Maximum number of redrives, and of other dead letters with the same id, on the page of a dead letter."""


class DeadLetterTopicList(QueueView):
    """The list of topics that have dead letters, a page at a time. ``?after=`` continues the list."""

    url_name = "deadletter_changelist"
    title = NAVIGATION["deadletter_changelist"]
    template_name = "admin/django_mqueue/dead_letter_topics.html"
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        after = self.request.GET.get("after", "")
        found = dead_letter_topics.topics(conf.database(), after, TOPICS)
        rows = []
        for one in found.topics:
            dead = None if conf.dead_letter_topic(one.topic) == one.dead_topic else one.dead_topic
            groups = [(group, count, count >= CAP) for group, count in sorted(one.groups.items())]
            url = page_url(self.request, "deadletter_errors", topic=one.topic, dead=dead)
            rows.append({"about": one, "dead": dead, "url": url, "groups": groups})
        then = found.next and page_url(self.request, self.url_name, after=found.next)
        return super().get_context_data(rows=rows, after=after, then=then, **kwargs)


class _TopicPage(QueueView):
    """A page whose query holds the fields of ``DeadLetterFilter``. ``below`` continues the list."""

    form: DeadLetterFilter
    title: Text = NAVIGATION["deadletter_changelist"]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.form = DeadLetterFilter(self.request.GET)
        below = parse_number(self.request.GET.get("below", ""))
        self.below = dead_letters.OFFSET_MAX if below is None else below
        context: dict[str, Any] = {}
        if self.form.is_valid():
            data = self.form.cleaned_data
            topic, dead = data["topic"], dead_topic(data)
            visibility = visible.visibility_of(self.request, topic, dead)
            self.title = printable(_("Dead letters of %(topic)s") % {"topic": topic})
            context = {"topic": topic, "dead": data["dead"], "dead_topic": dead, "visibility": visibility}
            context |= {"is_newest": self.below == dead_letters.OFFSET_MAX, **self.found(data, visibility)}
            context["under_way"] = [
                page_url(self.request, "deadletter_run", entry=work.entry)
                for work in handing_over.under_way(conf.database(), topic)
            ]
        return super().get_context_data(form=self.form, **context, **kwargs)

    def found(self, data: Data, visibility: Visibility) -> dict[str, Any]:
        raise NotImplementedError

    def url(self, page: str, **query: Any) -> str:
        """Return the URL of a page with the same filter. ``query`` replaces fields; None removes a field."""
        return page_url(self.request, page, **{**self.form.query, **query})


class ErrorsPage(_TopicPage):
    """The dead letters of a topic by error: ``?topic=&below=``, and the other fields of ``DeadLetterFilter``."""

    route, url_name = "errors", "deadletter_errors"
    template_name = "admin/django_mqueue/dead_letter_errors.html"

    def found(self, data: Data, visibility: Visibility) -> dict[str, Any]:
        found = dead_letters.by_error(conf.database(), query_of(visibility.allowed(data)), self.below)
        errors = []
        for name, count, groups in visibility.names(found.errors):
            total: Counter[str] = Counter()
            for one in groups:
                total.update(one.groups)
            rows = [
                {
                    "about": one,
                    "url": self._list_url(name, one.signature.line),
                    "groups": sorted(one.groups.items()),
                }
                for one in (groups if visibility.everything else [])
            ]
            errors.append(
                {
                    "name": name,
                    "count": count,
                    "url": self._list_url(name, None) if name else "",
                    "first": min(one.first for one in groups),
                    "last": max(one.last for one in groups),
                    "groups": sorted(total.items()),
                    "rows": rows,
                }
            )
        return {
            "errors": errors,
            "examined": found.examined,
            "then": found.next and self.url(self.url_name, below=found.next),
            "all_url": self.url("deadletter_list"),
        }

    def _list_url(self, error: str, line: str | None) -> str:
        return self.url("deadletter_list", error=error or None, line=line, exact=1)


class ListPage(_TopicPage):
    """A list of dead letters, newest first: the fields of ``DeadLetterFilter``, and ``below``."""

    route, url_name = "list", "deadletter_list"
    template_name = "admin/django_mqueue/dead_letter_list.html"
    crumb = gettext_lazy("List")

    def parents(self) -> list[tuple[Text, str | None]]:
        if not self.form.is_valid():
            return super().parents()
        topic, dead = self.form.data.get("topic"), self.form.data.get("dead") or None
        url = page_url(self.request, "deadletter_errors", topic=topic, dead=dead)
        return [*super().parents(), (self.title, url)]

    def found(self, data: Data, visibility: Visibility) -> dict[str, Any]:
        using, query = conf.database(), query_of(visibility.allowed(data))
        found = dead_letters.page(using, query, self.below, limit=PAGE)
        limit = payloads.HEAD_BYTES if visibility.everything else MASKABLE_BYTES_IN_LIST
        messages = dead_letter_list.beginnings(
            using, query.topic, [head.offset for head in found.summaries], limit
        )
        rows = [
            {
                "head": head,
                "error": first_line(plain(head.error))
                if visibility.everything
                else visibility.name(head.signature.name),
                "url": self.url("deadletter", offset=head.offset),
                "payload": self._payload(messages.get(head.offset), query.dead_topic),
            }
            for head in found.summaries
        ]
        topics = {"topic": data["topic"], "dead": data["dead"] or None}
        return {
            "rows": rows,
            "total": (total := self._total(query, found)),
            "no_topic": None if total.number else choices.no_such_topic(query.topic),
            "examined": found.examined,
            "then": found.next and self.url(self.url_name, below=found.next),
            "first_url": self.url(self.url_name),
            "list_query": urlencode(dict(self.request.GET.items()), errors="replace"),
            "narrowed": self.form.narrowed,
            "clear_url": page_url(self.request, self.url_name, **topics),
        }

    def _payload(self, message: Inspected | None, dead: str) -> str:
        """Return the beginning of a payload as the user may see it."""
        if message is None:  # It was redriven or purged a moment ago.
            return EMPTY
        return payloads.beginning(masking.masked_for(self.request, replace(message, topic=dead)))

    def _total(self, query: DeadLetterQuery, found: dead_letters.DeadLetterPage) -> dead_letters.Count:
        """Return the number of all that match. The page itself has all of them if it is the only one."""
        if self.below == dead_letters.OFFSET_MAX and found.next is None:
            groups = Counter(head.group for head in found.summaries)
            return dead_letters.Count(dict(groups), is_more=False)
        return dead_letter_list.total(conf.database(), query)


class DeadLetterDetailPage(QueueView):
    """One dead letter: ``?offset=``, and the fields of ``DeadLetterFilter`` if a filtered list led to it."""

    route, url_name = "letter", "deadletter"
    template_name = "admin/django_mqueue/dead_letter.html"
    topics: dict[str, str | None] | None = None
    filter: DeadLetterFilter

    def parents(self) -> list[tuple[Text, str | None]]:
        if self.topics is None:
            return super().parents()
        url = page_url(self.request, "deadletter_errors", **self.topics)
        lists = [(_("Dead letters of %(topic)s") % self.topics, url)]
        if self.filter.narrowed:
            lists.append((_("List"), page_url(self.request, "deadletter_list", **self.filter.query)))
        return [*super().parents(), *lists]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        offset = parse_number(self.request.GET.get("offset", ""))
        if offset is None:
            raise Http404(_("The offset of a dead letter must be a number"))
        dead_letter = dead_letters.one(conf.database(), offset)
        if dead_letter is None:
            self.title = _("Dead letter %(id)s") % {"id": offset}
            actions = allowed_url(self.request, "actions", model="deadletter", object=offset)
            return super().get_context_data(gone=True, actions_url=actions, **kwargs)
        row = dead_letter.row
        self.topics = visible.topics_of(dead_letter)
        self.filter = self._filter(self.topics)
        self.title = printable(_("Dead letter %(id)s") % {"id": row["original_id"]})
        shown = visible.masked_for(self.request, dead_letter)
        visibility = visible.visibility_of(self.request, row["original_topic"] or "", dead_letter.topic)
        everything = visibility.everything
        query = query_of(visibility.allowed(self.filter.cleaned_data))
        previous, following = (
            other and page_url(self.request, self.url_name, **{**self.filter.query, "offset": other})
            for other in dead_letter_list.neighbours(conf.database(), query, offset)
        )
        return super().get_context_data(
            previous=previous,
            following=following,
            list_query=urlencode(self.filter.query, errors="replace") if self.filter.narrowed else None,
            dead_letter=dead_letter,
            row=row,
            kind=dead_letter.metadata["kind"],
            error=_readable(shown.errors[-1].error if shown.errors else ""),
            earlier=[(one, _readable(one.error)) for one in shown.errors[:-1]],
            payload=visible.payload(dead_letter, shown, everything=everything),
            headers=payloads.document(dict(shown.headers)),
            is_ours=dead_letter.is_ours,
            may_edit=everything,
            details=dead_letter_details.dead_letter_details(conf.database(), dead_letter, RELATED),
            **self.topics,
            **kwargs,
        )

    def _filter(self, topics: Mapping[str, str | None]) -> DeadLetterFilter:
        """Return the filter in the URL. If it is not valid, or of another topic, all of the topic match."""
        given = DeadLetterFilter(self.request.GET)
        if given.is_valid() and given.cleaned_data["topic"] == topics["topic"]:
            return given
        every = DeadLetterFilter({name: value for name, value in topics.items() if value})
        every.is_valid()
        return every


def _readable(error: str) -> list[Part]:
    """Return the parts of an error's text that are not blank."""
    return [part for part in parts(plain(error)) if part.text.strip()]


class DeadLetterAdmin(ReadOnlyAdmin):
    views = (
        ErrorsPage, ListPage, DeadLetterDetailPage, RedriveSelected, RedriveMatching, PurgeSelected, PurgeMatching,
        EditDeadLetter, RunPage,
    )  # fmt: skip

    list_view = DeadLetterTopicList

    def row_url(self, request: HttpRequest, object_id: str) -> str | None:
        offset = parse_number(object_id)
        return None if offset is None else page_url(request, "deadletter", offset=offset)
