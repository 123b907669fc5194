"""The operation that skips a message for one group: the group never receives it."""

from __future__ import annotations

from django import forms
from django.contrib.admin.models import DELETION
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf, inspect
from ...policy.message_query import PENDING, WAITING
from ..base.forms import OFFSET_MAX, GroupForm
from ..base.operations import Data, Plan, Refused, Result, notice_time
from .deliver_now import MessageOperation


class SkipForm(GroupForm):
    offset = forms.IntegerField(min_value=1, max_value=OFFSET_MAX, widget=forms.HiddenInput)


class SkipMessage(MessageOperation):
    """Skip a message that a group has not handled yet. For other groups, nothing changes."""

    route, url_name = "skip", "skip_message"
    title = gettext_lazy("Skip a message for one group")
    flag = DELETION
    form_class = SkipForm

    def plan(self, data: Data) -> Plan:
        _check(data)
        consequences = [
            _("The group never receives it, and it does not become a dead letter. This cannot be undone."),
            _("Other groups are not affected."),
            notice_time(data["topic"]),
        ]
        what = _("Skip message %(offset)s of topic %(topic)s for group %(group)s?") % data
        return Plan(what, consequences, button=_("Skip"), is_destructive=True)

    def perform(self, data: Data) -> Result:
        status = _check(data)
        removed = inspect.remove(
            data["topic"], group=data["group"], status=status, offset=data["offset"], by=self.user_name,
            why=self.reason, using=conf.database(),
        )  # fmt: skip
        if not removed:
            raise Refused(_gone())
        return Result(_("Message %(offset)s of topic %(topic)s is skipped for group %(group)s.") % data)


def _check(data: Data) -> str:
    """Return the status of the message for the group. Raises ``Refused`` if it cannot be skipped."""
    found = inspect.messages(
        data["topic"], group=data["group"], offset=data["offset"], payload_limit=1, using=conf.database()
    )
    for message in found:
        if message.status in (PENDING, WAITING):
            return message.status
    raise Refused(_gone())


def _gone() -> str:
    return _(
        "The message cannot be skipped: a handler has it, or it is done for the group, or it does not exist. Nothing"
        " was changed."
    )
