"""The operation that resets a group: choose the new position, see a preview, and confirm."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ... import conf
from ...exceptions import GroupActive
from ...service import group_positions
from ...service.actions import Author
from ...service.registration import Start
from ...stats.groups.group_states import ResetPreview
from ...stats.groups.reset_preview import preview_reset
from ..base.display import listed, local_time, number
from ..base.forms import IN_ZONE, OFFSET_MAX, GroupForm, Moment
from ..base.operations import Data, Plan, Refused, Result
from .pausing import GroupOperation

EARLIEST, LATEST, TIME, OFFSET = "earliest", "latest", "time", "offset"
POSITIONS = (
    (EARLIEST, gettext_lazy("All messages that the log still holds")),
    (LATEST, gettext_lazy("Only messages published from now on")),
    (TIME, gettext_lazy("Messages published since a time")),
    (OFFSET, gettext_lazy("A message by its offset, and all later messages")),
)


class ResetForm(GroupForm):
    """The new position of a group. ``generation``: the registration generation of the preview."""

    to = forms.ChoiceField(
        label=gettext_lazy("Start with"),
        choices=POSITIONS,
        widget=forms.RadioSelect(attrs={"class": "radiolist"}),
    )
    at = Moment(label=gettext_lazy("Time"), required=False, help_text=IN_ZONE)
    offset = forms.IntegerField(
        label=gettext_lazy("Offset"), required=False, min_value=0, max_value=OFFSET_MAX
    )
    force = forms.BooleanField(
        label=gettext_lazy("Also while its subscribers run"),
        required=False,
        help_text=gettext_lazy(
            "They restart at the new position, and their messages in flight are delivered again."
        ),
    )
    generation = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for to, name, text in (
            (TIME, "at", _("This needs a time.")),
            (OFFSET, "offset", _("This needs an offset.")),
        ):
            if data.get("to") == to and data.get(name) is None and name not in self.errors:
                self.add_error(name, text)
        return data


def start_of(data: Data) -> Start:
    """Return the argument ``start`` of ``reset`` for the user's choice."""
    return cast("Start", {TIME: data["at"], OFFSET: data["offset"]}.get(data["to"], data["to"]))


class ResetGroup(GroupOperation):
    route, url_name = "reset", "reset_group"
    title = gettext_lazy("Reset a group")
    form_class = ResetForm
    template_name = "admin/django_mqueue/reset.html"
    prompt = gettext_lazy(
        "Messages after the new position that are still in the log are delivered again, each as a first attempt."
        " Messages before it are not. The next page is a preview, before anything is changed."
    )
    next_button = gettext_lazy("Preview")

    def plan(self, data: Data) -> Plan:
        preview = preview_reset(data["topic"], data["group"], start_of(data), using=conf.database())
        text = _("Reset group %(group)s on topic %(topic)s to %(position)s?")
        return Plan(
            text % {**data, "position": _position(data, preview)},
            _consequences(preview),
            _warnings(data, preview),
            button=_("Reset"),
            is_destructive=preview.skipped.count.value > 0,
            ask=("force",) if preview.running else (),
            fixed={"generation": str(preview.life)},
            context={
                "preview": preview,
                "ranges": [
                    (_("Delivered again"), _("done before, or skipped"), preview.replayed),
                    (_("Skipped"), _("not done, and will never be delivered"), preview.skipped),
                    (_("Delivered in any case"), _("not done yet"), preview.coming),
                ],
            },
        )

    def perform(self, data: Data) -> Result:
        topic, group = data["topic"], data["group"]
        try:
            start = group_positions.reset_seen(
                topic,
                group,
                start_of(data),
                data["generation"],
                force=data["force"],
                author=Author(self.user_name, self.reason),
                using=conf.database(),
            )
        except GroupActive as problem:
            text = _(
                "The group has running subscribers: %(names)s. Stop them first, or tick “Also while its subscribers"
                " run”."
            )
            raise Refused(text % {"names": listed(problem.subscribers)}) from problem
        text = _("Group %(group)s on topic %(topic)s now starts after offset %(start)s (%(choice)s).")
        return Result(text % {**data, "start": start, "choice": _choice(data)})


