"""Values of items as HTML: states, due dates, people, linked objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ...admin.base.display import EMPTY, Text, badge, moment, name
from ...admin.base.urls import link
from .. import states
from ..models import WorkItem

KINDS = {
    states.UNASSIGNED: "waiting",
    states.ASSIGNED: "good",
    states.AUTOMATED: "good",
    states.DELAYED: "over",
    states.FINISHED: "over",
    states.CANCELLED: "over",
}
"""The colour of each state's badge. A declared state waits for its reviewers."""

VERB_TEXTS: dict[str, Text] = {
    states.TAKE: gettext_lazy("Take"),
    states.ASSIGN: gettext_lazy("Assign"),
    states.UNASSIGN: gettext_lazy("Unassign"),
    states.HAND_BACK: gettext_lazy("Hand back"),
    states.FINISH: gettext_lazy("Finish"),
    states.DELAY: gettext_lazy("Delay"),
    states.MOVE: gettext_lazy("Move on"),
    states.CANCEL: pgettext_lazy("work item", "Cancel the item"),
    states.COMMENT: gettext_lazy("Comment"),
}

STEP_TEXTS: dict[str, Text] = {
    "created": gettext_lazy("created"),
    "taken": gettext_lazy("taken"),
    "assigned": gettext_lazy("assigned"),
    "unassigned": gettext_lazy("unassigned"),
    "handed_back": gettext_lazy("handed back"),
    "finished": gettext_lazy("finished"),
    "delayed": gettext_lazy("delayed"),
    "returned": gettext_lazy("returned"),
    "moved": gettext_lazy("moved on"),
    "cancelled": gettext_lazy("cancelled"),
    "commented": gettext_lazy("commented"),
    "failed": gettext_lazy("given to people by the handler"),
    "reminded": gettext_lazy("reminded"),
    "overdue": gettext_lazy("overdue"),
}


def state_text(state: str) -> Text:
    """Return the text of a state; the name of one that the worklist declares, with blanks."""
    return states.STATE_TEXTS.get(state) or state.replace("_", " ")


def state_badge(item: WorkItem) -> SafeString:
    return badge(KINDS.get(item.state, "waiting"), state_text(item.state))


def is_overdue(item: WorkItem, now: datetime | None = None) -> bool:
    return item.is_open and item.due_at is not None and item.due_at < (now or datetime.now(UTC))


def due(item: WorkItem) -> str:
    """Return the due date, with a badge if it has passed."""
    if item.due_at is None:
        return EMPTY
    shown = moment(item.due_at, short=True)
    return SafeString(shown) + " " + badge("bad", _("overdue")) if is_overdue(item) else shown


def assignee(item: WorkItem) -> str:
    """Return the user, or the team, that has the item."""
    if item.assignee is not None:
        return name(item.assignee.get_full_name() or item.assignee.get_username())
    return name(_("team %(name)s") % {"name": item.team.name}) if item.team is not None else EMPTY


def linked(request: HttpRequest, site: AdminSite, item: WorkItem) -> str:
    """Return the linked object, with a link to its page for users who may view it."""
    if item.linked_type is None:
        return EMPTY
    found: Any = item.linked
    if found is None:
        return _("%(model)s %(id)s, which no longer exists") % {
            "model": item.linked_type.name,
            "id": item.linked_id,
        }
    text = f"{capfirst(str(found._meta.verbose_name))}: {found}"
    page = site._registry.get(type(found))
    if page is None or not page.has_view_or_change_permission(request, found):
        return name(text)
    try:
        url = reverse(
            f"admin:{found._meta.app_label}_{found._meta.model_name}_change",
            args=(found.pk,),
            current_app=site.name,
        )
    except NoReverseMatch:
        return name(text)
    return link(url, text)
