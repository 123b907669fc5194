"""The operation that unsubscribes a group from a topic."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.admin.models import DELETION
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ... import conf, inspect
from ...inspect import GroupFigures
from ...service import registration
from ...stats.results import total
from ..base.display import number
from ..base.operations import Data, Plan, Result
from ..base.urls import allowed_url
from .pausing import GroupOperation


class UnsubscribeGroup(GroupOperation):
    route, url_name = "unsubscribe", "unsubscribe_group"
    title = gettext_lazy("Unsubscribe a group")
    flag = DELETION

    def back(self, data: Data | None) -> str | None:
        return allowed_url(self.request, "consumergroup_changelist")

    def plan(self, data: Data) -> Plan:
        pair = (data["topic"], data["group"])
        figures = inspect.group_figures([pair])[pair]
        if not figures.registered:
            return Plan(_("Group %(group)s is not registered for topic %(topic)s.") % data, is_empty=True)
        return Plan(
            _("Unsubscribe group %(group)s from topic %(topic)s?") % data,
            _consequences(figures),
            _warnings(figures),
            button=_("Unsubscribe"),
            is_destructive=True,
        )

    def perform(self, data: Data) -> Result:
        author = {"by": self.user_name, "why": self.reason}
        if registration.unsubscribe(data["topic"], data["group"], **author, using=conf.database()):
            return Result(_("Group %(group)s is unsubscribed from topic %(topic)s.") % data)
        text = _("Group %(group)s is not registered for topic %(topic)s.") % data
        return Result(text, level=messages.WARNING)


def _warnings(figures: GroupFigures) -> list[str]:
    """Warn if subscribers are alive: they stop, and after a restart they register the group again."""
    if not figures.workers:
        return []
    text = ngettext(
        "%(count)s subscriber of the group is alive. It stops. If its worker starts again with a handler of this group,"
        " it registers the group again: remove the handler first.",
        "%(count)s subscribers of the group are alive. They stop. If their workers start again with a handler of this"
        " group, they register the group again: remove the handler first.",
        figures.workers,
    )
    return [text % {"count": f"{figures.workers:,}"}]


def _consequences(figures: GroupFigures) -> list[str]:
    texts = [
        _("The group receives nothing more, and its messages are no longer kept for it."),
        _("Its position and its delivery state are deleted. This cannot be undone."),
    ]
    open_messages = total([figures.pending, figures.waiting, figures.in_flight])
    if open_messages.value:
        text = ngettext(
            "The group is not done with %(count)s message. It will never be delivered to it.",
            "The group is not done with %(count)s messages. They will never be delivered to it.",
            open_messages.value,
        )
        texts.append(text % {"count": number(open_messages)})
    if figures.dead.value:
        text = _(
            "Its dead letters stay: %(count)s. They cannot be redriven while the group is not registered."
        )
        texts.append(text % {"count": number(figures.dead)})
    return [*texts, _("Other groups are not affected.")]
