"""The page of one item, the page of a step, and the page of figures."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.generic import TemplateView

from ...admin.base.display import Text, duration, printable
from ...admin.base.forms import parse_number
from ...admin.messages import payloads
from ...admin.messages.masking import sees_all
from ...browse.masking import masked
from ...results import Inspected
from .. import figures, states
from ..intake import message_of
from ..models import WorkItem, WorkStep
from ..registry import Worklist, worklist_of
from ..rights import has, may_ever, verbs_for
from ..states import WorklistError
from ..steps import bulk
from . import display
from .forms import FORMS, StepForm
from .urls import item_url, list_url, step_url

ITEMS_MAX = 500
"""Maximum number of items in one request, and on all pages of the list together."""
ONE_CLICK = (states.TAKE, states.HAND_BACK, states.UNASSIGN, states.AUTOMATE)
"""Verbs that need no input: their buttons take the step at once."""


class WorklistView(TemplateView):
    """A page of worklists in the admin."""

    model_admin: ModelAdmin[WorkItem] = None  # type: ignore[assignment]
    """``as_view`` sets it."""
    title: Text = ""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.request.current_app = self.model_admin.admin_site.name
        site, opts = self.model_admin.admin_site, self.model_admin.opts
        own = {"opts": opts, "media": self.model_admin.media, "title": self.title, **kwargs}
        own["crumbs"] = [
            (_("Home"), reverse("admin:index", current_app=site.name)),
            (
                str(opts.app_config.verbose_name),
                reverse("admin:app_list", args=(opts.app_label,), current_app=site.name),
            ),
            (_("Work items"), own["list_url"]),
            (own["title"], None),
        ]
        return super().get_context_data(**{**site.each_context(self.request), **own})


class ItemPage(WorklistView):
    """One item: its message, its linked object, its history, and the steps that the user may take now."""

    template_name = "admin/mqueue_worklists/workitem/item.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        site = self.model_admin.admin_site
        item = item_of(self.model_admin, self.request, self.kwargs["object_id"])
        message = message_of(item)
        sees_message = sees_all(self.request, message.topic)
        if not sees_message:
            message = masked(message)
        return super().get_context_data(
            item=item,
            title=printable(item.title),
            state=display.state_badge(item),
            due=display.due(item),
            assignee=display.assignee(item),
            linked=display.linked(self.request, site, item),
            payload=payloads.body(message),
            headers=payloads.document(message.headers or None),
            result=None if item.result is None else self._result(item),
            error=message.errors[-1].error if message.errors else "",
            attributes=_shown_attributes(item, message, sees_message),
            history=[self._change(step, sees_message) for step in item.history.reverse()],
            buttons=[
                (verb, display.VERB_TEXTS[verb], step_url(site, verb), verb in ONE_CLICK)
                for verb in verbs_for(item, self.request.user)
            ],
            list_url=list_url(site, item.worklist),
            **kwargs,
        )

    def _result(self, item: WorkItem) -> str:
        return payloads.document(item.result) if sees_all(self.request, item.topic) else _("masked")

    def _change(self, step: WorkStep, sees_message: bool) -> tuple[WorkStep, Text, list[tuple[str, str]]]:
        """Return a step of the history, its name, and (label, value) of its details."""
        details = []
        if step.before and step.before != step.after:
            details.append((_("State"), str(display.state_text(step.after))))
        if step.data.get("assignee") and step.step in ("assigned", "returned"):
            details.append((_("User"), step.data["assignee"]))
        if step.data.get("team") and step.step == "assigned" and not step.data.get("assignee"):
            details.append((_("Team"), step.data["team"]))
        if step.data.get("error"):
            details.append((_("Error"), step.data["error"] if sees_message else _("masked")))
        return step, display.STEP_TEXTS.get(step.step, step.step), details


def _shown_attributes(item: WorkItem, message: Inspected, sees_message: bool) -> list[tuple[str, str]]:
    """Return names and values. A value is masked if the masked payload has another value for the name."""
    payload = message.payload if isinstance(message.payload, dict) else {}
    return [
        (one.name, one.value if sees_message or str(payload.get(one.name)) == one.value else _("masked"))
        for one in item.attributes.order_by("name")
    ]


class StepPage(WorklistView):
    """Take a step with one item, or with several. A GET asks for input, and changes nothing.

    Each parameter ``item`` is a number and a version: ``17-3``. A step from a page that is out of date is refused.
    """

    template_name = "admin/mqueue_worklists/workitem/step.html"
    items: list[WorkItem]

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.verb = kwargs["verb"]
        if self.verb not in states.VERBS:
            raise Http404
        self.title = display.VERB_TEXTS[self.verb]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        given = request.POST if request.method == "POST" else request.GET
        pairs = [one.partition("-") for one in given.getlist("item")][:ITEMS_MAX]
        numbers = [(parse_number(pk), parse_number(version)) for pk, _dash, version in pairs]
        versions = {pk: version for pk, version in numbers if pk is not None and version is not None}
        self.items = list(self.model_admin.get_queryset(request).filter(pk__in=versions).order_by("pk"))
        for item in self.items:
            item.version = versions[item.pk]
        if not self.items:
            raise Http404
        if not may_ever(request.user, self.worklist, self.verb):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    @property
    def worklist(self) -> Worklist:
        return self.items[0].rules

    def form(self, data: Any = None) -> StepForm:
        return FORMS.get(self.verb, StepForm)(data, self.worklist, self.items)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        kwargs.setdefault("form", self.form())
        return super().get_context_data(
            items=self.items,
            items_count=len(self.items),
            list_url=list_url(self.model_admin.admin_site, self.worklist.name),
            step_url=step_url(self.model_admin.admin_site, self.verb),
            back=self._back(),
            **kwargs,
        )

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        arguments = {**form.arguments(), "by": self.request.user}
        arguments["text" if self.verb == states.COMMENT else "comment"] = form.cleaned_data["comment"]
        problems = bulk(self.items, self.verb, **arguments)
        refused = [self._problem(item, problems[item.pk]) for item in self.items if item.pk in problems]
        if refused and len(self.items) == 1:
            form.add_error(None, printable(refused[0]))
            return self.render_to_response(self.get_context_data(form=form, refused=True), status=409)
        self._report(refused)
        return HttpResponseRedirect(self._back())

    def _problem(self, item: WorkItem, text: str) -> str:
        if item.failed_in_work and not sees_all(self.request, item.topic):
            return _("Item %(item)s: its work failed. The error is masked.") % {"item": item.pk}
        return text

    def _report(self, refused: list[str]) -> None:
        changed = len(self.items) - len(refused)
        if changed:
            text = ngettext(
                "%(count)s item changed: %(step)s.", "%(count)s items changed: %(step)s.", changed
            )
            messages.success(self.request, text % {"count": changed, "step": self.title})
        for problem in refused[:10]:
            messages.error(self.request, printable(problem))
        if len(refused) > 10:
            messages.error(self.request, _("%(count)s more were refused.") % {"count": len(refused) - 10})

    def _back(self) -> str:
        if len(self.items) == 1:
            return item_url(self.model_admin.admin_site, self.items[0])
        return list_url(self.model_admin.admin_site, self.worklist.name)


class FiguresPage(WorklistView):
    """The figures of one worklist: open items by state, and what was finished by week and kind."""

    template_name = "admin/mqueue_worklists/workitem/figures.html"
    title = gettext_lazy("Figures")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        try:
            worklist = worklist_of(self.kwargs["worklist"])
        except WorklistError as problem:
            raise Http404(str(problem)) from problem
        if not has(self.request.user, worklist, "view"):
            raise PermissionDenied
        found = figures.open_items(worklist.name)
        weeks = figures.finished(worklist.name)
        return super().get_context_data(
            name=worklist.name,
            open=[(display.state_text(state), counted(count)) for state, count in found.by_state.items()],
            overdue=counted(found.overdue),
            oldest=found.oldest,
            weeks=[(row, row.week.date(), f"{row.share:.0%}", duration(row.mean)) for row in weeks],
            list_url=list_url(self.model_admin.admin_site, worklist.name),
            **kwargs,
        )


def counted(count: int) -> str:
    """Return a count, with a plus sign if there may be more."""
    return f"{count:,}" if count < figures.COUNTED else f"{count:,}+"


def item_of(model_admin: ModelAdmin[WorkItem], request: HttpRequest, object_id: str) -> WorkItem:
    """Return the item of a URL. Raises ``Http404`` if there is none that the user may see."""
    items = model_admin.get_queryset(request).defer(None)
    return get_object_or_404(items, pk=parse_number(object_id))
