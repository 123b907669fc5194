"""The operation that delivers a message now, and the base of operations on one message."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf, inspect
from ...browse.operations import MOVABLE
from ...inspect import Inspected
from ...models import Message
from ...policy import names
from ...policy.message_query import SCHEDULED
from ..base.forms import OFFSET_MAX, name_field
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject, notice_time
from ..base.urls import allowed_url


class DeliverNowForm(forms.Form):
    """The message to deliver now.

    ``group``: the group that gets it earlier; empty if the message is scheduled for all groups.
    """

    topic = name_field("topic", names.LONG_TOPIC_MAX, widget=forms.HiddenInput)
    group = name_field("group", names.GROUP_MAX, required=False, widget=forms.HiddenInput)
    offset = forms.IntegerField(min_value=1, max_value=OFFSET_MAX, widget=forms.HiddenInput)


class MessageOperation(Operation):
    """An operation on one message. It leads back to the page of the message."""

    def subject(self, data: Data) -> Subject:
        return Subject(Message, str(data["offset"]), f"{data['topic']}@{data['offset']}")

    def back(self, data: Data | None) -> str | None:
        page = ("message_changelist",) if data is None else ("message_change", data["offset"])
        return allowed_url(self.request, *page)


class DeliverNow(MessageOperation):
    """Deliver a message now: a scheduled message becomes due, any other becomes the next message of its key."""

    route, url_name = "hurry", "hurry_message"
    title = gettext_lazy("Deliver a message now")
    form_class = DeliverNowForm

    def plan(self, data: Data) -> Plan:
        if _found(data).status == SCHEDULED:
            what = _("Deliver message %(offset)s of topic %(topic)s now?")
            consequences = [_("The message is due at once, instead of at its time. This cannot be undone.")]
        else:
            what = _("Deliver message %(offset)s of topic %(topic)s to group %(group)s now?")
            consequences = [
                _(
                    "The group receives it as the next message of its key, before all messages that are already due."
                    " This cannot be undone."
                ),
                _("A strict handler keeps the order: only the wait for a retry ends."),
            ]
        return Plan(what % data, [*consequences, notice_time(data["topic"])], button=_("Deliver now"))

    def perform(self, data: Data) -> Result:
        status = _found(data).status
        moved = inspect.send_to_front(
            data["topic"],
            group=data["group"] or None,
            offset=data["offset"],
            status=status,
            limit=1,
            by=self.user_name,
            why=self.reason,
        )
        if not moved:
            raise Refused(
                _("Nothing was changed: the message no longer waits, or another transaction has locked it.")
            )
        text = _(
            "Message %(offset)s of topic %(topic)s is due now, as the next message of its key for group %(group)s."
        )
        if status == SCHEDULED:
            text = _("Message %(offset)s of topic %(topic)s is due now.")
        return Result(text % data)


def _found(data: Data) -> Inspected:
    """Return the message. Raises ``Refused`` if it cannot be delivered now."""
    topic, group, offset = data["topic"], data["group"] or None, data["offset"]
    using = conf.database()
    if group is not None:
        for message in inspect.messages(topic, group=group, offset=offset, payload_limit=1, using=using):
            if message.status in MOVABLE:
                return message
    for message in inspect.messages(topic, status=SCHEDULED, offset=offset, payload_limit=1, using=using):
        if message.target == group:
            return message
    raise Refused(_("The message no longer waits: it was delivered, or is done, or does not exist."))
