"""The base class of the row pages: they are read-only, and their cost does not depend on the tables' length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db.models import BigIntegerField, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern

from ... import conf
from ...store.connection.dialect import NOW_MS
from .change_list import BoundedChangeList
from .links import address
from .lookups import Lookup
from .paginator import BoundedPaginator
from .row_links import RowLink, column
from .views import QueueView, patterns

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]  # Generic for type checkers only.
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Shows rows to users who may view them, and changes none, whatever other rights the user has.

    ``lookups``: the fields that narrow the list. ``order``: the columns that sort the list. Subclasses choose columns
    that an index serves. The list has no other sorting and no text search, because no index serves them.
    """

    lookups: tuple[Lookup, ...] = ()
    order: tuple[str, ...] = ()
    views: tuple[type[QueueView], ...] = ()
    """Further pages and operations of this model."""
    row_links: tuple[RowLink, ...] = ()
    """Links in each row of the list."""
    actions = None
    list_per_page = 100
    list_max_show_all = 0
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by = ()

    class Media:
        css = {"all": ["django_mqueue/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only ``lookups`` and the page's filters. Other lookups would read the whole table."""
        filters = {getattr(item, "parameter_name", None) for item in self.list_filter}
        return lookup in {each.name for each in self.lookups} | filters

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return self.order

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        request.current_app = self.admin_site.name
        return [*super().get_list_display(request), *column(request, self.row_links)]

    def get_urls(self) -> list[URLPattern]:
        return [*patterns(self, self.views), *super().get_urls()]

    def not_there(self, request: HttpRequest, word: str) -> HttpResponse:
        """Return the admin's response for a row that does not exist."""
        answer: HttpResponse = self._get_obj_does_not_exist_redirect(request, self.opts, word)  # type: ignore[attr-defined]
        return answer

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirect to the page of all actions. That page checks the right itself."""
        return HttpResponseRedirect(
            address(request, "actions", model=self.opts.model_name, object=unquote(object_id))
        )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the queue's database, each with ``now_ms``: that database's time in epoch milliseconds."""
        rows: QuerySet[Any] = super().get_queryset(request)
        now = RawSQL(NOW_MS, (), output_field=BigIntegerField())
        rows = rows.using(conf.database()).annotate(now_ms=now)
        return rows

    def narrow(self, queryset: QuerySet[Any], given: dict[str, str]) -> QuerySet[Any]:
        """Filter the list by the user's lookups, and sort it.

        The ordering leaves out the columns that the filter fixes: with them, MariaDB would sort the rows.
        """
        order = [column for column in self.order if column not in given]
        return queryset.filter(**given).order_by(*order or ["pk"])

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        per_page: int,
        orphans: int = 0,
        allow_empty_first_page: bool = True,
    ) -> BoundedPaginator:
        return BoundedPaginator(queryset, per_page, rows=self.get_queryset(request))
