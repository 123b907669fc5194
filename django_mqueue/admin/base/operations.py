"""Operations: ask for input, show a plan, let the user confirm it by POST, perform it, and log it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...exceptions import MQueueError
from ...models import ConsumerGroup, Topic
from ...service.actions import ADMIN, BY_MAX, WHY_MAX, through
from . import row_ids
from .display import Text, printable, problem_text, seconds_text
from .views import QueueView

Data = Mapping[str, Any]
"""The cleaned data of the operation's form."""


class Refused(Exception):
    """The operation cannot be done. The text says why, and what the user can do instead."""


class Subject(NamedTuple):
    """The object of a log entry. ``id``: the key of its page in the admin; empty if it has no page."""

    model: type[Model]
    id: str
    name: str


def topic_subject(topic: str) -> Subject:
    return Subject(Topic, row_ids.encode((topic,)), topic)


def group_subject(topic: str, group: str) -> Subject:
    return Subject(ConsumerGroup, row_ids.encode((topic, group)), group_title(topic, group))


def group_title(topic: str, group: str) -> str:
    return _("%(group)s on %(topic)s") % {"group": group, "topic": topic}


def notice_time(topic: str) -> str:
    """Return the sentence about the time until workers notice the change of an operation."""
    return _("Subscribers notice it within %(time)s.") % {
        "time": seconds_text(conf.get("DISCOVERY_INTERVAL", topic))
    }


@dataclass(frozen=True)
class Plan:
    """The effect of an operation, shown before it is performed.

    ``what``: the question that the user confirms. If ``is_empty``: the reason why nothing would change.
    """

    what: str
    consequences: Sequence[Text] = ()
    warnings: Sequence[str] = ()
    """Shown before the consequences: the effect is probably not what the user wants."""
    button: Text = gettext_lazy("Confirm")
    is_destructive: bool = False
    is_empty: bool = False
    """The operation would change nothing: the page has no button."""
    ask: Sequence[str] = ()
    """Fields of the form that the user can change next to the button. The other fields are hidden."""
    again: Text = ""
    """The title of a button that shows the plan again, with the fields that the user has changed."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Fields on which the plan depends, with their values. The button's POST sends them back."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Additional context for the template."""


@dataclass(frozen=True)
class Result:
    """The result of an operation, or of one of its steps.

    ``message``: the text for the user and for the log, in the user's language. ``logged``: a text for the log only.
    ``url``: the page that shows the result, if it is not the page from which the operation began. ``more``: another
    step follows.
    ``carried``: data for the next step (JSON). ``count`` and ``total``: the progress that is shown between steps.
    """

    message: str
    level: int = messages.SUCCESS
    logged: str = ""
    url: str | None = None
    more: bool = False
    count: int = 0
    total: int = 0
    carried: Mapping[str, Any] = field(default_factory=dict)


