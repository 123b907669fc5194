"""The list of jobs of a queue, by state, task and time, with the actions that the user may do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from django import forms
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ... import conf, inspect
from ...browse import masking
from ...exceptions import NotRegistered
from ...inspect import Inspected, Page
from ...models import DeliveryState
from ...policy import names
from ...policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ...policy.outcomes import DEAD_LETTERED, HANDLED, REMOVED
from ..base.display import EMPTY, badge, cell, first_line, problem_text, quiet
from ..base.forms import Moment
from ..base.jobs import backends
from ..base.urls import NAVIGATION, Tools, allowed_url, page_url, tools
from ..base.views import QueueView
from ..messages import payloads
from ..messages.masking import masked_for, sees_all
from ..messages.message_list import OUTCOMES, SCAN_LIMIT
from ..messages.search_form import BY_DUE_TIME

STATUS_BADGES = {
    PENDING: ("waiting", pgettext_lazy("job", "waits")),
    IN_FLIGHT: ("good", pgettext_lazy("job", "runs")),
    WAITING: ("waiting", gettext_lazy("waits for a retry")),
    SCHEDULED: ("waiting", gettext_lazy("scheduled")),
    DONE: ("over", gettext_lazy("done")),
    DEAD: ("bad", pgettext_lazy("job", "failed")),
}
"""The kind and the text of the badge of each state."""
OUTCOME_BADGES = {
    **{outcome: ("over", text) for outcome, text in OUTCOMES.items()},
    HANDLED: ("over", pgettext_lazy("job", "successful")),
    DEAD_LETTERED: STATUS_BADGES[DEAD],
    REMOVED: ("bad", pgettext_lazy("job", "cancelled")),
}
"""The same for jobs with an outcome. A job that is done was not always successful."""
ROWS = 50


class JobsForm(forms.Form):
    """The search form. A job must match all fields that are given."""

    queue = forms.ChoiceField(label=gettext_lazy("Queue"))
    state = forms.ChoiceField(required=False, label=gettext_lazy("State"))
    task = forms.CharField(
        required=False,
        max_length=names.KIND_MAX,
        label=gettext_lazy("Task"),
        widget=forms.TextInput({"size": 30, "placeholder": "shop.tasks.confirm"}),
    )
    after = Moment(required=False, label=gettext_lazy("Enqueued from"))
    before = Moment(required=False, label=gettext_lazy("Enqueued before"))

    def __init__(self, data: Mapping[str, Any], queues: list[str]) -> None:
        super().__init__({"queue": queues[0] if queues else "", **data})
        self.fields["queue"].choices = [(queue, queue) for queue in queues]  # type: ignore[attr-defined]
        states = [(state, text) for state, (_kind, text) in STATUS_BADGES.items()]
        self.fields["state"].choices = [("", gettext_lazy("All")), *states]  # type: ignore[attr-defined]


class Jobs(QueueView):
    """The list of jobs: ``?queue=`` and the other fields of ``JobsForm``. ``start``: where the list continues."""

    route, url_name = "jobs", "jobs"
    template_name = "admin/django_mqueue/jobs.html"
    title = NAVIGATION["jobs"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        queues = sorted({queue for backend in backends() for queue in backend.queues})
        query = self.request.GET
        form = JobsForm({name: query[name] for name in query if query[name]}, queues)
        found, rows = None, []
        if form.is_valid():
            try:
                found = self._found(form.cleaned_data)
            except (NotRegistered, ValueError) as problem:
                form.add_error(None, problem_text(problem))
        if found is not None:
            from ...tasks.job_ids import PAUSED

            results = self._results(found)
            jobs = [job for job in found if job.status != SCHEDULED or not job.id.endswith(PAUSED)]
            rows = [self._row(masked_for(self.request, job), results.get(job.offset)) for job in jobs]
        given = {name: query[name] for name in form.fields if query.get(name)}
        return super().get_context_data(
            form=form,
            found=found,
            rows=rows,
            is_short=found is not None and found.next is not None and len(rows) < ROWS,
            next_url=None
            if found is None or found.next is None
            else page_url(self.request, "jobs", **given, start=found.next),
            first_url=page_url(self.request, "jobs", **given) if query.get("start") else None,
            **kwargs,
        )

    def _found(self, given: dict[str, Any]) -> Page:
        from ...tasks.job_ids import GROUP, topic_of

        topic, state = topic_of(given["queue"]), given["state"] or None
        limit = payloads.HEAD_BYTES if sees_all(self.request, topic) else masking.MASKABLE_BYTES_IN_LIST
        return inspect.messages(
            topic,
            group=None if state == SCHEDULED else GROUP,
            status=state,
            kind=given["task"] or None,
            after=given["after"],
            before=given["before"],
            newest_first=state not in BY_DUE_TIME,
            limit=ROWS,
            start=self.request.GET.get("start") or None,
            scan_limit=SCAN_LIMIT,
            payload_limit=limit,
        )

    def _results(self, jobs: Page) -> dict[int, bytes]:
        """Return the column ``result`` of jobs that run or are done, by offset, with one statement."""
        from ...tasks.job_ids import GROUP, JobId

        rows = [
            Q(topic=job.topic, partition_key=id.partition, message_offset=job.offset)
            for job in jobs
            if job.status in (IN_FLIGHT, DONE) and (id := JobId.parse(job.id)) is not None
        ]
        if not rows:
            return {}
        states = DeliveryState.objects.using(conf.database()).filter(reduce(or_, rows), consumer_group=GROUP)
        found = states.values_list("message_offset", "result")
        return {offset: bytes(result) for offset, result in found if result is not None}

    def _row(self, job: Inspected, result: bytes | None) -> dict[str, Any]:
        return {
            "job": job,
            "url": allowed_url(self.request, "message_change", job.offset),
            "state": _state(job),
            "arguments": _arguments(job),
            "detail": self._detail(job, result),
            "tools": self._tools(job),
        }

    def _detail(self, job: Inspected, result: bytes | None) -> str:
        """Return, by the job's state, its limit, its progress, its return value or its error."""
        from ...tasks.context import is_note, progress_in
        from ...tasks.results import LIMIT

        if job.status == PENDING and (limit := job.headers.get(LIMIT)):
            return cell(_("limit of %(key)s") % {"key": limit})
        if job.errors and job.outcome != HANDLED:
            return cell(first_line(job.errors[-1].error))
        if result is None or (is_note(result) and job.status == DONE):
            return EMPTY
        if not sees_all(self.request, job.topic):
            return quiet(_("masked"))
        return cell(str(progress_in(result) or "") if is_note(result) else result.decode(errors="replace"))

    def _tools(self, job: Inspected) -> Tools:
        request, topic = self.request, job.topic
        if job.status == DEAD:
            dead = conf.dead_letter_topic(topic)
            pages = {"redrive_selected": _("Retry")}
            return tools(request, pages, topic=topic, dead=dead, offsets=job.dead_letter)
        if job.status == DONE:
            return []
        title = _("Stop") if job.status == IN_FLIGHT else _("Cancel")
        found = tools(request, {"stop_job": title}, id=job.id)
        if job.status in (SCHEDULED, WAITING):
            where = {"topic": topic, "group": job.group or job.target, "offset": job.offset}
            found += tools(request, {"hurry_message": _("Run now")}, **where)
        return found


def _arguments(job: Inspected) -> str:
    """Return a job's arguments as in a call, or the payload if it is masked or cut."""
    payload = job.payload
    args, kwargs = (payload.get("args"), payload.get("kwargs")) if isinstance(payload, dict) else (None, None)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return payloads.beginning(job)
    named = [f"{name}={payloads.compact(value)}" for name, value in kwargs.items()]
    return cell(", ".join([*map(payloads.compact, args), *named]))


def _state(job: Inspected) -> str:
    if job.status is None:
        return EMPTY
    return badge(*OUTCOME_BADGES.get(job.outcome or "", STATUS_BADGES[job.status]))
