"""An inline that shows the work items about an object on the object's page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ...admin.base.tables import NoChanges
from ...admin.base.urls import link
from ..models import WorkItem
from ..rights import visible
from ..searching import visible_to
from . import display
from .urls import item_url


class WorkItemInline(NoChanges, GenericTabularInline):
    """For ``inlines`` of any ``ModelAdmin``: all work items about the object that the user may view."""

    model = WorkItem
    ct_field, ct_fk_field = "linked_type", "linked_id"
    fields = readonly_fields = ("item", "worklist", "state_badge", "assigned", "due", "created")
    extra = max_num = 0
    verbose_name_plural = _("work items")
    state_badge = staticmethod(display.state_badge)
    assigned = staticmethod(display.assignee)
    due = staticmethod(display.due)
    created = staticmethod(display.created)

    @admin.display(description=_("work item"))
    def item(self, item: WorkItem) -> str:
        return link(item_url(self.admin_site, item), item.title)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkItem]:
        return visible_to(request.user).order_by("-created_at")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(visible(request.user))
