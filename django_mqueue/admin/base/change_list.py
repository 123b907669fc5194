"""The change list: lookups instead of a search, bounded pages instead of a count, and URLs for any primary key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from .lookups import choose
from .paginator import BoundedPaginator
from .row_ids import encode

if TYPE_CHECKING:
    from .pages import ReadOnlyAdmin


class BoundedChangeList(ChangeList):
    """A change list that never reads the whole table.

    ``fields`` and ``hidden_fields`` make up the lookup form. ``pages`` are (number, URL); the URL of the current page
    is None.
    """

    paginator: BoundedPaginator
    fields: list[dict[str, Any]]

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Model]:
        page = cast("ReadOnlyAdmin", self.model_admin)
        self.params.pop(ORDER_VAR, None)
        self.filter_params.pop(ORDER_VAR, None)
        chosen = choose(page.lookups, self.params)
        for problem in chosen.problems:
            messages.warning(request, problem)
        self.fields = [
            {"lookup": lookup, "value": self.params.pop(lookup.name, "")} for lookup in page.lookups
        ]
        self.hidden_fields = dict(self.params)
        for field in self.fields:
            self.filter_params.pop(field["lookup"].name, None)
        queryset = page.narrow(super().get_queryset(request, exclude_parameters), chosen.given)
        self.is_narrowed = bool(chosen.given)
        self.params.update(chosen.given)
        self.filter_params.update({name: [value] for name, value in chosen.given.items()})
        return queryset

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.page_num = 1
            self.result_list = self.paginator.page(1).object_list

    @property
    def pages(self) -> list[tuple[int, str | None]]:
        if not self.multi_page:
            return []
        return [
            (number, None if number == self.page_num else self.get_query_string({PAGE_VAR: number}))
            for number in self.paginator.page_range
        ]

    def url_for_result(self, result: Model) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return reverse(name, args=(quote(encode(result.pk)),), current_app=self.model_admin.admin_site.name)
