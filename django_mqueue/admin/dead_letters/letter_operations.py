"""Redrive or purge dead letters: a selection from the list, or all that match a filter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...models import DeadLetter
from ...policy.dead_letter_filter import DeadLetterQuery
from ..base import wording
from ..base.audit import DELETION, Subject
from ..base.display import printable
from ..base.operations import Asked, Done, Operation, Plan
from . import visible
from .letter_choice import LetterFilter, Offsets, OfLetters, choice, dead_topic, list_url, words

RATE_MOST = bulk_redrive.STEP_LETTERS
IDS_SHOWN = 5


class _Was(forms.Form):
    was = forms.CharField(required=False, max_length=4_000, strip=False, widget=forms.HiddenInput)
    """The query of the list from which the operation began."""


class Selected(OfLetters, _Was):
    offsets = Offsets(required=False)

    def clean(self) -> dict[str, Any]:
        if not self.cleaned_data.get("offsets"):
            raise ValidationError("No dead letter is selected: go back to the list and select some.")
        return self.cleaned_data


class Matching(LetterFilter, _Was):
    """The filter as hidden fields. ``up_to``: the offset of the newest dead letter when the plan was shown."""

    up_to = forms.IntegerField(
        required=False, min_value=0, max_value=dead_letters.END, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in LetterFilter.base_fields:
            self.fields[name].widget = self.fields[name].hidden_widget()


class RedriveMatchingForm(Matching):
    rate = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=RATE_MOST,
        label="Dead letters per second at most",
        help_text="Empty: as fast as possible.",
    )


class PurgeMatchingForm(Matching):
    typed = forms.CharField(required=False, strip=False, label="Type the topic's name to confirm:")

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if self.data.get("confirmed") and typed != self.cleaned_data.get("topic"):
            raise ValidationError("This is not the topic's name.")
        return typed


class _OnLetters(Operation):
    """An operation on dead letters. ``returns``: redrive them to their groups; otherwise delete them."""

    returns: ClassVar[bool]

    def subject(self, asked: Asked) -> Subject:
        offsets = asked.get("offsets") or []
        return Subject(
            DeadLetter,
            str(offsets[0]) if len(offsets) == 1 else "",
            f"Dead letter {offsets[0]} of {asked['topic']}"
            if len(offsets) == 1
            else f"Dead letters of {asked['topic']}",
        )

    def back(self, asked: Asked | None) -> str:
        return list_url(self.request, asked, (asked or {}).get("was", ""))

    def chosen(self, asked: Asked) -> DeadLetterQuery:
        visible.seen_by(self.request, asked["topic"], dead_topic(asked)).check(asked)
        return choice(asked)

    def plan(self, asked: Asked) -> Plan:
        using, chosen = conf.database(), self.chosen(asked)
        up_to = dead_letters.newest(using, chosen.dead_topic)
        found = dead_letters.count(using, chosen, up_to)
        there = (
            dead_letters.registered(using, chosen.topic, found.groups) if self.returns else set(found.groups)
        )
        groups = {group: number for group, number in found.groups.items() if group in there}
        gone = {group: number for group, number in found.groups.items() if group not in there}
        number = dead_letters.Count(groups, found.is_more)
        letter = "dead letter" if str(number) == "1" else "dead letters"
        means = [f"{number:,} to group {group}." for group, number in sorted(groups.items())]
        if not self.returns:
            means = [f"{number:,} of group {group}." for group, number in sorted(groups.items())]
        if found.is_more:
            means.append("More dead letters match than were counted: the operation also finds these.")
        means += [
            f"{number:,} of group {group} {'stays' if number == 1 else 'stay'}: the group is no longer registered."
            for group, number in sorted(gone.items())
        ]
        missing = len(asked.get("offsets") or ()) - found.number
        if missing > 0:
            means.append(f"{missing:,} of the selected dead letters no longer exist.")
        return Plan(
            self.sentence(f"{number} {letter}", {**asked, "named": self._named(chosen)}),
            [*means, *self.means],
            button=self.button,
            is_destructive=not self.returns,
            is_empty=not groups,
            ask=("typed",) if "typed" in self.form_class.base_fields else (),
            fixed={"up_to": str(up_to)} if "up_to" in self.form_class.base_fields else {},
        )

    means: ClassVar[tuple[str, ...]] = ()
    button: ClassVar[str]

    def sentence(self, letters_: str, asked: Asked) -> str:
        raise NotImplementedError

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        using, chosen = conf.database(), self.chosen(asked)
        now = time.time()
        so_far = {
            "moved": 0,
            "locked": 0,
            "homeless": 0,
            "looked": 0,
            "position": 0,
            "then": now - 1,
            **carried,
        }
        if "named" not in so_far:
            so_far["named"] = self._named(chosen)
        up_to = so_far.get("up_to")
        if up_to is None:
            newest = dead_letters.newest(using, chosen.dead_topic)
            up_to = min(asked.get("up_to") or newest, newest)
            so_far |= {
                "up_to": up_to,
                **self._extent(DeadLetterQuery(chosen.topic, chosen.dead_topic), up_to),
            }
        limit = bulk_redrive.STEP_LETTERS
        if rate := asked.get("rate"):
            limit = int(min(max(now - so_far["then"], 0), 5) * rate)
        if limit:
            step = bulk_redrive.step(
                using, chosen, so_far["position"], up_to, redrives=self.returns, limit=limit
            )
            for name in ("moved", "locked", "homeless", "looked"):
                so_far[name] += getattr(step, name)
            so_far |= {"position": step.position, "then": now}
        more = so_far["position"] is not None
        count, total = so_far["looked"], so_far["total"]
        if so_far["first"] is not None:
            count, total = (so_far["position"] or up_to) - so_far["first"], up_to - so_far["first"] + 1
        return Done(
            self.said(so_far, asked, more),
            count=max(count, 0),
            total=max(total, count, 1),
            more=more,
            carried=so_far,
        )

    def _named(self, chosen: DeadLetterQuery) -> str:
        """Return the first ids of the selection and the number of the others, or "" if the choice is a filter."""
        if chosen.offsets is None:
            return ""
        return wording.listed(
            [printable(id_) for id_ in dead_letters.ids(conf.database(), chosen)], IDS_SHOWN
        )

    def _extent(self, everything: DeadLetterQuery, up_to: int) -> dict[str, Any]:
        """Return the measure of progress: the number of dead letters.

        If there are too many to count, progress is measured by offsets, from ``first``.
        """
        number = dead_letters.count(conf.database(), everything, up_to)
        first = dead_letters.oldest(conf.database(), everything.dead_topic) if number.is_more else None
        return {"total": number.number, "first": first}

    done: ClassVar[str]

    def said(self, so_far: Mapping[str, Any], asked: Asked, more: bool) -> str:
        moved = so_far["moved"]
        letter = "dead letter was" if moved == 1 else "dead letters were"
        text = f"{moved:,} {letter} {self.done}"
        asked = {**asked, "named": so_far["named"]}
        if more:
            return f"{text} so far; {so_far['looked']:,} were examined: {words(asked, logged=True)}."
        text += f": {words(asked, logged=True)}."
        if so_far["homeless"]:
            text += f" {so_far['homeless']:,} stayed: their group is no longer registered."
        if so_far["locked"]:
            text += (
                f" {so_far['locked']:,} stayed: another process had locked them. Repeat this to include them."
            )
        if asked.get("offsets") and not moved and not so_far["homeless"] and not so_far["locked"]:
            text += " The selected dead letters no longer exist."
        return text


class _Redrive(_OnLetters):
    rights = ("view_deadletter", "redrive_deadletter")
    title = "Send dead letters back"
    returns = True
    button = "Yes, send back"
    done = "sent back"
    means = (
        "Each returns to the group that failed to handle it, and to no other. It keeps its id, key, kind and headers.",
        "Its attempt count starts again at one. A message that fails again becomes a dead letter again.",
        "Later dead letters are not affected.",
    )

    def sentence(self, letters_: str, asked: Asked) -> str:
        return f"Send {letters_} back? {_upper(words(asked))}."


class RedriveSelected(_Redrive):
    route, url_name, form_class = "redrive", "redrive_selected", Selected


class RedriveMatching(_Redrive):
    route, url_name, form_class = "redrive-matching", "redrive_matching", RedriveMatchingForm


class _Purge(_OnLetters):
    rights = ("view_deadletter", "purge_deadletter")
    title = "Delete dead letters"
    flag = DELETION
    returns = False
    button = "Yes, delete them for good"
    done = "deleted"
    means = (
        "Payload, headers and errors are lost. They cannot be restored.",
        "The group that failed to handle these messages never handles them. Other groups are not affected.",
        "Later dead letters are not affected.",
    )

    def sentence(self, letters_: str, asked: Asked) -> str:
        return f"Delete {letters_} for good? {_upper(words(asked))}."


class PurgeSelected(_Purge):
    route, url_name, form_class = "purge", "purge_selected", Selected


class PurgeMatching(_Purge):
    route, url_name, form_class = "purge-matching", "purge_matching", PurgeMatchingForm


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
