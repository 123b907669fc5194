"""Operations: ask for input, show a plan, let the user confirm it by POST, perform it, and log it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.datastructures import MultiValueDict

from ...exceptions import MQueueError
from . import audit
from .audit import CHANGE, Subject
from .display import printable
from .views import QueueView

logger = logging.getLogger("django_mqueue")

Asked = Mapping[str, Any]
"""The form's cleaned data."""


def _lists(values: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [value] for name, value in values.items()}


class Refused(Exception):
    """The operation cannot be done. The text says why, and what the user can do instead."""


@dataclass(frozen=True)
class Plan:
    """The effect of an operation, shown before it is performed.

    ``what``: the question that the user confirms, with the count in it.
    """

    what: str
    consequences: Sequence[str] = ()
    warnings: Sequence[str] = ()
    """Shown before the consequences: the effect is probably not what the user wants."""
    button: str = "Yes, do it"
    is_destructive: bool = False
    is_empty: bool = False
    """The operation would change nothing: the page has no button."""
    ask: Sequence[str] = ()
    """Fields of the form that the user can change next to the button. The other fields are hidden."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Fields on which the plan depends, with their values. The button's POST sends them back."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Additional context for the template."""


@dataclass(frozen=True)
class Done:
    """The result of an operation, or of one of its steps.

    ``told``: the text for the user and for the log. ``more``: another step follows. ``carried``: data for the next step
    (JSON). ``count`` and ``total``: the progress that is shown.
    """

    told: str
    count: int = 0
    total: int | None = None
    more: bool = False
    carried: Mapping[str, Any] = field(default_factory=dict)
    level: int = messages.SUCCESS


class Operation(QueueView):
    """A view that asks for input, shows a plan, and performs the plan after confirmation.

    Subclasses define the input (``form_class``), the effect (``plan``) and the work (``perform``). A GET, or a POST
    without ``confirmed``, changes nothing: the view shows the form if it is incomplete, else the plan with a button.
    The button's POST performs the operation.

    ``plan`` and ``perform`` may raise ``Refused``, ``MQueueError`` or ``ValueError``; the view shows the error.

    A long operation runs in steps (see ``Done.more``). Each step is a POST of its own. A script in the browser sends
    it; without scripts, the user sends it. The user can stop the operation between two steps.
    """

    template_name = "admin/django_mqueue/operation.html"
    form_class: ClassVar[type[forms.Form]] = forms.Form
    flag: ClassVar[int] = CHANGE
    prompt: ClassVar[str] = ""
    """The text above the form."""
    next_button: ClassVar[str] = "Go on"

    def plan(self, asked: Asked) -> Plan:
        raise NotImplementedError

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        """Perform the operation, or its next step. ``carried``: data of the previous step; empty in the first step."""
        raise NotImplementedError

    def subject(self, asked: Asked) -> Subject:
        raise NotImplementedError

    def back(self, asked: Asked | None) -> str:
        """Return the URL for the end of the operation, or for cancelling it.

        ``asked`` is None if the input is invalid.
        """
        raise NotImplementedError

    def form(self, data: Any) -> forms.Form:
        """Return the form: bound if the data has all required fields, else unbound with the data as initial values."""
        bound = self.form_class(data)
        if all(name in data for name, one in bound.fields.items() if one.required):
            return bound
        return self.form_class(initial={name: data.get(name) for name in bound.fields if name in data})

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form(request.GET)
        return self._shown(form) if form.is_valid() else self._asked(form)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self.form_class(request.POST)
        if not form.is_valid():
            return self._asked(form)
        if request.POST.get("confirmed") != "yes":
            return self._shown(form)
        return self._stopped(form) if "stop" in request.POST else self._performed(form)

    def _asked(self, form: forms.Form) -> HttpResponse:
        back = self.back(form.cleaned_data if form.is_bound and form.is_valid() else None)
        context = self.get_context_data(title=self.title, form=form, back=back, prompt=self.prompt)
        return self.render_to_response(context, status=400 if form.errors else 200)

    def _shown(self, form: forms.Form) -> HttpResponse:
        try:
            plan = self.plan(form.cleaned_data)
        except (Refused, MQueueError, ValueError) as problem:
            return self._refused(form, problem)
        if plan.fixed:
            form.data = MultiValueDict({**dict(cast("QueryDict", form.data).lists()), **_lists(plan.fixed)})
        context = self.get_context_data(
            title=self.title, form=form, plan=plan, back=self.back(form.cleaned_data), **plan.context
        )
        return self.render_to_response(context)

    def _refused(self, form: forms.Form, problem: Exception) -> HttpResponse:
        form.add_error(None, printable(str(problem)))
        context = self.get_context_data(title=self.title, form=form, back=self.back(None), refused=True)
        return self.render_to_response(context, status=409)

    def _performed(self, form: forms.Form) -> HttpResponse:
        asked = form.cleaned_data
        entry, carried = self._entry(asked)
        try:
            done = self.perform(asked, carried)
        except (Refused, MQueueError, ValueError) as problem:
            audit.end(entry, f"Refused: {problem}")
            return self._refused(form, problem)
        audit.end(entry, done.told if not done.more else f"Under way: {done.told}")
        if done.more:
            step = {"entry": entry.pk, "mark": audit.mark_of(entry), "of": _digest(asked), "told": done.told}
            token = signing.dumps({**step, "carried": dict(done.carried)}, salt=self._salt)
            context = self.get_context_data(
                title=self.title, form=form, done=done, token=token, back=self.back(asked)
            )
            return self.render_to_response(context)
        messages.add_message(self.request, done.level, printable(done.told))
        return HttpResponseRedirect(self.back(asked))

    def _stopped(self, form: forms.Form) -> HttpResponse:
        """Log that the user stopped between two steps. Completed steps remain done."""
        asked = form.cleaned_data
        step = self._step(asked)
        user = self.request.user.pk
        assert user is not None
        entry = audit.go_on(step["entry"], user, step["mark"]) if step else None
        told = "Stopped. Steps that are done stay done."
        if entry is not None:
            told = f"Stopped: {step['told']}"
            audit.end(entry, told)
        messages.add_message(self.request, messages.WARNING, printable(told))
        return HttpResponseRedirect(self.back(asked))

    def _entry(self, asked: Asked) -> tuple[LogEntry, Mapping[str, Any]]:
        """Return the log entry and the data of the previous step, or a new entry for a first step.

        Each step runs once. If a request repeats a step, it counts as a first step with a new entry. So no entry
        reports fewer objects than were changed.
        """
        user, step = self.request.user.pk, self._step(asked)
        assert user is not None
        if step:
            found = audit.go_on(step["entry"], user, step["mark"])
            if found is not None:
                return found, step["carried"]
        return audit.begin(user, self.subject(asked), self.flag, str(self.title)), {}

    @property
    def _salt(self) -> str:
        return f"django_mqueue.{self.url_name}.{self.request.user.pk}"

    def _step(self, asked: Asked) -> dict[str, Any]:
        """Return the signed data of the previous step, or {} without valid data.

        Data of another input or another user, and forged data, are not valid. The request is then a first step with its
        own log entry, which is harmless.
        """
        try:
            found = signing.loads(self.request.POST.get("step", ""), salt=self._salt)
        except signing.BadSignature:
            return {}
        return found if isinstance(found, dict) and found.get("of") == _digest(asked) else {}


def _digest(asked: Asked) -> str:
    return sha256(repr(sorted(asked.items())).encode("utf-8", "backslashreplace")).hexdigest()
