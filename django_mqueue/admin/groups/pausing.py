"""The operations that pause and resume groups and topics."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import messages
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from ... import conf
from ...service import group_positions
from ...store import offsets
from ..base.display import Text, listed
from ..base.forms import GroupForm, TopicForm
from ..base.operations import (
    Data,
    Operation,
    Plan,
    Result,
    Subject,
    group_subject,
    notice_time,
    topic_subject,
)
from ..base.urls import allowed_url

PAUSE_CONSEQUENCES = (
    gettext_lazy(
        "Subscribers receive no more messages, not even after a restart, until you undo the pause with Resume."
    ),
    gettext_lazy("Handlers that run now finish, and their acknowledgements count."),
    gettext_lazy("Publishing continues, and messages that the group is not done with are kept."),
)
RESUME_CONSEQUENCE = gettext_lazy("Subscribers receive messages again, until you undo this with Pause.")


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


class _TopicOperation(Operation):
    """Pause or resume all groups of a topic. The texts with ``count`` get the number of groups."""

    form_class = TopicForm
    pauses: ClassVar[bool]
    consequences: ClassVar[tuple[Text, ...]]
    button: ClassVar[Text]
    question: ClassVar[Text]
    nothing: ClassVar[Text]
    done: ClassVar[Text]

    def plan(self, data: Data) -> Plan:
        topic = data["topic"]
        found = offsets.pauses(conf.database(), topic)
        groups = [group for group, is_paused in found.items() if is_paused != self.pauses]
        if not groups:
            return Plan(self.nothing % {"topic": topic}, is_empty=True)
        what = self.question % {"count": len(groups), "groups": listed(groups), "topic": topic}
        consequences = self.consequences if self.pauses else (*self.consequences, notice_time(topic))
        return Plan(what, consequences, button=self.button)

    def perform(self, data: Data) -> Result:
        change = group_positions.pause if self.pauses else group_positions.resume
        changed = change(data["topic"], by=self.user_name, why=self.reason, using=conf.database())
        return Result(self.done % {"count": changed, "topic": data["topic"]})

    def subject(self, data: Data) -> Subject:
        return topic_subject(data["topic"])

    def back(self, data: Data | None) -> str | None:
        names = {} if data is None else {"topic": data["topic"]}
        page = "topic" if names else "topic_changelist"
        return allowed_url(self.request, page, **names)


class PauseTopic(_TopicOperation):
    route, url_name, pauses = "pause", "pause_topic", True
    title = gettext_lazy("Pause a topic")
    consequences = (*PAUSE_CONSEQUENCES, gettext_lazy("Groups that are registered later are not paused."))
    button = gettext_lazy("Pause")
    question = ngettext_lazy(
        "Pause group %(groups)s of topic %(topic)s?",
        "Pause %(count)s groups (%(groups)s) of topic %(topic)s?",
        "count",
    )
    nothing = gettext_lazy("Topic %(topic)s has no group to pause.")
    done = ngettext_lazy(
        "Topic %(topic)s: %(count)s group was paused.",
        "Topic %(topic)s: %(count)s groups were paused.",
        "count",
    )


class ResumeTopic(_TopicOperation):
    route, url_name, pauses = "resume", "resume_topic", False
    title = gettext_lazy("Resume a topic")
    consequences = (RESUME_CONSEQUENCE, gettext_lazy("Groups that were paused one by one are also resumed."))
    button = gettext_lazy("Resume")
    question = ngettext_lazy(
        "Resume group %(groups)s of topic %(topic)s?",
        "Resume %(count)s groups (%(groups)s) of topic %(topic)s?",
        "count",
    )
    nothing = gettext_lazy("Topic %(topic)s has no group that is paused.")
    done = ngettext_lazy(
        "Topic %(topic)s: %(count)s group was resumed.",
        "Topic %(topic)s: %(count)s groups were resumed.",
        "count",
    )


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
