"""The operation that cancels a job, or asks it to stop."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...models import Message
from ...policy.names import ID_MAX
from ..base.forms import name_field
from ..base.jobs import backends
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject
from ..base.urls import allowed_url


class StopForm(forms.Form):
    """The job that a link names."""

    id = name_field("id", ID_MAX, widget=forms.HiddenInput)


class StopJob(Operation):
    """Cancel a job that waits, or ask a running one to stop."""

    route, url_name, parent = "jobs/stop", "stop_job", "jobs"
    title = gettext_lazy("Cancel or stop a job")
    form_class = StopForm

    def plan(self, data: Data) -> Plan:
        consequences = (
            gettext_lazy("If it waits, it does not run, and ends as cancelled."),
            gettext_lazy(
                "If it runs, it is asked to stop. A task that does not check for this request runs to its end."
            ),
        )
        return Plan(_("Cancel or stop job %(id)s?") % data, consequences, button=_("Cancel or stop"))

    def perform(self, data: Data) -> Result:
        from ...tasks.compat import TaskResultDoesNotExist

        for backend in backends():
            try:
                if backend.cancel(data["id"]):
                    return Result(_("Job %(id)s is cancelled.") % data)
                if backend.stop(data["id"]):
                    return Result(_("Job %(id)s is cancelled or asked to stop.") % data)
            except TaskResultDoesNotExist:
                continue
            raise Refused(
                _("The job has ended, or another transaction keeps it locked. Nothing was changed.")
            )
        raise Refused(_("There is no such job. It may have been deleted."))

    def subject(self, data: Data) -> Subject:
        return Subject(Message, "", _("Job %(id)s") % data)

    def back(self, data: Data | None) -> str | None:
        from ...tasks.job_ids import JobId

        job = JobId.parse(data["id"]) if data else None
        return allowed_url(self.request, "jobs", queue=job.queue if job else None)
