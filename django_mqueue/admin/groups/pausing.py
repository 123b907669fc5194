"""The operations that pause and resume a group, and the base of operations on one group."""

from __future__ import annotations

from django.contrib import messages
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...service import group_positions
from ...store import offsets
from ..base.forms import GroupForm
from ..base.operations import Data, Operation, Plan, Result, Subject, group_subject, notice_time
from ..base.urls import allowed_url
from ..topics.pausing import PAUSE_CONSEQUENCES, RESUME_CONSEQUENCE


class GroupOperation(Operation):
    """An operation on one group. It leads back to the group's page."""

    form_class = GroupForm

    def subject(self, data: Data) -> Subject:
        return group_subject(data["topic"], data["group"])

    def back(self, data: Data | None) -> str | None:
        if data is None:  # Other fields of the form are missing or refused.
            names = GroupForm(self.request.POST or self.request.GET)
            data = names.cleaned_data if names.is_valid() else None
        if data is None:
            return allowed_url(self.request, "consumergroup_changelist")
        return allowed_url(self.request, "group", topic=data["topic"], group=data["group"])


class PauseGroup(GroupOperation):
    route, url_name = "pause", "pause_group"
    title = gettext_lazy("Pause a group")

    def plan(self, data: Data) -> Plan:
        if reason := _cannot_pause(data):
            return Plan(reason, is_empty=True)
        return Plan(
            _("Pause group %(group)s on topic %(topic)s?") % data, PAUSE_CONSEQUENCES, button=_("Pause")
        )

    def perform(self, data: Data) -> Result:
        if group_positions.pause(
            data["topic"], data["group"], by=self.user_name, why=self.reason, using=conf.database()
        ):
            return Result(_("Group %(group)s on topic %(topic)s is paused.") % data)
        was_paused = _("Group %(group)s on topic %(topic)s was paused already.") % data
        return Result(_cannot_pause(data) or was_paused, level=messages.WARNING)


class ResumeGroup(GroupOperation):
    route, url_name = "resume", "resume_group"
    title = gettext_lazy("Resume a group")

    def plan(self, data: Data) -> Plan:
        consequences = (RESUME_CONSEQUENCE, notice_time(data["topic"]))
        return Plan(_("Resume group %(group)s on topic %(topic)s?") % data, consequences, button=_("Resume"))

    def perform(self, data: Data) -> Result:
        if group_positions.resume(
            data["topic"], data["group"], by=self.user_name, why=self.reason, using=conf.database()
        ):
            return Result(_("Group %(group)s on topic %(topic)s is resumed.") % data)
        text = _("Group %(group)s on topic %(topic)s was not paused.") % data
        return Result(text, level=messages.WARNING)


def _cannot_pause(data: Data) -> str:
    """Return the reason why the group cannot be paused: it reads the log itself. Return "" for other groups."""
    registration = offsets.registration(conf.database(), data["group"], data["topic"])
    if registration is None or not registration.reads_log:
        return ""
    text = _(
        "Group %(group)s reads the log of topic %(topic)s by itself: it receives no deliveries, so it cannot be paused."
        " Stop the reader, for example a Spark query."
    )
    return text % data
