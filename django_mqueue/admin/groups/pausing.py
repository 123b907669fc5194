"""The operations that pause and resume groups and topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import conf
from ...service import group_positions
from ...store import offsets
from ..base import subjects, wording
from ..base.audit import Subject
from ..base.links import address
from ..base.operations import Asked, Done, Operation, Plan
from ..base.views import may

PAUSED_MEANS = (
    "Nothing is delivered until the group is resumed, not even to workers that start later.",
    "Handlers that run now finish, and their acks count.",
    "Publishing continues; no message is deleted that the group is not done with.",
)


LATER = "Groups that are registered later are not paused by this."


class OfGroup(Operation):
    """An operation on one group. It leads back to the group's page."""

    form_class = subjects.OfGroup

    def subject(self, asked: Asked) -> Subject:
        return subjects.group(asked["topic"], asked["group"])

    def back(self, asked: Asked | None) -> str:
        if not may(self.request, "view_consumergroup"):
            return self.home()
        if asked is None:
            return address(self.request, "consumergroup_changelist")
        return address(self.request, "group", topic=asked["topic"], group=asked["group"])


class PauseGroup(OfGroup):
    route, url_name, rights = "pause", "pause_group", ("pause_consumergroup",)
    title = "Pause a group"

    def plan(self, asked: Asked) -> Plan:
        if told := _told_if_it_reads(asked):
            return _nothing(told)
        what = f"Pause group {asked['group']} on topic {asked['topic']}?"
        return Plan(what, PAUSED_MEANS, button="Yes, pause it")

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        changed = group_positions.pause(asked["topic"], asked["group"], using=conf.database())
        name = f"Group {asked['group']} on topic {asked['topic']}"
        if changed:
            return Done(f"{name} is paused.", changed)
        return Done(_told_if_it_reads(asked) or f"{name} was paused already.", changed)


class ResumeGroup(OfGroup):
    route, url_name, rights = "resume", "resume_group", ("resume_consumergroup",)
    title = "Resume a group"

    def plan(self, asked: Asked) -> Plan:
        what = f"Resume group {asked['group']} on topic {asked['topic']}?"
        return Plan(what, ("Its workers find out within DISCOVERY_INTERVAL.",), button="Yes, resume it")

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        changed = group_positions.resume(asked["topic"], asked["group"], using=conf.database())
        name = f"Group {asked['group']} on topic {asked['topic']}"
        return Done(f"{name} is resumed." if changed else f"{name} was not paused.", changed)


class _OfTopic(Operation):
    form_class = subjects.OfTopic

    def subject(self, asked: Asked) -> Subject:
        return subjects.topic(asked["topic"])

    def back(self, asked: Asked | None) -> str:
        if not may(self.request, "view_topic"):
            return self.home()
        if asked is None:
            return address(self.request, "topic_changelist")
        return address(self.request, "topic", topic=asked["topic"])


class PauseTopic(_OfTopic):
    route, url_name, rights = "pause", "pause_topic", ("pause_topic",)
    title = "Pause a topic"

    def plan(self, asked: Asked) -> Plan:
        found = offsets.pauses(conf.database(), asked["topic"])
        running = [group for group, paused in found.items() if not paused]
        if not running:
            return _nothing(f"Topic {asked['topic']} has no group that is not paused.")
        what = f"Pause {_named(running)} of topic {asked['topic']}?"
        return Plan(what, (*PAUSED_MEANS, LATER), button="Yes, pause them")

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        changed = group_positions.pause(asked["topic"], using=conf.database())
        return Done(f"Topic {asked['topic']}: {_groups(changed)} paused.", changed)


class ResumeTopic(_OfTopic):
    route, url_name, rights = "resume", "resume_topic", ("resume_topic",)
    title = "Resume a topic"

    def plan(self, asked: Asked) -> Plan:
        paused = [
            group for group, is_paused in offsets.pauses(conf.database(), asked["topic"]).items() if is_paused
        ]
        if not paused:
            return _nothing(f"Topic {asked['topic']} has no group that is paused.")
        means = (
            "Groups that were paused one by one are also resumed.",
            "Workers find out within DISCOVERY_INTERVAL.",
        )
        return Plan(f"Resume {_named(paused)} of topic {asked['topic']}?", means, button="Yes, resume them")

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        changed = group_positions.resume(asked["topic"], using=conf.database())
        return Done(f"Topic {asked['topic']}: {_groups(changed)} resumed.", changed)


def _told_if_it_reads(asked: Asked) -> str:
    """Return the reason why the group cannot be paused: it reads the log itself. Return "" for other groups."""
    registration = offsets.registration(conf.database(), asked["group"], asked["topic"])
    if registration is None or not registration.reads_log:
        return ""
    name = f"Group {asked['group']} reads the log of topic {asked['topic']} by itself"
    return f"{name}: it receives no deliveries. Stop the reader, for example a Spark query."


def _nothing(what: str) -> Plan:
    return Plan(what, is_empty=True)


def _named(groups: list[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups ({wording.listed(groups)})"


def _groups(count: int) -> str:
    return f"{count} group was" if count == 1 else f"{count} groups were"
