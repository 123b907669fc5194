"""Redrive or purge dead letters: a selection from the list, or all that match a filter."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import get_language, gettext_lazy, ngettext, ngettext_lazy
from django.utils.translation import gettext as _

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...models import DeadLetter
from ...policy.dead_letter_filter import DeadLetterQuery
from ...service import bulk_work
from ...service.actions import ADMIN, Author, BulkRecord
from ..base.display import Text, duration
from ..base.operations import Data, Operation, Plan, Result, Subject
from ..base.urls import allowed_url, page_url
from . import handing_over, visible
from .filters import DeadLetterFilter, DeadLettersForm, OffsetsField, dead_topic, list_url, query_of, words
from .run import Run, begin, ids_of, successor

LIST_QUERY = forms.CharField(required=False, max_length=30_000, strip=False, widget=forms.HiddenInput)
"""No query of a list is longer: its fields take about 2,300 characters, and each is encoded as at most 12."""


class SelectedForm(DeadLettersForm):
    """The selected dead letters. ``list_query``: the query of the list from which the operation began."""

    offsets = OffsetsField(required=False)
    list_query = LIST_QUERY

    def clean(self) -> dict[str, Any]:
        if not self.cleaned_data.get("offsets") and "offsets" not in self.errors:
            raise ValidationError(
                _("No dead letter is selected. Go back to the list and select one or more.")
            )
        return self.cleaned_data


class MatchingForm(DeadLetterFilter):
    """The filter as hidden fields. ``up_to``: the offset of the newest dead letter when the plan was shown."""

    list_query = LIST_QUERY
    up_to = forms.IntegerField(
        required=False, min_value=0, max_value=dead_letters.OFFSET_MAX, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in DeadLetterFilter.base_fields:
            self.fields[name].widget = self.fields[name].hidden_widget()


class RedriveMatchingForm(MatchingForm):
    rate = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=bulk_redrive.STEP_DEAD_LETTERS,
        label=gettext_lazy("Maximum per second"),
        help_text=gettext_lazy("Empty: as fast as possible."),
    )


class PurgeMatchingForm(MatchingForm):
    typed = forms.CharField(
        required=False, strip=False, label=gettext_lazy("Type the topic's name to confirm:")
    )

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if self.data.get("confirmed") and typed != self.cleaned_data.get("topic"):
            raise ValidationError(_("This is not the topic's name."))
        return typed


class DeadLetterOperation(Operation):
    """An operation on dead letters.

    ``redrives``: redrive them to their groups; otherwise delete them. ``of_group``: the consequence for one group, with
    its count. ``done`` and ``done_so_far``: the results of the last step, and of an earlier step.
    """

    redrives: ClassVar[bool]
    question: ClassVar[Text]
    of_group: ClassVar[Text]
    consequences: ClassVar[tuple[Text, ...]]
    button: ClassVar[Text]
    done: ClassVar[Text]
    done_so_far: ClassVar[Text]

    def subject(self, data: Data) -> Subject:
        offsets = data.get("offsets") or []
        if len(offsets) == 1:
            name = _("Dead letter %(offset)s of %(topic)s") % {**data, "offset": offsets[0]}
            return Subject(DeadLetter, str(offsets[0]), name)
        return Subject(DeadLetter, "", _("Dead letters of %(topic)s") % data)

    def back(self, data: Data | None) -> str | None:
        return list_url(self.request, data, (data or {}).get("list_query", ""))

    def query(self, data: Data) -> DeadLetterQuery:
        visible.visibility_of(self.request, data["topic"], dead_topic(data)).check(data)
        return query_of(data)

    def plan(self, data: Data) -> Plan:
        using, query = conf.database(), self.query(data)
        up_to = dead_letters.newest(using, query.dead_topic)
        found = dead_letters.count(using, query, up_to)
        groups = dict(sorted(found.groups.items()))
        left_out: dict[str, int] = {}
        if self.redrives:
            registered = dead_letters.registered(using, query.topic, groups)
            left_out = {group: count for group, count in groups.items() if group not in registered}
            groups = {group: count for group, count in groups.items() if group in registered}
        consequences: list[Text] = [
            self.of_group % {"count": f"{count:,}", "group": group} for group, count in groups.items()
        ]
        if found.is_more:
            consequences.append(
                _("Not all matching dead letters were counted. The operation includes all of them.")
            )
        consequences += [_left_out(group, count) for group, count in left_out.items()]
        missing = len(data.get("offsets") or ()) - found.number
        if missing > 0:
            consequences.append(_missing(missing))
        chosen = dead_letters.Count(groups, found.is_more)
        if "rate" in self.form_class.base_fields:
            consequences.append(_speed(chosen, data.get("rate")))
        what = self.question % {
            "number": chosen.number + 2 * chosen.is_more,
            "count": chosen,
            "filter": capfirst(words(data, ids_of(query))),
        }
        return Plan(
            what,
            [*consequences, *self.consequences],
            button=self.button,
            is_destructive=not self.redrives,
            is_empty=not groups and not found.is_more,
            again=_("Calculate again") if "rate" in self.form_class.base_fields else "",
            ask=[name for name in ("rate", "typed") if name in self.form_class.base_fields],
            fixed={"up_to": str(up_to)} if "up_to" in self.form_class.base_fields else {},
        )

    def perform(self, data: Data) -> Result:
        query, now = self.query(data), time.time()
        run = Run(**self.carried) if self.carried else begin(query, data.get("up_to"), now)
        limit = bulk_redrive.STEP_DEAD_LETTERS
        if rate := data.get("rate"):
            limit = int(min(max(now - run.step_at, 0), 5) * rate)
        redriven: Sequence[tuple[str, str]] = ()
        if limit and run.position is not None:
            step = bulk_redrive.step(
                conf.database(), query, run.position, run.up_to, redrives=self.redrives, limit=limit,
                record=self.record(Author(self.user_name, self.reason), run, data),
            )  # fmt: skip
            run.add(step)
            # A step that moved too many delays the next one.
            run.step_at = now + (max(step.moved - limit, 0) / rate if rate else 0)
            redriven = step.redriven
        if len(redriven) == 1 and run.position is None and len(data.get("offsets") or ()) == 1:
            return self._redriven(self.message(run, data), query.topic, redriven[0])
        count, total = run.progress
        more = run.position is not None
        return Result(self.message(run, data), more=more, count=count, total=total, carried=asdict(run))

    def stopped(self, data: Data, carried: Mapping[str, Any]) -> None:
        self.record(Author(self.user_name, self.reason, ADMIN), Run(**carried), data).end(conf.database())

    def record(self, author: Author, run: Run, data: Data) -> BulkRecord:
        """Return the record of the operation. It has the changes of the previous steps."""
        action, group = "redrive" if self.redrives else "purge", data.get("group") or ""
        selected = words(data, run.ids, logged=True)
        record = BulkRecord(author, action, data["topic"], group, selected=selected)
        if run.moved:
            # Two entries: ``BulkRecord.end`` records a total only after more than one transaction.
            record.changes += [run.moved, 0]
        return record

    def _redriven(self, message: str, topic: str, redriven: tuple[str, str]) -> Result:
        """Return the result of the redrive of one dead letter. It leads to the new message."""
        offset = bulk_redrive.offset_of(conf.database(), topic, redriven)
        url = None if offset is None else allowed_url(self.request, "message_change", offset)
        return Result(f"{message} {successor(offset)}".rstrip(), url=url)

    def hand_over(self, entry: LogEntry, form: forms.Form, result: Result) -> str | None:
        using, rate = conf.database(), form.cleaned_data.get("rate")
        if not handing_over.has_live_worker(using):
            return None
        data = cast("QueryDict", form.data)
        work = handing_over.Work(
            self.url_name,
            {name: _unambiguous(form, name, data.getlist(name)) for name in form.fields if name in data},
            dict(result.carried),
            entry.pk,
            [entry.change_message],
            pause=Run(**result.carried).moved / rate if rate else 0,
            reason=self.reason,
            language=get_language(),
            zone=getattr(timezone.get_current_timezone(), "key", None),
        )
        bulk_work.send(using, str(entry.pk), asdict(work))
        return page_url(self.request, "deadletter_run", entry=entry.pk)

    def message(self, run: Run, data: Data) -> str:
        values = {
            "number": run.moved, "count": f"{run.moved:,}", "examined": f"{run.examined:,}",
            "filter": words(data, run.ids, logged=True),
        }  # fmt: skip
        if run.position is not None:
            return self.done_so_far % values
        sentences = [self.done % values]
        if run.unregistered:
            text = ngettext(
                "%(count)s stayed: its group is no longer registered.",
                "%(count)s stayed: their group is no longer registered.",
                run.unregistered,
            )
            sentences.append(text % {"count": f"{run.unregistered:,}"})
        if run.locked:
            text = ngettext(
                "%(count)s stayed: another process had locked it. Repeat this to include it.",
                "%(count)s stayed: another process had locked them. Repeat this to include them.",
                run.locked,
            )
            sentences.append(text % {"count": f"{run.locked:,}"})
        if data.get("offsets") and not (run.moved or run.unregistered or run.locked):
            sentences.append(_("The selected dead letters no longer exist."))
        return " ".join(sentences)


def _unambiguous(form: forms.Form, name: str, values: list[str]) -> list[str]:
    """Return the values of a field. A time has its offset from UTC, because a worker has another time zone."""
    value = form.cleaned_data.get(name)
    return [value.isoformat()] if isinstance(value, datetime) else values


class _SelectedOperation(DeadLetterOperation):
    """An operation on selected dead letters. ``matching``: the operation on all that match, if "all" is selected."""

    form_class: ClassVar[type[forms.Form]] = SelectedForm
    matching: ClassVar[str]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "all" not in request.POST or self.url_name == self.matching:
            return super().post(request, *args, **kwargs)
        list_query = request.POST.get("list_query", "")
        fields = QueryDict(list_query)
        query = {name: fields[name] for name in DeadLetterFilter.base_fields if fields.get(name)}
        return HttpResponseRedirect(page_url(request, self.matching, **query, list_query=list_query))


def _left_out(group: str, count: int) -> str:
    text = ngettext(
        "%(count)s of group %(group)s stays: the group is no longer registered.",
        "%(count)s of group %(group)s stay: the group is no longer registered.",
        count,
    )
    return text % {"count": f"{count:,}", "group": group}


def _speed(chosen: dead_letters.Count, rate: int | None) -> str:
    """Return the sentence about the rate, and the time that the operation takes at this rate."""
    if not rate:
        return _("As fast as possible. To limit the load, set a maximum number of messages per second.")
    values = {"rate": f"{rate:,}", "time": duration(timedelta(seconds=math.ceil(chosen.number / rate)))}
    if chosen.is_more:
        return _("At most %(rate)s messages per second: it takes more than %(time)s.") % values
    return _("At most %(rate)s messages per second: it takes about %(time)s.") % values


def _missing(count: int) -> str:
    text = ngettext(
        "%(count)s of the selected dead letters no longer exists.",
        "%(count)s of the selected dead letters no longer exist.",
        count,
    )
    return text % {"count": f"{count:,}"}


class RedriveSelected(_SelectedOperation):
    route, url_name, matching = "redrive", "redrive_selected", "redrive_matching"
    title = gettext_lazy("Redrive dead letters")
    redrives = True
    question = ngettext_lazy(
        "Redrive %(count)s dead letter? %(filter)s.", "Redrive %(count)s dead letters? %(filter)s.", "number"
    )
    button = gettext_lazy("Redrive")
    of_group = gettext_lazy("%(count)s to group %(group)s.")
    done = ngettext_lazy(
        "%(count)s dead letter was redriven: %(filter)s.",
        "%(count)s dead letters were redriven: %(filter)s.",
        "number",
    )
    done_so_far = ngettext_lazy(
        "%(count)s dead letter was redriven so far; %(examined)s were examined: %(filter)s.",
        "%(count)s dead letters were redriven so far; %(examined)s were examined: %(filter)s.",
        "number",
    )
    consequences = (
        gettext_lazy(
            "Each is delivered again, only to the group that failed to handle it. A redrive cannot be undone."
        ),
        gettext_lazy("Each keeps its id, key, kind and headers."),
        gettext_lazy(
            "Its attempt count starts again at one. A message that fails again becomes a dead letter again."
        ),
        gettext_lazy("Later dead letters are not affected."),
    )


class RedriveMatching(RedriveSelected):
    route, url_name = "redrive-matching", "redrive_matching"
    form_class = RedriveMatchingForm


class PurgeSelected(_SelectedOperation):
    route, url_name, matching = "purge", "purge_selected", "purge_matching"
    title = gettext_lazy("Purge dead letters")
    flag = DELETION
    redrives = False
    question = ngettext_lazy(
        "Purge %(count)s dead letter? %(filter)s.", "Purge %(count)s dead letters? %(filter)s.", "number"
    )
    button = gettext_lazy("Purge")
    of_group = gettext_lazy("%(count)s of group %(group)s.")
    done = ngettext_lazy(
        "%(count)s dead letter was purged: %(filter)s.",
        "%(count)s dead letters were purged: %(filter)s.",
        "number",
    )
    done_so_far = ngettext_lazy(
        "%(count)s dead letter was purged so far; %(examined)s were examined: %(filter)s.",
        "%(count)s dead letters were purged so far; %(examined)s were examined: %(filter)s.",
        "number",
    )
    consequences = (
        gettext_lazy("They are deleted with payload, headers and errors. A purge cannot be undone."),
        gettext_lazy(
            "The group that failed to handle these messages never handles them. Other groups are not affected."
        ),
        gettext_lazy("Later dead letters are not affected."),
    )


class PurgeMatching(PurgeSelected):
    route, url_name = "purge-matching", "purge_matching"
    form_class = PurgeMatchingForm
