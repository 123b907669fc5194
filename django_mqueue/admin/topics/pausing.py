"""The operations that pause and resume all groups of a topic."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy, ngettext_lazy

from ... import conf
from ...service import group_positions
from ...store import offsets
from ..base.display import Text, listed
from ..base.forms import TopicForm
from ..base.operations import Data, Operation, Plan, Result, Subject, notice_time, topic_subject
from ..base.urls import allowed_url

PAUSE_CONSEQUENCES = (
    gettext_lazy(
        "Subscribers receive no more messages, not even after a restart, until you undo the pause with Resume."
    ),
    gettext_lazy("Handlers that run now finish, and their acknowledgements count."),
    gettext_lazy("Publishing continues, and messages that the group is not done with are kept."),
)
RESUME_CONSEQUENCE = gettext_lazy("Subscribers receive messages again, until you undo this with Pause.")


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
