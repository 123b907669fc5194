"""Redrives and purges that workers continue: one step of them, and the page of their progress."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone, translation
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...browse import bulk_redrive
from ...exceptions import Postpone
from ...policy.durations import moment_ms
from ...policy.message_query import DEAD
from ...protocol.delivery import Delivery
from ...service import bulk_work
from ...service.redrive import AT_ONCE
from ...store.queries.group_rows import now_ms
from ..base.display import Text, printable
from ..base.forms import parse_offset
from ..base.operations import Data, with_reason
from ..base.urls import may_open, page_url
from ..base.views import QueueView
from . import handing_over
from .filters import list_url, query_of
from .handing_over import Work
from .operations import DeadLetterOperation, PurgeMatching, PurgeSelected, RedriveMatching, RedriveSelected
from .run import Run

OPERATIONS: dict[str, type[DeadLetterOperation]] = {
    one.url_name: one for one in (RedriveSelected, RedriveMatching, PurgeSelected, PurgeMatching)
}
STOP_TRIES = 20
"""A worker changes the entry about once a second, so a stop may need another try."""


def do_step(delivery: Delivery, *, is_last_attempt: bool) -> None:
    """Do one step of a redrive or a purge, and store the message of the next step.

    The operation ends if its entry in the log of actions has changed, because a user has stopped it. The entry may be
    in another database, so it is written after the commit. If the process dies before that, the next step writes it.
    """
    work = Work(**delivery.payload)
    using = delivery.status.acknowledger.context.using
    entry = LogEntry.objects.filter(pk=work.entry).first()
    if entry is None or entry.change_message not in work.logs:
        return
    due = moment_ms("published_at", delivery.published_at) + int(work.pause * 1000)
    if (wait := due - now_ms(using)) > 0:
        raise Postpone(wait / 1000)
    before = entry.change_message
    # In the language and the time zone of the user who started the operation.
    with translation.override(work.language), timezone.override(work.zone):
        operation, data = _opened(work)
        run = Run(**work.carried)
        moved = run.moved
        if is_last_attempt:
            error = delivery.last_error.partition(":")[0]  # The rest may have values of masked payloads.
            values = {"message": operation.message(run, data), "error": error}
            text = stopped = _("Failed with %(error)s: %(message)s") % values
        else:
            run.add(_step(using, operation, data, run))
            values = {"message": operation.message(run, data)}
            text, stopped = operation.message(run, data), _("Stopped: %(message)s") % values
            if run.position is not None:
                text = _("Under way: %(message)s") % values
        text, stopped = (printable(with_reason(one, work.reason)) for one in (text, stopped))
    if run.position is not None and not is_last_attempt:
        pause = (run.moved - moved) / data["rate"] if data.get("rate") else 0
        following = replace(work, logs=[before, text], carried=asdict(run), pause=pause)
        bulk_work.send(using, delivery.key or "", asdict(following))
    transaction.on_commit(partial(_write, work.entry, before, text, stopped), using=using)


def _opened(work: Work) -> tuple[DeadLetterOperation, Data]:
    operation = OPERATIONS[work.operation]()
    form: forms.Form = operation.form_class(MultiValueDict(dict(work.form)))
    if not form.is_valid():
        raise ValueError(f"the form of the operation is not valid: {form.errors.as_json()}")
    return operation, form.cleaned_data


def _step(using: str, operation: DeadLetterOperation, data: Data, run: Run) -> bulk_redrive.Progress:
    limit = min(AT_ONCE, data.get("rate") or AT_ONCE)
    query, above = query_of(data), run.position or 0
    return bulk_redrive.step(using, query, above, run.up_to, redrives=operation.redrives, limit=limit)


def _write(entry: int, before: str, text: str, stopped: str) -> None:
    """Write the result of a step into the log of actions. ``stopped``: the text if a user has stopped it meanwhile."""
    entries = LogEntry.objects.filter(pk=entry)
    if not entries.filter(change_message=before).update(change_message=text):
        entries.update(change_message=stopped)


class RunPage(QueueView):
    """The progress of an operation that a worker continues: ``?entry=``, its entry in the log of actions.

    A POST stops it: the worker ends after the step that it does.
    """

    route, url_name = "run", "deadletter_run"
    template_name = "admin/django_mqueue/dead_letter_run.html"
    title: Text = gettext_lazy("Progress of an operation")
    http_method_names = ["get", "post"]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        entry, found = self._found()
        context = {} if found is None else self._progress(entry, *found)
        context = {"back": page_url(self.request, "deadletter_changelist"), **context, **kwargs}
        return super().get_context_data(message=entry.change_message, entry=entry, **context)

    def _progress(self, entry: LogEntry, work: Work, status: str | None) -> dict[str, Any]:
        operation, data = _opened(work)
        self.title = operation.title
        count, total = Run(**work.carried).progress
        is_under_way = status in handing_over.UNDER_WAY and entry.change_message in work.logs
        return {
            "is_under_way": is_under_way,
            "has_failed": status == DEAD,
            "is_attended": not is_under_way or handing_over.is_attended(conf.database()),
            "count": count,
            "total": total,
            "may_stop": may_open(self.request, work.operation),
            "back": list_url(self.request, data, data.get("was", "")),
        }

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Stop the operation. Its result may have changed since it was read, so try several times."""
        for _try in range(STOP_TRIES):
            entry, found = self._found()
            if found is None or entry.change_message not in found[0].logs:
                break
            work = found[0]
            if not may_open(request, work.operation):
                raise PermissionDenied
            operation, data = _opened(work)
            message = operation.message(Run(**work.carried), data)
            stopped = printable(_("Stopped: %(message)s") % {"message": message})
            entries = LogEntry.objects.filter(pk=entry.pk, change_message=entry.change_message)
            if entries.update(change_message=printable(with_reason(stopped, work.reason))):
                messages.warning(request, stopped)
                break
        return HttpResponseRedirect(page_url(request, self.url_name, entry=entry.pk))

    def _found(self) -> tuple[LogEntry, tuple[Work, str | None] | None]:
        """Return the entry in the log of actions, and the newest step with its message's status if it still exists."""
        number = parse_offset(self.request.GET.get("entry", ""))
        entry = LogEntry.objects.filter(pk=number).select_related("content_type").first() if number else None
        if entry is None or entry.content_type is None or entry.content_type.model != "deadletter":
            raise Http404(_("There is no such operation."))
        return entry, handing_over.newest(conf.database(), str(number))
