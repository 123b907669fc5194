"""An inline that shows the work items about an object on the object's page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.db.models import BigIntegerField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...admin.base.display import moment
from ...admin.base.urls import link
from ...store.connection.dialect import NOW_MS
from ..models import WorkItem
from ..rights import visible
from . import display


class WorkItemInline(GenericTabularInline):
    """For ``inlines`` of any ``ModelAdmin``: all work items about the object that the user may view."""

    model = WorkItem
    ct_field, ct_fk_field = "linked_type", "linked_id"
    fields = readonly_fields = ("item", "worklist", "state", "assigned", "due", "created")
    extra = max_num = 0
    can_delete = False
    verbose_name_plural = _("work items")

    @admin.display(description=_("work item"))
    def item(self, item: WorkItem) -> str:
        site = self.admin_site.name
        return link(
            reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,), current_app=site), item.title
        )

    @admin.display(description=_("state"))
    def state(self, item: WorkItem) -> str:
        return display.state_badge(item)

    @admin.display(description=_("assigned to"))
    def assigned(self, item: WorkItem) -> str:
        return display.assignee(item)

    @admin.display(description=_("due"))
    def due(self, item: WorkItem) -> str:
        return display.due(item)

    @admin.display(description=_("created"))
    def created(self, item: WorkItem) -> str:
        return moment(item.created_at, short=True)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkItem]:
        seen = [worklist.name for worklist in visible(request.user)]
        rows = WorkItem.objects.using(conf.database()).filter(worklist__in=seen)
        now = RawSQL(NOW_MS, (), output_field=BigIntegerField())
        found: QuerySet[WorkItem] = rows.select_related("assignee", "team").annotate(now_ms=now)
        return found.defer("payload", "headers", "result", "error").order_by("-created_at")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(visible(request.user))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
