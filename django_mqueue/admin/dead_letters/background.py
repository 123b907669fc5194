"""Redrives and purges that workers continue: one step of them, and the page of their progress."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
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
from ...service.actions import ADMIN, BY_MAX, Author
from ...service.redrive import AT_ONCE
from ...store.queries.group_rows import now_ms
from ..base.display import Text, printable
from ..base.forms import parse_number
from ..base.operations import Data, with_reason
from ..base.urls import APP, PERMISSIONS, may_open, page_url
from ..base.views import QueueView
from . import handing_over
from .filters import list_url, query_of
from .handing_over import Work
from .operations import DeadLetterOperation, PurgeMatching, PurgeSelected, RedriveMatching, RedriveSelected
from .run import Run

logger = logging.getLogger("django_mqueue")

OPERATIONS: dict[str, type[DeadLetterOperation]] = {
    one.url_name: one for one in (RedriveSelected, RedriveMatching, PurgeSelected, PurgeMatching)
}
STOP_TRIES = 20
"""A worker changes the entry about once a second, so a stop may need another try."""


def do_step(delivery: Delivery, *, is_last_attempt: bool) -> None:
    """Do one step of a redrive or a purge, and store the message of the next step.

    The entry in the log of actions may be in another database, so its text is written after the commit. If the process
    dies before that, the next message writes it. So the last step also stores a message.
    """
    work = Work(**delivery.payload)
    using = delivery.status.acknowledger.state.using
    entry = LogEntry.objects.select_related("user").filter(pk=work.entry).first()
    if entry is None:  # Django deletes it with its user.
        logger.warning(
            "admin operation stopped, its log entry was deleted: entry %s, operation %s",
            work.entry,
            work.operation,
        )
        return
    if work.is_last or entry.change_message not in work.logs:
        if router.db_for_write(LogEntry) == using:
            _write(work)
        else:  # The handler is atomic, so it may write there after its commit only.
            transaction.on_commit(partial(_write, work), using=using)
        if not work.is_last:  # A user has stopped the operation.
            with _language(work):
                operation, data = _opened(work)
            author = Author(entry.user.get_username()[:BY_MAX], work.reason, ADMIN)
            operation.record(author, Run(**work.carried), data).end(using)
        return
    due = moment_ms("published_at", delivery.published_at) + int(work.pause * 1000)
    if (wait := due - now_ms(using)) > 0:
        raise Postpone(wait / 1000)
    run = Run(**work.carried)
    moved = run.moved
    with _language(work):
        operation, data = _opened(work)
        text = _end(delivery, entry, work, operation.message(run, data), is_last_attempt=is_last_attempt)
        author = Author(entry.user.get_username()[:BY_MAX], work.reason, ADMIN)
        if text:
            run.position = None
            operation.record(author, run, data).end(using)
        else:
            step = bulk_redrive.step(
                using, query_of(data), run.position or 0, run.up_to, redrives=operation.redrives,
                limit=min(AT_ONCE, data.get("rate") or AT_ONCE), record=operation.record(author, run, data),
            )  # fmt: skip
            run.add(step)
            text = operation.message(run, data)
            if run.position is not None:
                text = _("Under way: %(message)s") % {"message": text}
        text = printable(with_reason(text, work.reason))
    pause = (run.moved - moved) / data["rate"] if data.get("rate") else 0
    logs = [entry.change_message, text]
    following = replace(work, logs=logs, stop=_stopped(work), carried=asdict(run), pause=pause)
    bulk_work.send(using, delivery.key or "", asdict(following))
    transaction.on_commit(partial(_write, following), using=using)


def _end(delivery: Delivery, entry: LogEntry, work: Work, message: str, *, is_last_attempt: bool) -> str:
    """Return the text for the log of actions if the operation ends without this step, else ""."""
    if not all(entry.user.has_perm(f"{APP}.{one}") for one in PERMISSIONS[work.operation]):
        return _("Stopped, because the user no longer has the permission: %(message)s") % {"message": message}
    if not is_last_attempt:
        return ""
    error = delivery.last_error.partition(":")[0]  # The rest may have values of masked payloads.
    return _("Failed with %(error)s: %(message)s") % {"message": message, "error": error}


@contextmanager
def _language(work: Work) -> Iterator[None]:
    """Use the language and the time zone of the user who started the operation."""
    with translation.override(work.language), timezone.override(work.zone):
        yield


def _opened(work: Work) -> tuple[DeadLetterOperation, Data]:
    operation = OPERATIONS[work.operation]()
    form: forms.Form = operation.form_class(MultiValueDict(dict(work.form)))
    if not form.is_valid():
        raise ValueError(f"the form of the operation is not valid: {form.errors.as_json()}")
    return operation, form.cleaned_data


def _write(work: Work) -> None:
    """Write the result of the previous step into the log of actions, if neither a user nor a later step has changed it.

    If a user has stopped the operation during that step, the text gets the count of the step.
    """
    entries = LogEntry.objects.filter(pk=work.entry)
    if not entries.filter(change_message=work.logs[0]).update(change_message=work.logs[-1]) and work.stop:
        entries.filter(change_message=work.stop).update(change_message=_stopped(work))


def _stopped(work: Work) -> str:
    """Return the text for the log of actions if a user stops the operation before the step."""
    with _language(work):
        return printable(with_reason(_stop_message(work), work.reason))


def _stop_message(work: Work) -> str:
    operation, data = _opened(work)
    return _("Stopped: %(message)s") % {"message": operation.message(Run(**work.carried), data)}


class RunPage(QueueView):
    """The progress of an operation that a worker continues: ``?entry=``, its entry in the log of actions.

    A POST stops the operation: the worker finishes its current step, records the total, and starts no other step.
    """

    route, url_name = "run", "deadletter_run"
    template_name = "admin/django_mqueue/dead_letter_run.html"
    title: Text = gettext_lazy("Progress of an operation")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        entry, found = self._found()
        context = {} if found is None else self._progress(entry, *found)
        context = {"back": page_url(self.request, "deadletter_changelist"), **context, **kwargs}
        return super().get_context_data(message=entry.change_message, entry=entry, **context)

    def _progress(self, entry: LogEntry, work: Work, status: str | None) -> dict[str, Any]:
        operation, data = _opened(work)
        self.title = operation.title
        count, total = Run(**work.carried).progress
        open_texts = work.logs[:1] if work.is_last else work.logs
        is_under_way = status in handing_over.UNDER_WAY and entry.change_message in open_texts
        return {
            "is_under_way": is_under_way,
            "has_failed": status == DEAD,
            "has_live_worker": not is_under_way or handing_over.has_live_worker(conf.database()),
            "count": count,
            "total": total,
            "may_stop": not work.is_last and may_open(self.request, work.operation),
            "back": list_url(self.request, data, data.get("list_query", "")),
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
            if work.is_last:
                break
            entries = LogEntry.objects.filter(pk=entry.pk, change_message=entry.change_message)
            if entries.update(change_message=_stopped(work)):
                messages.warning(request, printable(_stop_message(work)))
                break
        return HttpResponseRedirect(page_url(request, self.url_name, entry=entry.pk))

    def _found(self) -> tuple[LogEntry, tuple[Work, str | None] | None]:
        """Return the entry in the log of actions, and the result of ``handing_over.newest``.

        An entry without steps is only for its user, and for users who may see the log of actions.
        """
        number = parse_number(self.request.GET.get("entry", ""))
        entry = LogEntry.objects.filter(pk=number).select_related("content_type").first() if number else None
        found = handing_over.newest(conf.database(), str(number)) if entry else None
        is_own = (
            found or (entry and entry.user_id == self.request.user.pk) or may_open(self.request, "actions")
        )
        if (
            entry is None
            or entry.content_type is None
            or entry.content_type.model != "deadletter"
            or not is_own
        ):
            raise Http404(_("There is no such operation."))
        return entry, found
