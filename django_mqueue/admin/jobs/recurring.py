"""Recurring jobs: their list with the last and the next firing, and the operations pause, resume and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from ...models import ConsumerGroup
from ..base.display import Text
from ..base.jobs import recurring_jobs
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject
from ..base.urls import NAVIGATION, allowed_url, tools
from ..base.views import QueueView

if TYPE_CHECKING:
    from ...tasks import RecurringJob


class RecurringJobs(QueueView):
    """The list of all recurring jobs."""

    route, url_name = "recurring-jobs", "recurring_jobs"
    template_name = "admin/django_mqueue/recurring_jobs.html"
    title = NAVIGATION["recurring_jobs"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(rows=[self.row(job) for job in recurring_jobs()], **kwargs)

    def row(self, job: RecurringJob) -> dict[str, Any]:
        """Return the job's row for the page. ``problem``: why its task cannot be imported."""
        from ...tasks.results import UnknownTask

        found: dict[str, Any] = {"job": job}
        try:
            is_paused, last = job.is_paused, job.last_result
        except UnknownTask as problem:
            return {**found, "problem": str(problem)}
        pages = {"resume_job": _("Resume")} if is_paused else {"pause_job": _("Pause")}
        pages["run_job"] = _("Run now")
        return {
            **found,
            "is_paused": is_paused,
            "next_due": job.next_due,
            "last": last,
            "last_status": _status(last.status) if last else "",
            "last_at": (last.finished_at or last.started_at or last.enqueued_at) if last else None,
            "tools": tools(self.request, pages, backend=job.backend.alias, name=job.name),
        }


def _status(status: str) -> str:
    return {
        "READY": pgettext("job", "waits"),
        "RUNNING": pgettext("job", "runs"),
        "SUCCESSFUL": pgettext("job", "successful"),
        "FAILED": pgettext("job", "failed"),
    }[status]


class JobForm(forms.Form):
    """The recurring job that a link names."""

    backend = forms.CharField(widget=forms.HiddenInput)
    name = forms.CharField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        wanted = data.get("backend"), data.get("name")
        found = [job for job in recurring_jobs() if (job.backend.alias, job.name) == wanted]
        if not found and not self.errors:
            raise ValidationError(_("There is no such recurring job in the settings."))
        return {**data, "job": found[0] if found else None}


class _JobOperation(Operation):
    """An operation that calls ``method`` of a recurring job. ``question``, ``done``: texts with ``%(name)s``."""

    parent = "recurring_jobs"
    form_class = JobForm
    method: ClassVar[str]
    question: ClassVar[Text]
    consequences: ClassVar[tuple[Text, ...]]
    button: ClassVar[Text]
    done: ClassVar[Text]

    def plan(self, data: Data) -> Plan:
        return Plan(self.question % data, self.consequences, button=self.button)

    def perform(self, data: Data) -> Result:
        from ...tasks.results import UnknownTask
        from ...tasks.unique import JobExists

        try:
            getattr(data["job"], self.method)()
        except (JobExists, UnknownTask) as problem:
            raise Refused(str(problem)) from problem
        return Result(self.done % data)

    def subject(self, data: Data) -> Subject:
        return Subject(ConsumerGroup, "", _("Recurring job %(name)s") % data)

    def back(self, data: Data | None) -> str | None:
        return allowed_url(self.request, "recurring_jobs")


class PauseJob(_JobOperation):
    route, url_name, method = "recurring-jobs/pause", "pause_job", "pause"
    title, button = gettext_lazy("Pause a recurring job"), gettext_lazy("Pause")
    question = gettext_lazy("Pause recurring job %(name)s?")
    consequences = (
        gettext_lazy("No firing starts until you click Resume, not even a scheduled one."),
        gettext_lazy("A job that has begun may still be retried."),
    )
    done = gettext_lazy("Recurring job %(name)s is paused.")


class ResumeJob(_JobOperation):
    route, url_name, method = "recurring-jobs/resume", "resume_job", "resume"
    title, button = gettext_lazy("Resume a recurring job"), gettext_lazy("Resume")
    question = gettext_lazy("Resume recurring job %(name)s?")
    consequences = (
        gettext_lazy("It continues with the next due time. What was due meanwhile does not run."),
    )
    done = gettext_lazy("Recurring job %(name)s is resumed.")


class RunJob(_JobOperation):
    route, url_name, method = "recurring-jobs/run", "run_job", "run_now"
    title, button = gettext_lazy("Run a recurring job now"), gettext_lazy("Run now")
    question = gettext_lazy("Run recurring job %(name)s now?")
    consequences = (gettext_lazy("One more job is enqueued. The due times stay as they are."),)
    done = gettext_lazy("A job of %(name)s is enqueued.")
