"""The operations that pause and resume groups and topics."""

from __future__ import annotations

from typing import ClassVar

from ... import conf
from ...service import group_positions
from ...store import offsets
from ..base.display import listed
from ..base.forms import GroupForm, TopicForm
from ..base.operations import Data, Operation, Plan, Result, Subject, group_subject, noticed, topic_subject
from ..base.urls import allowed_url

PAUSED_MEANS = (
    "Workers receive no more messages, not even after a restart, until you undo the pause with Resume.",
    "Handlers that run now finish, and their acknowledgements count.",
    "Publishing continues, and messages that the group is not done with are kept.",
)
RESUMED_MEANS = "Workers receive messages again, until you undo this with Pause."


class GroupOperation(Operation):
    """An operation on one group. It leads back to the group's page."""

    form_class = GroupForm

    def subject(self, data: Data) -> Subject:
        return group_subject(data["topic"], data["group"])

    def back(self, data: Data | None) -> str | None:
        names = {} if data is None else {"topic": data["topic"], "group": data["group"]}
        page = "group" if names else "consumergroup_changelist"
        return allowed_url(self.request, page, **names)


class PauseGroup(GroupOperation):
    route, url_name = "pause", "pause_group"
    title = "Pause a group"

    def plan(self, data: Data) -> Plan:
        if reason := _cannot_pause(data):
            return Plan(reason, is_empty=True)
        return Plan(f"Pause {_name(data)}?", PAUSED_MEANS, button="Pause")

    def perform(self, data: Data) -> Result:
        if group_positions.pause(data["topic"], data["group"], using=conf.database()):
            return Result(f"G{_name(data)[1:]} is paused.")
        return Result(_cannot_pause(data) or f"G{_name(data)[1:]} was paused already.")


class ResumeGroup(GroupOperation):
    route, url_name = "resume", "resume_group"
    title = "Resume a group"

    def plan(self, data: Data) -> Plan:
        means = (RESUMED_MEANS, noticed(data["topic"]))
        return Plan(f"Resume {_name(data)}?", means, button="Resume")

    def perform(self, data: Data) -> Result:
        changed = group_positions.resume(data["topic"], data["group"], using=conf.database())
        return Result(f"G{_name(data)[1:]} {'is resumed' if changed else 'was not paused'}.")


class _TopicOperation(Operation):
    """Pause or resume all groups of a topic."""

    form_class = TopicForm
    verb: ClassVar[str]
    means: ClassVar[tuple[str, ...]]

    def plan(self, data: Data) -> Plan:
        topic, pauses = data["topic"], self.verb == "pause"
        found = offsets.pauses(conf.database(), topic)
        groups = [group for group, is_paused in found.items() if is_paused != pauses]
        if not groups:
            return Plan(f"Topic {topic} has no group that is {'not ' * pauses}paused.", is_empty=True)
        names = f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups ({listed(groups)})"
        what = f"{self.verb.capitalize()} {names} of topic {topic}?"
        means = self.means if pauses else (*self.means, noticed(topic))
        return Plan(what, means, button=self.verb.capitalize())

    def perform(self, data: Data) -> Result:
        change = group_positions.pause if self.verb == "pause" else group_positions.resume
        changed = change(data["topic"], using=conf.database())
        groups = "1 group was" if changed == 1 else f"{changed} groups were"
        return Result(f"Topic {data['topic']}: {groups} {self.verb}d.")

    def subject(self, data: Data) -> Subject:
        return topic_subject(data["topic"])

    def back(self, data: Data | None) -> str | None:
        names = {} if data is None else {"topic": data["topic"]}
        page = "topic" if names else "topic_changelist"
        return allowed_url(self.request, page, **names)


class PauseTopic(_TopicOperation):
    route, url_name, verb = "pause", "pause_topic", "pause"
    title = "Pause a topic"
    means = (*PAUSED_MEANS, "Groups that are registered later are not paused.")


class ResumeTopic(_TopicOperation):
    route, url_name, verb = "resume", "resume_topic", "resume"
    title = "Resume a topic"
    means = (RESUMED_MEANS, "Groups that were paused one by one are also resumed.")


def _cannot_pause(data: Data) -> str:
    """Return the reason why the group cannot be paused: it reads the log itself. Return "" for other groups."""
    registration = offsets.registration(conf.database(), data["group"], data["topic"])
    if registration is None or not registration.reads_log:
        return ""
    name = f"Group {data['group']} reads the log of topic {data['topic']} by itself"
    return f"{name}: it receives no deliveries, so it cannot be paused. Stop the reader, for example a Spark query."


def _name(data: Data) -> str:
    return f"group {data['group']} on topic {data['topic']}"
