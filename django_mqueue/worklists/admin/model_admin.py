"""The list of items, and the URLs of their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...admin.base.tables import LIMIT, BoundedPaginator, NoChanges, PagedChangeList, with_keys
from ...admin.messages.masking import sees_all
from .. import states
from ..figures import overdue
from ..models import WorkAttribute, WorkItem
from ..rights import ALL_MAY, has, may_ever, visible
from ..searching import first_due, visible_to
from . import display
from .filters import OVERDUE, ViewFilter, WorklistFilter
from .pages import ITEMS_MAX, FiguresPage, ItemPage, StepPage, counted, item_of
from .urls import item_url, list_url

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[WorkItem]
else:
    ModelAdmin = admin.ModelAdmin

FOUND_MAX = 500


def _action(verb: str) -> Callable[..., HttpResponse | None]:
    """Return the action that asks for the input of a step with the selected items. It changes nothing."""

    @admin.action(description=display.VERB_TEXTS[verb], permissions=[ALL_MAY.get(verb, "take")])
    def ask(page: WorkItemAdmin, request: HttpRequest, queryset: QuerySet[WorkItem]) -> HttpResponse | None:
        items = list(queryset.order_by("pk")[: ITEMS_MAX + 1])
        if not items:
            messages.error(request, _("The selected items are no longer in this list."))
            return None
        if len({item.worklist for item in items}) > 1:
            messages.error(request, _("Select items of one worklist."))
            return None
        if not may_ever(request.user, items[0].rules, verb):
            raise PermissionDenied
        if len(items) > ITEMS_MAX:
            messages.warning(
                request, _("Only the first %(count)s items are selected.") % {"count": ITEMS_MAX}
            )
        view = StepPage(model_admin=page)
        view.setup(request, verb=verb)
        view.items = items[:ITEMS_MAX]
        return view.render_to_response(view.get_context_data())

    ask.__name__ = verb
    return ask


class WorkItemAdmin(NoChanges, ModelAdmin):
    """Work items: people change them by steps only. The list's cost does not depend on the number of items."""

    list_display = ("title", display.state_badge, "kind", display.assignee, display.due, display.created)
    list_filter = (WorklistFilter, ViewFilter)
    actions = [_action(verb) for verb in states.VERBS]
    search_fields = ("pk",)
    search_help_text = gettext_lazy(
        "The number of an item, the id of its message or its linked object, or the value of an attribute"
    )
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(visible(request.user))

    def has_view_permission(self, request: HttpRequest, obj: WorkItem | None = None) -> bool:
        if obj is None:
            return bool(visible(request.user))
        return obj.worklist in {worklist.name for worklist in visible(request.user)}

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkItem]:
        """Return the items that the user may view, without an order: the view's filter sets it."""
        return visible_to(request.user).select_related("linked_type")

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only the filters: other lookups could find what a mask hides, and no index serves them."""
        return lookup in (WorklistFilter.parameter_name, ViewFilter.parameter_name)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkItem], search_term: str
    ) -> tuple[QuerySet[WorkItem], bool]:
        """Find items by values that indexes serve, in all views of all worklists that the user may view."""
        term = search_term.strip()
        if not term:
            return queryset, False
        seen = self.get_queryset(request).order_by()
        found = set(seen.filter(message_id=term).values_list("pk", flat=True)[:FOUND_MAX])
        if term.isdecimal() and len(term) < 19:
            found |= set(seen.filter(pk=int(term)).values_list("pk", flat=True))
        for worklist in visible(request.user):
            # An attribute may have a value that the mask of the source hides.
            names = worklist.options.attributes if sees_all(request, worklist.options.source) else ()
            for name in names:
                rows = WorkAttribute.objects.using(seen.db).filter(
                    worklist=worklist.name, name=name, value=term
                )
                found |= set(rows.order_by("-item").values_list("item", flat=True)[:FOUND_MAX])
        types = list(ContentType.objects.using(seen.db).values_list("pk", flat=True))
        found |= set(
            seen.filter(linked_type__in=types, linked_id=term).values_list("pk", flat=True)[:FOUND_MAX]
        )
        return seen.filter(pk__in=found).order_by("-pk"), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PagedChangeList

    def get_paginator(
        self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any, **kwargs: Any
    ) -> BoundedPaginator:
        if queryset.query.order_by[:1] == ("due_at",):
            queryset = with_keys(queryset, first_due(queryset, LIMIT + 1))
        return BoundedPaginator(queryset, per_page, rows=self.get_queryset(request))

    def has_take_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may take any steps other than comments, on some worklist."""
        return any(
            has(request.user, one, right)
            for one in visible(request.user)
            for right in ("take", "assign", "review")
        )

    def has_assign_permission(self, request: HttpRequest) -> bool:
        return any(has(request.user, one, "assign") for one in visible(request.user))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        names = [worklist.name for worklist in visible(request.user)]
        context = {"title": _("Work items"), **(extra_context or {})}
        if names:
            chosen = request.GET.get("worklist")
            name = chosen if chosen in names else names[0]
            figures = reverse(
                "admin:mqueue_worklists_figures", args=(name,), current_app=self.admin_site.name
            )
            late = overdue(name)
            context |= {"figures_url": figures, "overdue": late, "overdue_text": counted(late)}
            context["overdue_url"] = f"{list_url(self.admin_site, name)}&view={OVERDUE}"
        return super().changelist_view(request, context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return ItemPage.as_view(model_admin=self)(request, object_id=object_id)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirect to the item: its page has the history."""
        return HttpResponseRedirect(item_url(self.admin_site, item_of(self, request, object_id)))

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of steps and figures. They run without ``ATOMIC_REQUESTS``: each step is a transaction."""
        from django.conf import settings

        def page(view: Callable[..., Any], route: str, name: str) -> URLPattern:
            for alias in settings.DATABASES:
                view = transaction.non_atomic_requests(using=alias)(view)
            return path(route, self.admin_site.admin_view(view), name=f"mqueue_worklists_{name}")

        return [
            page(StepPage.as_view(model_admin=self), "step/<slug:verb>/", "step"),
            page(FiguresPage.as_view(model_admin=self), "figures/<slug:worklist>/", "figures"),
            *super().get_urls(),
        ]
