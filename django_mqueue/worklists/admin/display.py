"""Values of items as HTML: states, due dates, people, linked objects."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ...admin.base.display import EMPTY, Text, badge, moment, name
from ...admin.base.urls import link
from ...policy.durations import moment_ms
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
"""The kind of each state's badge. Declared states have the kind ``waiting``."""

VERB_TEXTS: dict[str, Text] = {
    states.TAKE: gettext_lazy("Take"),
    states.ASSIGN: gettext_lazy("Assign"),
    states.UNASSIGN: gettext_lazy("Unassign"),
    states.HAND_BACK: gettext_lazy("Hand back"),
    states.FINISH: gettext_lazy("Finish"),
    states.DELAY: gettext_lazy("Delay"),
    states.MOVE: gettext_lazy("Move on"),
    states.AUTOMATE: gettext_lazy("Give to the handler"),
    states.SET_DUE: gettext_lazy("Change the due date"),
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
    "automated": gettext_lazy("given to the handler"),
    "due_changed": gettext_lazy("due date changed"),
    "cancelled": gettext_lazy("cancelled"),
    "commented": gettext_lazy("commented"),
    "failed": gettext_lazy("given to people by the handler"),
    "reminded": gettext_lazy("reminded"),
    "overdue": gettext_lazy("overdue"),
}


def state_text(state: str) -> Text:
    """Return the label of a state. For a declared state, this is its name with spaces."""
    return states.STATE_TEXTS.get(state) or state.replace("_", " ")


@admin.display(description=gettext_lazy("state"))
def state_badge(item: WorkItem) -> SafeString:
    return badge(KINDS.get(item.state, "waiting"), state_text(item.state))


@admin.display(description=gettext_lazy("due"))
def due(item: Any) -> str:
    """Return the due date, with a badge if it has passed by the database's clock (``now_ms``)."""
    if item.due_at is None:
        return EMPTY
    shown = moment(item.due_at, short=True)
    if not item.is_open or moment_ms("due_at", item.due_at) >= item.now_ms:
        return shown
    return format_html("{} {}", shown, badge("bad", _("overdue")))


@admin.display(description=gettext_lazy("assigned to"))
def assignee(item: WorkItem) -> str:
    """Return the user, or the team, that has the item."""
    if (user := item.assignee) is not None:
        return name(getattr(user, "get_full_name", user.get_username)() or user.get_username())
    return name(_("team %(name)s") % {"name": item.team.name}) if item.team is not None else EMPTY


@admin.display(description=gettext_lazy("created"))
def created(item: WorkItem) -> str:
    return moment(item.created_at, short=True)


def linked(request: HttpRequest, site: AdminSite, item: WorkItem) -> str:
    """Return the linked object, with a link to its page; its model and key for users who may not view it."""
    if item.linked_type is None:
        return EMPTY
    try:
        found: Any = item.linked
    except Exception:  # Its model was removed, or has keys of another type.
        found = None
    values = {"model": item.linked_type.name, "id": item.linked_id}
    if found is None:
        return name(_("%(model)s %(id)s, which does not exist") % values)
    if not request.user.has_perm(f"{found._meta.app_label}.{get_permission_codename('view', found._meta)}"):
        return name(f"{capfirst(str(found._meta.verbose_name))} {item.linked_id}")
    text = f"{capfirst(str(found._meta.verbose_name))}: {found}"
    model = type(found)
    page = site.get_model_admin(model) if site.is_registered(model) else None
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
