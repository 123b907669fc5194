"""The operation that moves a group: choose the new position, see a preview, and confirm."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from ... import conf
from ...exceptions import GroupActive
from ...service import group_positions
from ...service.registration import Start
from ...stats.groups.group_states import ResetPreview, Stretch
from ...stats.groups.reset_preview import preview_reset
from ..base import subjects, wording
from ..base.moments import Moment
from ..base.operations import Asked, Done, Plan, Refused
from .pausing import OfGroup

EARLIEST, LATEST, TIME, OFFSET = "earliest", "latest", "time", "offset"
PLACES = (
    (EARLIEST, "All messages that the log still holds"),
    (LATEST, "Only messages published from now on"),
    (TIME, "Messages published at a time or later"),
    (OFFSET, "A message by its offset, and all later messages"),
)
OFFSET_MAX = (1 << 63) - 1


class ResetForm(subjects.OfGroup):
    """``life``: the registration generation of the preview."""

    to = forms.ChoiceField(
        label="Begin with", choices=PLACES, widget=forms.RadioSelect(attrs={"class": "radiolist"})
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
        asked = super().clean() or {}
        for to, name, what in ((TIME, "at", "a time"), (OFFSET, "offset", "an offset")):
            if asked.get("to") == to and asked.get(name) is None and name not in self.errors:
                self.add_error(name, ValidationError(f"This needs {what}."))
        return asked


def start_of(asked: Asked) -> Start:
    """Return the argument ``start`` of ``reset`` for the user's choice."""
    if asked["to"] == TIME:
        at: datetime = asked["at"]
        return at
    if asked["to"] == OFFSET:
        return int(asked["offset"])
    return "earliest" if asked["to"] == EARLIEST else "latest"


class ResetGroup(OfGroup):
    route, url_name, rights = "reset", "reset_group", ("reset_consumergroup",)
    title = "Move a group"
    form_class = ResetForm
    template_name = "admin/django_mqueue/reset.html"
    prompt = (
        "Messages after the new position that are still in the log are delivered again, each as a first attempt."
        " Messages before it are not. The next page shows the numbers, before anything is changed."
    )
    next_button = "Show what this would do"

    def plan(self, asked: Asked) -> Plan:
        seen = preview_reset(asked["topic"], asked["group"], start_of(asked), using=conf.database())
        return Plan(
            f"Move group {asked['group']} on topic {asked['topic']} to {_place(asked, seen)}?",
            _consequences(seen),
            _warnings(asked, seen),
            button="Yes, move it",
            is_destructive=seen.skipped.count.value > 0,
            ask=("force",) if seen.running else (),
            fixed={"life": str(seen.life)},
            context={"preview": seen, "stretches": _stretches(seen)},
        )

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        topic, group = asked["topic"], asked["group"]
        try:
            start = group_positions.reset_seen(
                topic, group, start_of(asked), asked["life"], force=asked["force"], using=conf.database()
            )
        except GroupActive as problem:
            names = wording.listed(problem.subscribers)
            raise Refused(
                f"The group has running subscribers: {names}. Stop them first, or tick “Also while its subscribers"
                " run”."
            ) from problem
        where = {TIME: f"time {_time(asked)}", OFFSET: f"offset {asked['offset']}"}.get(
            asked["to"], asked["to"]
        )
        return Done(f"Group {group} on topic {topic} now begins after offset {start} ({where}).", start)


def _time(asked: Asked) -> str:
    return f"{timezone.localtime(asked['at']):%Y-%m-%d %H:%M:%S %Z}" if asked["at"] else ""


def _place(asked: Asked, seen: ResetPreview) -> str:
    if asked["to"] == EARLIEST:
        return "the start"
    if asked["to"] == LATEST or _is_beyond_the_end(asked, seen):
        return f"the end (as of now, after offset {seen.start})"
    if asked["to"] == TIME:
        return f"{_time(asked)} (after offset {seen.start})"
    return f"offset {asked['offset']}"


def _is_beyond_the_end(asked: Asked, seen: ResetPreview) -> bool:
    return asked["to"] == OFFSET and int(asked["offset"]) > (seen.newest or 0)


def _warnings(asked: Asked, seen: ResetPreview) -> list[str]:
    """Warn if the chosen position is beyond the end of the log.

    The group then starts at the end, so it also gets new messages before the chosen position.
    """
    gets = "The group gets every message that is published from now on, also"
    if _is_beyond_the_end(asked, seen):
        end = "which is empty" if seen.newest is None else f"whose last message has offset {seen.newest}"
        offset = f"offset {asked['offset']}"
        return [f"O{offset[1:]} is beyond the end of the log, {end}. {gets} below {offset}."]
    if asked["to"] == TIME and seen.begins_at is None:
        return [f"No message was published at {_time(asked)} or later. {gets} before that time."]
    return []


def _stretches(seen: ResetPreview) -> list[tuple[str, str, Stretch]]:
    return [
        ("Delivered again", "done before, or skipped", seen.replayed),
        ("Skipped", "not done, and never delivered then", seen.skipped),
        ("Delivered in any case", "not done yet", seen.coming),
    ]


def _consequences(seen: ResetPreview) -> list[str]:
    told = []
    if seen.skipped.count.value:
        told.append(
            f"{wording.count(seen.skipped.count, 'message').capitalize()} that the group is not done with will never"
            " be delivered to it. Other groups still receive them."
        )
    if seen.replayed.count.value:
        told.append(
            "Its handlers run a second time for messages that are delivered again: they must be idempotent."
        )
    if seen.in_flight.value:
        told.append(
            f"The group has {wording.count(seen.in_flight, 'message')} in flight. Their acks will be refused;"
            " messages after the new position are delivered again."
        )
    if seen.waiting.value:
        verb = "waits" if seen.waiting.value == 1 else "wait"
        told.append(
            f"The group has {wording.count(seen.waiting, 'message')} that {verb} for a retry. Messages after the new"
            " position are delivered at once, each as a first attempt."
        )
    told.append(
        f"Its dead letters stay: {wording.number(seen.dead)}."
        if seen.dead.value
        else "It has no dead letters."
    )
    if seen.running:
        told.append(
            f"The group has running subscribers: {wording.listed(list(seen.running))}. Stop them first; or tick the"
            " box below to restart them at the new position."
        )
    if seen.paused:
        told.append("The group is paused, and stays paused.")
    told.append("Other groups are not affected.")
    told.append(f"All numbers are from {seen.at:%H:%M:%S} UTC; later messages and acks are not included.")
    return told
