"""What operators do: asked for, shown with its consequences, confirmed by POST, done, told and written down."""

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

from ..exceptions import MQueueError
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
    """It cannot be done; the text says why, and what can be done instead."""


@dataclass(frozen=True)
class Plan:
    """What will happen, shown before it does. ``what`` is the sentence to agree to, with the count in it."""

    what: str
    consequences: Sequence[str] = ()
    warnings: Sequence[str] = ()
    """Shown before the consequences: the user has probably not asked for what will happen."""
    button: str = "Yes, do it"
    is_destructive: bool = False
    is_empty: bool = False
    """There is nothing to do: no button."""
    ask: Sequence[str] = ()
    """Fields of the form that can be changed beside the button; the others are hidden there."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Fields that what is shown rests on, with their values: they come back with the button."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """For the template of an operation that shows more."""


@dataclass(frozen=True)
class Done:
    """What came of it: ``told`` is for the user and for the log of actions.

    ``more``: there is more to do; ``carried`` is what the next step is told (JSON), ``count`` and ``total`` are for the
    progress that is shown.
    """

    told: str
    count: int = 0
    total: int | None = None
    more: bool = False
    carried: Mapping[str, Any] = field(default_factory=dict)
    level: int = messages.SUCCESS


class Operation(QueueView):
    """Subclasses say what is asked for (``form_class``), what it would do (``plan``) and do it (``perform``).

    A GET, or a POST without ``confirmed``, changes nothing: with a form that is not complete it shows the form, else
    the plan with a button. The button's POST performs. Both methods may raise ``Refused``, errors of the queue's own
    and ``ValueError``: they are shown with the form. What takes long is done in steps, see ``Done.more``: each step is
    a POST of its own, which the browser sends by itself, or the user where there is no script; between steps it can be
    stopped.
    """

    template_name = "admin/django_mqueue/operation.html"
    form_class: ClassVar[type[forms.Form]] = forms.Form
    flag: ClassVar[int] = CHANGE
    prompt: ClassVar[str] = ""
    """What stands over the form."""
    next_button: ClassVar[str] = "Go on"

    def plan(self, asked: Asked) -> Plan:
        raise NotImplementedError

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        """``carried`` is empty in the first step."""
        raise NotImplementedError

    def subject(self, asked: Asked) -> Subject:
        raise NotImplementedError

    def back(self, asked: Asked | None) -> str:
        """Where to go when it is over, or given up; ``asked`` is None where what was asked for cannot be read."""
        raise NotImplementedError

    def form(self, data: Any) -> forms.Form:
        """The form; unbound, with what the data say as initial values, if they are no more than a beginning."""
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
        """Between two steps: what is done stays done, and is told."""
        asked = form.cleaned_data
        step = self._step(asked)
        user = self.request.user.pk
        assert user is not None
        entry = audit.go_on(step["entry"], user, step["mark"]) if step else None
        told = "Stopped. What was done stays done."
        if entry is not None:
            told = f"Stopped: {step['told']}"
            audit.end(entry, told)
        messages.add_message(self.request, messages.WARNING, printable(told))
        return HttpResponseRedirect(self.back(asked))

    def _entry(self, asked: Asked) -> tuple[LogEntry, Mapping[str, Any]]:
        """That of the step before, with what it carried; or a new one for a first step.

        A step is done once: one that is sent again is a first step with an entry of its own, so that no entry tells of
        fewer than there were.
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
        """What the step before has left. Of something else that was asked for, of somebody else, or forged: a first
        step, which does no harm, and has an entry of its own."""
        try:
            found = signing.loads(self.request.POST.get("step", ""), salt=self._salt)
        except signing.BadSignature:
            return {}
        return found if isinstance(found, dict) and found.get("of") == _digest(asked) else {}


def _digest(asked: Asked) -> str:
    return sha256(repr(sorted(asked.items())).encode("utf-8", "backslashreplace")).hexdigest()
