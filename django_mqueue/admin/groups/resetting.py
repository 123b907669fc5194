"""The operation that resets a group: choose the new position, see a preview, and confirm."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django import forms
from django.utils import timezone

from ... import conf
from ...exceptions import GroupActive
from ...service import group_positions
from ...service.registration import Start
from ...stats.groups.group_states import ResetPreview
from ...stats.groups.reset_preview import preview_reset
from ..base.display import count, listed, number
from ..base.forms import OFFSET_MAX, GroupForm, Moment
from ..base.operations import Data, Plan, Refused, Result
from .pausing import GroupOperation

EARLIEST, LATEST, TIME, OFFSET = "earliest", "latest", "time", "offset"
POSITIONS = (
    (EARLIEST, "All messages that the log still holds"),
    (LATEST, "Only messages published from now on"),
    (TIME, "Messages published at a time or later"),
    (OFFSET, "A message by its offset, and all later messages"),
)


class ResetForm(GroupForm):
    """``life``: the registration generation of the preview."""

    to = forms.ChoiceField(
        label="Start with", choices=POSITIONS, widget=forms.RadioSelect(attrs={"class": "radiolist"})
    )
    at = Moment(label="Time", required=False)
    offset = forms.IntegerField(label="Offset", required=False, min_value=0, max_value=OFFSET_MAX)
    force = forms.BooleanField(
        label="Also while its subscribers run",
        required=False,
        help_text="They restart at the new position, and their messages in flight are delivered again.",
    )
    life = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["at"].help_text = f"In the time zone {timezone.get_current_timezone_name()}."

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for to, name, what in ((TIME, "at", "a time"), (OFFSET, "offset", "an offset")):
            if data.get("to") == to and data.get(name) is None and name not in self.errors:
                self.add_error(name, f"This needs {what}.")
        return data


def start_of(data: Data) -> Start:
    """Return the argument ``start`` of ``reset`` for the user's choice."""
    return cast("Start", {TIME: data["at"], OFFSET: data["offset"]}.get(data["to"], data["to"]))


class ResetGroup(GroupOperation):
    route, url_name = "reset", "reset_group"
    title = "Reset a group"
    form_class = ResetForm
    template_name = "admin/django_mqueue/reset.html"
    prompt = (
        "Messages after the new position that are still in the log are delivered again, each as a first attempt."
        " Messages before it are not. The next page is a preview, before anything is changed."
    )
    next_button = "Preview"

    def plan(self, data: Data) -> Plan:
        preview = preview_reset(data["topic"], data["group"], start_of(data), using=conf.database())
        return Plan(
            f"Reset group {data['group']} on topic {data['topic']} to {_position(data, preview)}?",
            _consequences(preview),
            _warnings(data, preview),
            button="Reset",
            is_destructive=preview.skipped.count.value > 0,
            ask=("force",) if preview.running else (),
            fixed={"life": str(preview.life)},
            context={
                "preview": preview,
                "stretches": [
                    ("Delivered again", "done before, or skipped", preview.replayed),
                    ("Skipped", "not done, and will never be delivered", preview.skipped),
                    ("Delivered in any case", "not done yet", preview.coming),
                ],
            },
        )

    def perform(self, data: Data) -> Result:
        topic, group, to = data["topic"], data["group"], data["to"]
        try:
            start = group_positions.reset_seen(
                topic, group, start_of(data), data["life"], force=data["force"], using=conf.database()
            )
        except GroupActive as problem:
            raise Refused(
                f"The group has running subscribers: {listed(problem.subscribers)}. Stop them first, or tick “Also"
                " while its subscribers run”."
            ) from problem
        where = {TIME: f"time {_time(data['at'])}", OFFSET: f"offset {data['offset']}"}.get(to, to)
        return Result(f"Group {group} on topic {topic} now starts after offset {start} ({where}).")


def _time(at: datetime | None) -> str:
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z}" if at else ""


def _position(data: Data, preview: ResetPreview) -> str:
    if data["to"] == EARLIEST:
        return "the start"
    if data["to"] == LATEST or _is_beyond_the_end(data, preview):
        return f"the end (as of now, after offset {preview.start})"
    if data["to"] == TIME:
        return f"{_time(data['at'])} (after offset {preview.start})"
    return f"offset {data['offset']}"


def _is_beyond_the_end(data: Data, preview: ResetPreview) -> bool:
    return data["to"] == OFFSET and int(data["offset"]) > (preview.newest or 0)


def _warnings(data: Data, preview: ResetPreview) -> list[str]:
    """Warn if the chosen position is beyond the end of the log.

    The group then starts at the end, so it also gets new messages before the chosen position.
    """
    gets = "The group gets every message that is published from now on, also"
    if _is_beyond_the_end(data, preview):
        newest = preview.newest
        end = "which is empty" if newest is None else f"whose last message has offset {newest}"
        offset = f"offset {data['offset']}"
        return [f"{offset.capitalize()} is beyond the end of the log, {end}. {gets} below {offset}."]
    if data["to"] == TIME and preview.begins_at is None:
        return [f"No message was published at {_time(data['at'])} or later. {gets} before that time."]
    return []


def _consequences(preview: ResetPreview) -> list[str]:
    texts = [
        "The group continues at the new position. You can undo this only in part: reset the group again, but its"
        " delivery state is deleted and cannot be restored."
    ]
    if preview.skipped.count.value:
        texts.append(
            f"{count(preview.skipped.count, 'message').capitalize()} that the group is not done with will never be"
            " delivered to it. Other groups still receive them."
        )
    if preview.replayed.count.value:
        texts.append(
            "Its handlers run a second time for messages that are delivered again: they must be idempotent."
        )
    if preview.in_flight.value:
        texts.append(
            f"The group has {count(preview.in_flight, 'message')} in flight. Their acknowledgements will be refused;"
            " messages after the new position are delivered again."
        )
    if preview.waiting.value:
        verb = "waits" if preview.waiting.value == 1 else "wait"
        texts.append(
            f"The group has {count(preview.waiting, 'message')} that {verb} for a retry. Messages after the new"
            " position are delivered at once, each as a first attempt."
        )
    dead = f"Its dead letters stay: {number(preview.dead)}."
    texts.append(dead if preview.dead.value else "It has no dead letters.")
    if preview.running:
        texts.append(
            f"The group has running subscribers: {listed(preview.running)}. Stop them first; or tick the box below to"
            " restart them at the new position."
        )
    if preview.paused:
        texts.append("The group is paused, and stays paused.")
    return [
        *texts,
        "Other groups are not affected.",
        f"All numbers are from {preview.at:%H:%M:%S} UTC; later messages and acknowledgements are not included.",
    ]
