"""The operations on a scheduled message: cancel it, and give it another time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.contrib.admin.models import DELETION
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...browse.timeline import MessageTimeline, message_timeline
from ...models import Message
from ...policy.durations import Due, due_of
from ...policy.message_query import SCHEDULED
from ...service.actions import Author
from ...service.scheduling import change_row
from ..base.display import local_time
from ..base.forms import IN_ZONE, OFFSET_MAX, Moment
from ..base.operations import Data, Plan, Refused, Result, Subject
from ..base.urls import Tools, allowed_url, tools
from .deliver_now import MessageOperation


class ScheduledForm(forms.Form):
    """The offset of the scheduled message. It changes when the message is moved into its topic."""

    offset = forms.IntegerField(min_value=1, max_value=OFFSET_MAX, widget=forms.HiddenInput)


class RescheduleForm(ScheduledForm):
    at = Moment(label=gettext_lazy("New time"), help_text=IN_ZONE)


class _ScheduledOperation(MessageOperation):
    form_class: ClassVar[type[forms.Form]] = ScheduledForm

    def change(self, data: Data, due: Due | None) -> MessageTimeline:
        found = _found(data["offset"])
        row = (found.partition, found.id, found.message.target or "")
        author = Author(self.user_name, self.reason)
        if not change_row(found.topic, row, due, author=author, using=conf.database()):
            raise Refused(_gone())
        return found

    def subject(self, data: Data) -> Subject:
        offset = data["offset"]
        found = message_timeline(conf.database(), offset, payload_limit=lambda topic: 1, groups=1)
        return Subject(Message, str(offset), f"{found.topic}@{offset}" if found else str(offset))


class CancelMessage(_ScheduledOperation):
    route, url_name = "cancel", "cancel_message"
    title = gettext_lazy("Cancel a scheduled message")
    flag = DELETION

    def back(self, data: Data | None) -> str | None:
        return allowed_url(self.request, "message_changelist")

    def plan(self, data: Data) -> Plan:
        found = _found(data["offset"])
        consequences = [_("The message is deleted and will never be delivered. This cannot be undone.")]
        if found.message.attempts:
            consequences = [
                _(
                    "It is the retry of a message that has failed. Group %(group)s will not receive the message again,"
                    " and it does not become a dead letter. This cannot be undone."
                )
                % {"group": found.message.target or ""}
            ]
        what = _("Cancel message %(offset)s of topic %(topic)s, which is due at %(time)s?") % {
            "offset": data["offset"], "topic": found.topic, "time": local_time(found.message.available_at),
        }  # fmt: skip
        return Plan(what, consequences, button=_("Cancel the message"), is_destructive=True)

    def perform(self, data: Data) -> Result:
        found = self.change(data, None)
        names = {"offset": data["offset"], "topic": found.topic, "id": found.message.id}
        return Result(_("Message %(offset)s of topic %(topic)s (id %(id)s) is cancelled.") % names)


class RescheduleMessage(_ScheduledOperation):
    route, url_name = "reschedule", "reschedule_message"
    title = gettext_lazy("Reschedule a message")
    form_class = RescheduleForm
    next_button = gettext_lazy("Preview")

    def form(self, data: Any) -> forms.Form:
        """Return the form. Without a new time, it shows the current one."""
        form = super().form(data)
        offset = ScheduledForm(data)
        if not form.is_bound and offset.is_valid():
            try:
                at = _found(offset.cleaned_data["offset"]).message.available_at
            except Refused:
                return form
            form.initial["at"] = f"{timezone.localtime(at):%Y-%m-%dT%H:%M:%S}"
        return form

    def plan(self, data: Data) -> Plan:
        found = _found(data["offset"])
        what = _("Deliver message %(offset)s of topic %(topic)s at %(new)s instead of %(time)s?") % {
            "offset": data["offset"], "topic": found.topic, "new": local_time(data["at"]),
            "time": local_time(found.message.available_at),
        }  # fmt: skip
        is_past = data["at"] <= datetime.now(UTC)
        warnings = [_("This time is in the past: the message is due at once.")] if is_past else []
        return Plan(what, warnings=warnings, button=_("Reschedule"))

    def perform(self, data: Data) -> Result:
        found = self.change(data, due_of(None, data["at"]))
        names = {"offset": data["offset"], "topic": found.topic, "time": local_time(data["at"])}
        return Result(_("Message %(offset)s of topic %(topic)s is now due at %(time)s.") % names)


def scheduled_tools(request: HttpRequest, offset: int) -> Tools:
    """Return the buttons of the operations on a scheduled message that the user may use."""
    pages = {"reschedule_message": _("Reschedule"), "cancel_message": _("Cancel the message")}
    return tools(request, pages, offset=offset)


def _gone() -> str:
    return _(
        "The message is no longer scheduled: it was moved into its topic, or cancelled, or does not exist. Nothing was"
        " changed."
    )


def _found(offset: int) -> MessageTimeline:
    """Return the message. Raises ``Refused`` if it is not scheduled."""
    found = message_timeline(conf.database(), offset, payload_limit=lambda topic: 1, groups=1)
    if found is None or found.message.status != SCHEDULED:
        raise Refused(_gone())
    return found
