"""Pages of dead letters: a topic's dead letters by error, a list, and the page of one dead letter."""

from __future__ import annotations

from typing import Any

from django.http import Http404

from ... import conf
from ...browse import dead_letters, letter_story
from ...policy import names
from ...policy.errors import alike, plain
from ..base.display import printable
from ..base.links import address
from ..base.views import QueueView
from ..messages import payloads
from . import visible
from .letter_choice import LetterFilter, choice, dead_topic, list_url, query_text
from .tracebacks import parts
from .visible import Seen

PAGE = 50
EARLIER = 20


class _OfTopic(QueueView):
    """A page whose query holds the fields of ``LetterFilter``."""

    rights = ("view_deadletter",)
    form: LetterFilter

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.form = LetterFilter(self.request.GET)
        context: dict[str, Any] = {}
        if self.form.is_valid():
            asked = self.form.cleaned_data
            seen = visible.seen_by(self.request, asked["topic"], dead_topic(asked))
            context = {
                "topic": asked["topic"],
                "dead": asked["dead"],
                "dead_topic": dead_topic(asked),
                "seen": seen,
                **self.told(asked, seen),
            }
        self.title = self.named(context.get("topic"))
        return super().get_context_data(form=self.form, **context, **{**kwargs, "title": self.title})

    def told(self, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
        raise NotImplementedError

    def named(self, topic: str | None) -> str:
        raise NotImplementedError

    def url(self, page: str, **query: Any) -> str:
        """Return the URL of a page with the same filter. ``query`` replaces fields; None removes a field."""
        kept = {name: value for name, value in self.form.query.items() if name not in query}
        return address(self.request, page, **{**kept, **query})

    def below(self) -> int:
        text = self.request.GET.get("below", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else dead_letters.END


class ErrorsPage(_OfTopic):
    """The dead letters of a topic by error: ``?topic=&below=``, and the other fields of ``LetterFilter``."""

    route, url_name = "errors", "deadletter_errors"
    template_name = "admin/django_mqueue/dead_letter_errors.html"

    def named(self, topic: str | None) -> str:
        return printable(f"Dead letters of {topic}") if topic else "Dead letters"

    def told(self, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
        found = dead_letters.by_error(conf.database(), choice(seen.may_ask(asked)), self.below())
        errors = []
        for name, count, groups in seen.names(found.errors):
            rows = [
                {
                    "line": group.alike.line,
                    "url": self.url(
                        "deadletter_list", error=name or None, line=group.alike.line, exact=1, below=None
                    ),
                    "count": group.count,
                    "groups": sorted(group.groups.items()),
                    "first": group.first,
                    "last": group.last,
                }
                for group in (groups if seen.everything else [])
            ]
            errors.append(
                {
                    "name": name,
                    "count": count,
                    "url": self.url("deadletter_list", error=name, line=None, exact=1, below=None)
                    if name
                    else "",
                    "first": min(group.first for group in groups),
                    "last": max(group.last for group in groups),
                    "groups": _together(groups),
                    "rows": rows,
                }
            )
        return {
            "errors": errors,
            "looked": found.looked,
            "is_newest": self.below() == dead_letters.END,
            "then": found.next and self.url(self.url_name, below=found.next),
            "all_url": self.url("deadletter_list", below=None),
        }


def _together(groups: list[dead_letters.ErrorGroup]) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for one in groups:
        for group, count in one.groups.items():
            found[group] = found.get(group, 0) + count
    return sorted(found.items())


class LettersPage(_OfTopic):
    """A list of dead letters, newest first: the fields of ``LetterFilter``, and ``below``."""

    route, url_name = "list", "deadletter_list"
    template_name = "admin/django_mqueue/dead_letter_list.html"

    def named(self, topic: str | None) -> str:
        return printable(f"Dead letters of {topic}") if topic else "Dead letters"

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, here = super().crumbs()
        if not self.form.is_valid():
            return [*above, here]
        of = {"topic": self.form.data.get("topic"), "dead": self.form.data.get("dead") or None}
        return [*above, (str(here[0]), address(self.request, "deadletter_errors", **of)), ("List", None)]

    def told(self, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
        found = dead_letters.page(conf.database(), choice(seen.may_ask(asked)), self.below(), limit=PAGE)
        rows = [
            {
                "head": head,
                "error": plain(head.error).partition("\n")[0]
                if seen.everything
                else seen.name(head.alike.name),
                "url": address(self.request, "deadletter", offset=head.offset),
            }
            for head in found.heads
        ]
        return {
            "rows": rows,
            "looked": found.looked,
            "then": found.next and self.url(self.url_name, below=found.next),
            "is_first": self.below() == dead_letters.END,
            "first_url": self.url(self.url_name, below=None),
            "was": query_text(dict(self.request.GET.items())),
            "narrowed": self.form.narrowed,
            "given": self.form.query,
            "clear_url": address(
                self.request, self.url_name, topic=asked["topic"], dead=asked["dead"] or None
            ),
        }


class LetterPage(QueueView):
    """One dead letter: ``?offset=``."""

    route, url_name, rights = "letter", "deadletter", ("view_deadletter",)
    template_name = "admin/django_mqueue/dead_letter.html"
    of: dict[str, Any] | None = None

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, here = super().crumbs()
        if self.of is None:
            return [*above, here]
        topic = (f"Dead letters of {self.of['topic']}", address(self.request, "deadletter_errors", **self.of))
        return [*above, topic, here]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        text = self.request.GET.get("offset", "")
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Http404("A dead letter is named by its offset.")
        letter = dead_letters.one(conf.database(), int(text))
        if letter is None:
            self.title = f"Dead letter {text}"
            return super().get_context_data(gone=True, **{**kwargs, "title": self.title})
        row, topic = letter.row, letter.row["original_topic"] or ""
        dead = None if conf.dead_letter_topic(topic) == letter.topic else letter.topic
        self.of = {"topic": topic, "dead": dead}
        self.title = printable(f"Dead letter {row['original_id']}")
        shown = visible.shown(self.request, letter)
        may_edit = visible.seen_by(self.request, topic, letter.topic).everything
        told = letter_story.dead_letter_details(conf.database(), letter, EARLIER)
        error = shown.errors[-1].error if shown.errors else ""
        return super().get_context_data(
            letter=letter,
            row=row,
            topic=topic,
            dead=dead,
            key=names.key_of(row["partition"]),
            kind=letter.metadata["kind"],
            shown=shown,
            error_name=alike(error).name,
            error=_readable(error),
            earlier=[(one, _readable(one.error)) for one in shown.errors[:-1]],
            payload=visible.payload(letter, shown, everything=may_edit),
            headers=payloads.document(dict(shown.headers)),
            is_ours=letter.is_ours,
            may_edit=may_edit,
            original_offset=told.original,
            returns=told.returns,
            siblings=told.siblings,
            is_registered=told.is_registered,
            back=list_url(self.request, self.of),
            **{**kwargs, "title": self.title},
        )


def _readable(error: str) -> list[dict[str, Any]]:
    """Return the parts of an error's text for the template."""
    return [
        {"is_library": part.is_library, "places": part.places, "text": part.text}
        for part in parts(plain(error))
        if part.text.strip()
    ]