def _choice(data: Data) -> str:
    if data["to"] == TIME:
        return _("time %(time)s") % {"time": local_time(data["at"])}
    if data["to"] == OFFSET:
        return _("offset %(offset)s") % data
    return _("earliest") if data["to"] == EARLIEST else _("latest")


def _position(data: Data, preview: ResetPreview) -> str:
    if data["to"] == EARLIEST:
        return _("the start")
    if data["to"] == LATEST or _is_beyond_the_end(data, preview):
        return _("the end (as of now, after offset %(offset)s)") % {"offset": preview.start}
    if data["to"] == TIME:
        position = {"time": local_time(data["at"]), "offset": preview.start}
        return _("%(time)s (after offset %(offset)s)") % position
    return _("offset %(offset)s") % data


def _is_beyond_the_end(data: Data, preview: ResetPreview) -> bool:
    return data["to"] == OFFSET and int(data["offset"]) > (preview.newest or 0)


def _warnings(data: Data, preview: ResetPreview) -> list[str]:
    """Warn if the chosen position is beyond the end of the log.

    The group then starts at the end, so it also gets new messages before the chosen position.
    """
    if _is_beyond_the_end(data, preview):
        text = _(
            "Offset %(offset)s is beyond the end of the log, whose last message has offset %(newest)s. The group gets"
            " every message that is published from now on, also below offset %(offset)s."
        )
        if preview.newest is None:
            text = _(
                "Offset %(offset)s is beyond the end of the log, which is empty. The group gets every message that is"
                " published from now on, also below offset %(offset)s."
            )
        return [text % {**data, "newest": preview.newest}]
    if data["to"] == TIME and preview.begins_at is None:
        text = _(
            "No message was published at %(time)s or later. The group gets every message that is published from now"
            " on, also before that time."
        )
        return [text % {"time": local_time(data["at"])}]
    return []


def _consequences(preview: ResetPreview) -> list[str]:
    texts = [
        _(
            "The group continues at the new position. You can undo this only in part: reset the group again, but its"
            " delivery state is deleted and cannot be restored."
        )
    ]
    if preview.skipped.count.value:
        text = ngettext(
            "%(count)s message that the group is not done with will never be delivered to it. Other groups still"
            " receive it.",
            "%(count)s messages that the group is not done with will never be delivered to it. Other groups still"
            " receive them.",
            preview.skipped.count.value,
        )
        texts.append(capfirst(text % {"count": number(preview.skipped.count)}))
    if preview.replayed.count.value:
        texts.append(
            _(
                "Its handlers run a second time for messages that are delivered again: they must be idempotent."
            )
        )
    if preview.in_flight.value:
        text = ngettext(
            "The group has %(count)s message in flight. Its acknowledgement will be refused; messages after the new"
            " position are delivered again.",
            "The group has %(count)s messages in flight. Their acknowledgements will be refused; messages after the new"
            " position are delivered again.",
            preview.in_flight.value,
        )
        texts.append(text % {"count": number(preview.in_flight)})
    if preview.waiting.value:
        text = ngettext(
            "The group has %(count)s message that waits for a retry. Messages after the new position are delivered at"
            " once, each as a first attempt.",
            "The group has %(count)s messages that wait for a retry. Messages after the new position are delivered at"
            " once, each as a first attempt.",
            preview.waiting.value,
        )
        texts.append(text % {"count": number(preview.waiting)})
    if preview.dead.value:
        texts.append(_("Its dead letters stay: %(count)s.") % {"count": number(preview.dead)})
    else:
        texts.append(_("It has no dead letters."))
    if preview.running:
        text = _(
            "The group has running subscribers: %(names)s. Stop them first; or tick the box below to restart them at"
            " the new position."
        )
        texts.append(text % {"names": listed(preview.running)})
    if preview.paused:
        texts.append(_("The group is paused, and stays paused."))
    text = _("All numbers are from %(time)s UTC; later messages and acknowledgements are not included.")
    return [*texts, _("Other groups are not affected."), text % {"time": f"{preview.at:%H:%M:%S}"}]
