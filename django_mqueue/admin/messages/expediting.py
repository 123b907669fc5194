"""The operation that sends a message to the front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from ... import conf, inspect
from ...browse.operations import MOVABLE
from ...inspect import Inspected
from ...models import Message
from ...policy import names
from ...policy.message_query import SCHEDULED
from ...service.registration import topic_limit
from ..base.audit import Subject
from ..base.links import address
from ..base.operations import Asked, Done, Operation, Plan, Refused
from ..base.subjects import NameField
from ..base.views import may


class HurryForm(forms.Form):
    """``group``: the group that gets the message earlier; empty if the message is scheduled for all groups."""

    topic = NameField("topic", topic_limit(), widget=forms.HiddenInput)
    group = NameField("group", names.GROUP_MAX, required=False, widget=forms.HiddenInput)
    offset = forms.IntegerField(min_value=1, max_value=(1 << 63) - 1, widget=forms.HiddenInput)


class HurryMessage(Operation):
    """Send a message to the front.

    A pending message becomes the next message of its key. A message that is scheduled, or waits for a retry, is due
    now.
    """

    route, url_name, rights = "hurry", "hurry_message", ("hurry_message",)
    title = "Send a message to the front"
    form_class = HurryForm

    def plan(self, asked: Asked) -> Plan:
        message = _found(asked)
        of = f"message {asked['offset']} of topic {asked['topic']}"
        if message.status == SCHEDULED:
            means = [
                "The message is due at once, instead of at its time.",
                "Workers find out within DISCOVERY_INTERVAL.",
            ]
            return Plan(f"Let {of} be due now?", means, button="Yes, let it be due")
        means = [
            "The group receives it as the next message of its key, before all messages that are already due.",
            "A strict handler keeps the order: for it, only the wait for a retry ends.",
            "Workers find out within DISCOVERY_INTERVAL.",
        ]
        return Plan(f"Send {of} to the front of group {asked['group']}?", means, button="Yes, send it")

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        status = _found(asked).status
        done = inspect.send_to_front(
            asked["topic"], group=asked["group"] or None, offset=asked["offset"], status=status, limit=1
        )
        if not done:
            raise Refused("The message was already due, and nothing was changed.")
        if status == SCHEDULED:
            return Done(f"Message {asked['offset']} of topic {asked['topic']} is due now.", done)
        return Done(
            f"Message {asked['offset']} of topic {asked['topic']} is at the front of group {asked['group']}.",
            done,
        )

    def subject(self, asked: Asked) -> Subject:
        return Subject(Message, str(asked["offset"]), f"{asked['topic']}@{asked['offset']}")

    def back(self, asked: Asked | None) -> str:
        if not may(self.request, "view_message"):
            return self.home()
        if asked is None:
            return address(self.request, "message_changelist")
        return address(self.request, "message_change", asked["offset"])


def _found(asked: Asked) -> Inspected:
    """Return the message. Raises ``Refused`` if it cannot be sent to the front."""
    topic, group, offset = asked["topic"], asked["group"] or None, asked["offset"]
    using = conf.database()
    if group is not None:
        for message in inspect.messages(topic, group=group, offset=offset, payload_limit=1, using=using):
            if message.status in MOVABLE:
                return message
    for message in inspect.messages(topic, status=SCHEDULED, offset=offset, payload_limit=1, using=using):
        if message.target == group:
            return message
    raise Refused("The message no longer waits: it was delivered, or is done, or does not exist.")
