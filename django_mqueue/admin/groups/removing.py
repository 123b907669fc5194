"""The operation that removes messages from a group: all messages that match a form, in steps."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin.models import DELETION
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ... import conf, inspect
from ...policy import names
from ...policy.message_query import PENDING, SCHEDULED, WAITING
from ...stats.results import AT_LEAST, Figure, total
from ..base.display import listed, local_time, number
from ..base.forms import IN_ZONE, GroupForm, Moment, name_field
from ..base.operations import Data, Plan, Result
from ..messages.search_form import TITLES
from .pausing import GroupOperation

STEP = 2_000
"""Maximum number of messages that one step removes."""
COUNT_MAX = 10_000
SCAN_LIMIT = 20_000
"""Maximum number of messages that the preview reads if no index serves the filter."""
ALL_STATUSES = "all"
STATUSES = (PENDING, WAITING, SCHEDULED)


class RemoveForm(GroupForm):
    """The filter of the messages. Messages that were published after the preview, ``seen``, stay."""

    status = forms.ChoiceField(
        choices=[
            (ALL_STATUSES, gettext_lazy("All that are not in flight")), *((one, TITLES[one]) for one in STATUSES),
        ],
        label=gettext_lazy("Status"),
    )  # fmt: skip
    key = name_field("key", names.KEY_MAX, required=False, label=gettext_lazy("Key"))
    kind = forms.CharField(required=False, strip=False, max_length=names.KIND_MAX, label=gettext_lazy("Kind"))
    before = Moment(required=False, label=gettext_lazy("Published before"), help_text=IN_ZONE)
    seen = Moment(required=False, widget=forms.HiddenInput)


def _arguments(data: Data, status: str | None) -> dict[str, Any]:
    """Return the arguments of ``inspect.messages`` and ``inspect.remove`` for the form."""
    times = [one for one in (data["before"], data["seen"]) if one is not None]
    return {
        "group": data["group"], "status": status, "key": data["key"] or None, "kind": data["kind"] or None,
        "before": min(times) if times else None, "using": conf.database(),
    }  # fmt: skip


def _status(data: Data) -> str | None:
    return None if data["status"] == ALL_STATUSES else data["status"]


class RemoveMessages(GroupOperation):
    route, url_name = "remove-messages", "remove_messages"
    title = gettext_lazy("Remove messages from a group")
    flag = DELETION
    form_class = RemoveForm
    prompt = gettext_lazy(
        "The messages will not be delivered to the group. Other groups still receive them. The next page is a preview,"
        " before anything is changed."
    )
    next_button = gettext_lazy("Preview")

    def plan(self, data: Data) -> Plan:
        pair = (data["topic"], data["group"])
        at = inspect.group_figures([pair])[pair].at
        count = _count({**data, "seen": at})
        text = ngettext(
            "Remove %(count)s message of topic %(topic)s from group %(group)s? %(filter)s.",
            "Remove %(count)s messages of topic %(topic)s from group %(group)s? %(filter)s.",
            count.value,
        )
        consequences = [
            _("They will never be delivered to this group. This cannot be undone."),
            _("Messages in flight and dead letters stay. Other groups are not affected."),
            _("Messages that are published from now on stay."),
        ]
        if data["status"] in (ALL_STATUSES, SCHEDULED):
            consequences.append(_("Messages that are scheduled for all groups stay."))
        return Plan(
            text % {**data, "count": number(count), "filter": _words(data)},
            consequences,
            button=_("Remove"),
            is_destructive=True,
            is_empty=not count.value and count.how != AT_LEAST,
            fixed={"seen": at.isoformat()},
        )

    def perform(self, data: Data) -> Result:
        removed = inspect.remove(
            data["topic"], **_arguments(data, _status(data)), limit=STEP, by=self.user_name, why=self.reason
        )
        so_far = self.carried.get("removed", 0) + removed
        more = removed == STEP
        text = ngettext(
            "%(count)s message of topic %(topic)s was removed from group %(group)s: %(filter)s.",
            "%(count)s messages of topic %(topic)s were removed from group %(group)s: %(filter)s.",
            so_far,
        )
        if more:
            text = _(
                "%(count)s messages of topic %(topic)s were removed from group %(group)s so far: %(filter)s."
            )
        message = text % {**data, "count": f"{so_far:,}", "filter": _words(data)}
        return Result(message, more=more, carried={"removed": so_far})


def _words(data: Data) -> str:
    """Return the filter in words."""
    status = data["status"]
    words = [str(TITLES[status] if status in TITLES else _("All that are not in flight"))]
    if data["key"]:
        words.append(_("key %(key)s") % data)
    if data["kind"]:
        words.append(_("kind %(kind)s") % data)
    if data["before"]:
        words.append(_("published before %(time)s") % {"time": local_time(data["before"])})
    return listed(words)


def _count(data: Data) -> Figure:
    """Count the messages up to a limit. With a kind, the search is limited: no index serves it."""
    if not data["kind"]:
        arguments = _arguments(data, _status(data))
        found = inspect.remove(data["topic"], **arguments, limit=COUNT_MAX, dry_run=True)
        return Figure(found, AT_LEAST) if found == COUNT_MAX else Figure(found)
    statuses = STATUSES if data["status"] == ALL_STATUSES else (data["status"],)
    return total(_count_of_kind(data, status) for status in statuses)


def _count_of_kind(data: Data, status: str) -> Figure:
    page = inspect.messages(
        data["topic"], **_arguments(data, status), limit=1_000, scan_limit=SCAN_LIMIT, payload_limit=1
    )
    found = [one for one in page if status != SCHEDULED or one.target == data["group"]]
    return Figure(len(found), AT_LEAST) if page.next else Figure(len(found))