class Operation(QueueView):
    """A view that asks for input, shows a plan, and performs the plan after confirmation.

    Subclasses define the input (``form_class``), the effect (``plan``) and the work (``perform``). A GET, or a POST
    without ``confirmed``, changes nothing: the view shows the form if it is incomplete, else the plan with a button.
    The button's POST performs the operation.

    ``plan`` and ``perform`` may raise ``Refused``, ``MQueueError`` or ``ValueError``; the view shows the error.

    A long operation runs in steps (see ``Result.more``). If a worker can continue it (``hand_over``), the view does
    only the first step. Otherwise each step is a POST of its own. A script in the browser sends it; without scripts,
    the user sends it. The user can stop the operation between two steps.
    """

    template_name = "admin/django_mqueue/operation.html"
    form_class: ClassVar[type[forms.Form]] = forms.Form
    why_max = WHY_MAX
    flag: ClassVar[int] = CHANGE
    prompt: Text = ""
    """The text above the form."""
    next_button: ClassVar[Text] = gettext_lazy("Continue")
    carried: Mapping[str, Any] = MappingProxyType({})

    @property
    def user_name(self) -> str:
        """Return the name of the user, for the record of actions."""
        return self.request.user.get_username()[:BY_MAX]

    @property
    def reason(self) -> str:
        """Return the reason that the user gave in the confirmation, for the record of actions, or ""."""
        return self.request.POST.get("reason", "").strip()[:WHY_MAX]

    def plan(self, data: Data) -> Plan:
        raise NotImplementedError

    def perform(self, data: Data) -> Result:
        """Perform the operation, or its next step. ``carried`` holds the data of the previous step."""
        raise NotImplementedError

    def subject(self, data: Data) -> Subject:
        raise NotImplementedError

    def back(self, data: Data | None) -> str | None:
        """Return the URL after the operation, or for cancelling it. None leads to the site's index.

        ``data``: the cleaned data; None if the input is invalid or the operation was refused.
        """
        raise NotImplementedError

    def hand_over(self, entry: LogEntry, form: forms.Form, result: Result) -> str | None:
        """Let a worker do the remaining steps. Return the URL of the page with the progress; None if no worker can.

        ``entry``: the entry in the log of actions, which the worker then changes.
        """
        return None

    def stopped(self, data: Data, carried: Mapping[str, Any]) -> None:
        """Handle a stop by the user between two steps. ``carried``: the data of the previous step."""

    def form(self, data: Any) -> forms.Form:
        """Return the form: bound if the data has all required fields, else unbound with the data as initial values."""
        bound = self.form_class(data)
        if all(name in data for name, one in bound.fields.items() if one.required):
            return bound
        return self.form_class(initial={name: data.get(name) for name in bound.fields if name in data})

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form(request.GET)
        return self._show_plan(form) if form.is_valid() else self._show_form(form)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form_class(request.POST)
        if not form.is_valid():
            return self._show_form(form)
        if request.POST.get("confirmed") != "yes" or "again" in request.POST:
            return self._show_plan(form)
        return self._stop(form) if "stop" in request.POST else self._perform(form)

    def _page(self, form: forms.Form, data: Data | None, status: int = 200, **context: Any) -> HttpResponse:
        context = self.get_context_data(form=form, back=self._url_after(data), **context)
        return self.render_to_response(context, status=status)

    def _url_after(self, data: Data | None) -> str:
        return self.back(data) or self.index_url()

    def _show_form(self, form: forms.Form) -> HttpResponse:
        return self._page(form, None, 400 if form.errors else 200, prompt=self.prompt)

    def _show_plan(self, form: forms.Form) -> HttpResponse:
        try:
            plan = self.plan(form.cleaned_data)
        except (Refused, MQueueError, ValueError) as problem:
            return self._refuse(form, problem)
        fixed = {name: [value] for name, value in plan.fixed.items()}
        form.data = MultiValueDict({**dict(cast("QueryDict", form.data).lists()), **fixed})
        return self._page(form, form.cleaned_data, plan=plan, **plan.context)

    def _refuse(self, form: forms.Form, problem: Exception, done: str = "") -> HttpResponse:
        """Show why the operation ended. ``done``: the message of the steps before; empty if there was none."""
        form.add_error(None, problem_text(problem))
        refused = (
            _("Finished steps remain: %(message)s") % {"message": done} if done else _("Nothing was changed.")
        )
        return self._page(form, None, 409, refused=refused)

    def _perform(self, form: forms.Form) -> HttpResponse:
        data = form.cleaned_data
        entry, step = self._resume(data)
        if entry is None:  # The entry is written first, so that no operation runs without an entry.
            subject = self.subject(data)
            entry = LogEntry.objects.create(
                user_id=cast("int", self.request.user.pk),
                content_type=ContentType.objects.get_for_model(subject.model, for_concrete_model=False),
                object_id=subject.id or None,
                object_repr=printable(subject.name)[:200],
                action_flag=self.flag,
                change_message=_("Begun: %(title)s") % {"title": self.title},
            )
        self.carried = step.get("carried", {})
        try:
            with through(ADMIN):
                result = self.perform(data)
        except (Refused, MQueueError, ValueError) as problem:
            done = step.get("message", "")
            refused = _("Refused: %(reason)s") % {"reason": problem_text(problem)}
            self._log(entry, f"{done} {refused}" if done else refused)
            return self._refuse(form, problem, done)
        if result.more:
            self._log(entry, _("Under way: %(message)s") % {"message": result.message})
            if url := self.hand_over(entry, form, result):
                return HttpResponseRedirect(url)
            step = {"entry": entry.pk, "log": entry.change_message, "of": _digest(data)}
            step |= {"message": result.message, "carried": dict(result.carried)}
            return self._page(form, data, result=result, token=signing.dumps(step, salt=self._salt))
        self._log(entry, result.message, result.logged)
        messages.add_message(self.request, result.level, printable(result.message))
        return HttpResponseRedirect(result.url or self._url_after(data))

    def _stop(self, form: forms.Form) -> HttpResponse:
        """Log that the user stopped between two steps. Completed steps remain done."""
        entry, step = self._resume(form.cleaned_data)
        message = _("Stopped. Finished steps remain.")
        if entry is not None:
            message = _("Stopped: %(message)s") % {"message": step["message"]}
            self._log(entry, message)
            self.stopped(form.cleaned_data, step["carried"])
        messages.add_message(self.request, messages.WARNING, printable(message))
        return HttpResponseRedirect(self._url_after(form.cleaned_data))

    def _log(self, entry: LogEntry, message: str, more: str = "") -> None:
        message = with_reason(message, self.reason)
        entry.change_message = printable(f"{message}\n{more}" if more else message)
        entry.save(update_fields=["change_message"])

    @property
    def _salt(self) -> str:
        return f"django_mqueue.{self.url_name}.{self.request.user.pk}"

    def _resume(self, data: Data) -> tuple[LogEntry | None, dict[str, Any]]:
        """Return the log entry and the signed data of the previous step, or (None, {}) for a first step.

        Each step runs once. If the data is used again, forged, or from another user or input, the request is a first
        step with a new entry. So each entry reports all objects that its steps changed.
        """
        try:
            step: dict[str, Any] = signing.loads(self.request.POST.get("step", ""), salt=self._salt)
        except signing.BadSignature:
            return None, {}
        entries = LogEntry.objects.filter(pk=step["entry"])
        is_next = step["of"] == _digest(data) and entries.filter(change_message=step["log"]).update(
            change_message=_("%(message)s Continuing.") % {"message": step["log"]}
        )
        return (entries.get(), step) if is_next else (None, {})


def with_reason(message: str, reason: str) -> str:
    """Return a text for the log of actions: the message, and the reason that the user gave, if any."""
    if not reason:
        return message
    return _("%(message)s Reason: %(reason)s") % {"message": message, "reason": reason}


def _digest(data: Data) -> str:
    return sha256(repr(sorted(data.items())).encode("utf-8", "backslashreplace")).hexdigest()
