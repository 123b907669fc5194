"""Dead letters: the list of topics that have some, and the model's pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase

from ... import conf
from ...browse import letter_topics
from ..base.links import address
from ..base.pages import ReadOnlyAdmin
from ..base.views import QueueView
from .letter_editing import EditLetter
from .letter_operations import PurgeMatching, PurgeSelected, RedriveMatching, RedriveSelected
from .letter_pages import ErrorsPage, LetterPage, LettersPage

TOPICS = 50


class DeadLetterTopics(QueueView):
    """A part of the topics that have dead letters. ``?after=`` continues the list."""

    rights = ("view_deadletter",)
    title = "Dead letters"
    template_name = "admin/django_mqueue/dead_letter_topics.html"

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, _, here = super().crumbs()
        return [*above, here]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        after = self.request.GET.get("after", "")
        found = letter_topics.topics(conf.database(), after, TOPICS)
        rows = []
        for one in found.topics:
            dead = None if conf.dead_letter_topic(one.topic) == one.dead_topic else one.dead_topic
            rows.append(
                {
                    "topic": one.topic,
                    "dead": dead,
                    "url": address(self.request, "deadletter_errors", topic=one.topic, dead=dead),
                    "groups": [
                        (group, count, count >= found.cap) for group, count in sorted(one.groups.items())
                    ],
                    "first": one.first,
                    "newest": one.newest,
                }
            )
        then = found.next and address(self.request, "deadletter_changelist", after=found.next)
        return super().get_context_data(rows=rows, after=after, then=then, **{**kwargs, "title": self.title})


class DeadLetterAdmin(ReadOnlyAdmin):
    """Lists topics instead of rows. Each dead letter has a page of its own."""

    order = ("-offset",)
    views = (
        ErrorsPage,
        LettersPage,
        LetterPage,
        RedriveSelected,
        RedriveMatching,
        PurgeSelected,
        PurgeMatching,
        EditLetter,
    )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        response: HttpResponseBase = DeadLetterTopics.as_view(page=self)(request)
        assert isinstance(response, HttpResponse)
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Redirect Django's own links, such as those in its log of actions, to the dead letter's page."""
        request.current_app = self.admin_site.name
        if object_id.isascii() and object_id.isdigit():
            return HttpResponseRedirect(address(request, "deadletter", offset=object_id))
        return HttpResponseRedirect(address(request, "deadletter_changelist"))
