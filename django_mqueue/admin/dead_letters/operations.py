"""Redrive or purge dead letters: a selection from the list, or all that match a filter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib.admin.models import DELETION
from django.core.exceptions import ValidationError

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...models import DeadLetter
from ...policy.dead_letter_filter import DeadLetterQuery
from ..base.display import listed, printable
from ..base.operations import Data, Operation, Plan, Result, Subject
from . import visible
from .filters import DeadLetterFilter, DeadLettersForm, OffsetsField, dead_topic, list_url, query_of, words

IDS_SHOWN = 5


class SelectedForm(DeadLettersForm):
    """The selected dead letters. ``was``: the query of the list from which the operation began."""

    offsets = OffsetsField(required=False)
    was = forms.CharField(required=False, max_length=4_000, strip=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        if not self.cleaned_data.get("offsets"):
            raise ValidationError("No dead letter is selected. Go back to the list and select one or more.")
        return self.cleaned_data


class MatchingForm(DeadLetterFilter):
    """The filter as hidden fields. ``up_to``: the offset of the newest dead letter when the plan was shown."""

    was = forms.CharField(required=False, max_length=4_000, strip=False, widget=forms.HiddenInput)
    up_to = forms.IntegerField(
        required=False, min_value=0, max_value=dead_letters.END, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in DeadLetterFilter.base_fields:
            self.fields[name].widget = self.fields[name].hidden_widget()


class RedriveMatchingForm(MatchingForm):
    rate = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=bulk_redrive.STEP_LETTERS,
        label="Maximum per second",
        help_text="Empty: as fast as possible.",
    )


class PurgeMatchingForm(MatchingForm):
    typed = forms.CharField(required=False, strip=False, label="Type the topic's name to confirm:")

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if self.data.get("confirmed") and typed != self.cleaned_data.get("topic"):
            raise ValidationError("This is not the topic's name.")
        return typed


class _DeadLetterOperation(Operation):
    """An operation on dead letters. ``returns``: redrive them to their groups; otherwise delete them.

    ``question``: its ``{}`` becomes the number of dead letters. ``done``: the participle for the result.
    """

    returns: ClassVar[bool]
    question: ClassVar[str]
    means: ClassVar[tuple[str, ...]]
    button: ClassVar[str]
    done: ClassVar[str]

    def subject(self, data: Data) -> Subject:
        offsets = data.get("offsets") or []
        if len(offsets) == 1:
            return Subject(DeadLetter, str(offsets[0]), f"Dead letter {offsets[0]} of {data['topic']}")
        return Subject(DeadLetter, "", f"Dead letters of {data['topic']}")

    def back(self, data: Data | None) -> str | None:
        return list_url(self.request, data, (data or {}).get("was", ""))

    def query(self, data: Data) -> DeadLetterQuery:
        visible.view_of(self.request, data["topic"], dead_topic(data)).check(data)
        return query_of(data)

    def plan(self, data: Data) -> Plan:
        using, query = conf.database(), self.query(data)
        up_to = dead_letters.newest(using, query.dead_topic)
        found = dead_letters.count(using, query, up_to)
        by_group = sorted(found.groups.items())
        allowed = set(found.groups)
        if self.returns:
            allowed = dead_letters.registered(using, query.topic, found.groups)
        groups = {group: count for group, count in by_group if group in allowed}
        preposition = "to" if self.returns else "of"
        means = [f"{count:,} {preposition} group {group}." for group, count in groups.items()]
        if found.is_more:
            means.append("More dead letters match than were counted: the operation also finds these.")
        means += [
            f"{count:,} of group {group} {'stays' if count == 1 else 'stay'}: the group is no longer registered."
            for group, count in by_group
            if group not in allowed
        ]
        missing = len(data.get("offsets") or ()) - found.number
        if missing > 0:
            means.append(f"{missing:,} of the selected dead letters no longer exist.")
        number = str(dead_letters.Count(groups, found.is_more))
        letters = f"{number} dead letter{'' if number == '1' else 's'}"
        choice = words(data, _ids(query))
        return Plan(
            f"{self.question.format(letters)} T{choice[1:]}.",
            [*means, *self.means],
            button=self.button,
            is_destructive=not self.returns,
            is_empty=not groups,
            ask=("typed",) if "typed" in self.form_class.base_fields else (),
            fixed={"up_to": str(up_to)} if "up_to" in self.form_class.base_fields else {},
        )

    def perform(self, data: Data) -> Result:
        using, query, now = conf.database(), self.query(data), time.time()
        state = dict(self.carried)
        if not state:
            newest = dead_letters.newest(using, query.dead_topic)
            up_to = min(data.get("up_to") or newest, newest)
            state = {
                "moved": 0, "locked": 0, "homeless": 0, "looked": 0, "position": 0, "then": now - 1,
                "ids": _ids(query), "up_to": up_to, **_extent(query, up_to),
            }  # fmt: skip
        limit = bulk_redrive.STEP_LETTERS
        if rate := data.get("rate"):
            limit = int(min(max(now - state["then"], 0), 5) * rate)
        if limit:
            step = bulk_redrive.step(
                using, query, state["position"], state["up_to"], redrives=self.returns, limit=limit
            )
            for name in ("moved", "locked", "homeless", "looked"):
                state[name] += getattr(step, name)
            state |= {"position": step.position, "then": now}
        more = state["position"] is not None
        count, total = state["looked"], state["total"]
        if state["first"] is not None:
            count = (state["position"] or state["up_to"]) - state["first"]
            total = state["up_to"] - state["first"] + 1
        return Result(
            self.message(state, data, more),
            more=more,
            count=max(count, 0),
            total=max(total, count, 1),
            carried=state,
        )

    def message(self, state: Mapping[str, Any], data: Data, more: bool) -> str:
        moved, locked, homeless = state["moved"], state["locked"], state["homeless"]
        text = f"{moved:,} {'dead letter was' if moved == 1 else 'dead letters were'} {self.done}"
        choice = words(data, state["ids"], logged=True)
        if more:
            return f"{text} so far; {state['looked']:,} were examined: {choice}."
        text += f": {choice}."
        if homeless:
            text += f" {homeless:,} stayed: their group is no longer registered."
        if locked:
            text += f" {locked:,} stayed: another process had locked them. Repeat this to include them."
        if data.get("offsets") and not (moved or homeless or locked):
            text += " The selected dead letters no longer exist."
        return text


def _ids(query: DeadLetterQuery) -> str:
    """Return the first ids of the selection and the number of the others, or "" if a filter selects them."""
    if query.offsets is None:
        return ""
    return listed([printable(id_) for id_ in dead_letters.ids(conf.database(), query)], IDS_SHOWN)


def _extent(query: DeadLetterQuery, up_to: int) -> dict[str, Any]:
    """Return the measures of progress: the number of dead letters, and the first offset if they are too many."""
    using = conf.database()
    count = dead_letters.count(using, DeadLetterQuery(query.topic, query.dead_topic), up_to)
    first = dead_letters.oldest(using, query.dead_topic) if count.is_more else None
    return {"total": count.number, "first": first}


class RedriveSelected(_DeadLetterOperation):
    route, url_name = "redrive", "redrive_selected"
    form_class: ClassVar[type[forms.Form]] = SelectedForm
    title = "Redrive dead letters"
    returns = True
    question = "Redrive {}?"
    button = "Redrive"
    done = "redriven"
    means = (
        "Each is delivered again, only to the group that failed to handle it. A redrive cannot be undone.",
        "Each keeps its id, key, kind and headers.",
        "Its attempt count starts again at one. A message that fails again becomes a dead letter again.",
        "Later dead letters are not affected.",
    )


class RedriveMatching(RedriveSelected):
    route, url_name = "redrive-matching", "redrive_matching"
    form_class = RedriveMatchingForm


class PurgeSelected(_DeadLetterOperation):
    route, url_name = "purge", "purge_selected"
    form_class: ClassVar[type[forms.Form]] = SelectedForm
    title = "Purge dead letters"
    flag = DELETION
    returns = False
    question = "Purge {}?"
    button = "Purge"
    done = "purged"
    means = (
        "They are deleted with payload, headers and errors. A purge cannot be undone.",
        "The group that failed to handle these messages never handles them. Other groups are not affected.",
        "Later dead letters are not affected.",
    )


class PurgeMatching(PurgeSelected):
    route, url_name = "purge-matching", "purge_matching"
    form_class = PurgeMatchingForm
