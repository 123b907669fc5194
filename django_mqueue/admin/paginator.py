"""Pages over the first hundreds of rows of a list. Never counts: that would read the whole table."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

LIMIT = 500
"""Rows of a list that can be paged through; who wants others looks them up."""


class Found(QuerySet[Any]):
    """A list whose first keys are known already, in its order: MariaDB takes a third of a second to look five hundred
    composite ones up among millions. What narrows it further knows no keys."""

    keys: list[Any] | None = None

    @classmethod
    def with_keys(cls, queryset: QuerySet[Any], keys: list[Any]) -> Found:
        """The same rows; ``keys``: one more than a list shows where there are more."""
        found = cls(queryset.model, queryset.query, queryset.db)
        found.keys = keys
        return found


class BoundedPaginator(_Paginator):
    """Reads the keys of the first rows, off the index that the list is ordered by, and then one page's rows by key."""

    object_list: QuerySet[Any]

    def __init__(self, object_list: QuerySet[Any], per_page: int, *, rows: QuerySet[Any]) -> None:
        """``rows`` are those of the page: everything that is shown of them, and no conditions beside the key."""
        super().__init__(object_list, per_page)
        self._rows = rows
        if isinstance(object_list, Found) and object_list.keys is not None:
            self._keys = object_list.keys

    @cached_property
    def _keys(self) -> list[Any]:
        return list(self.object_list.values_list("pk", flat=True)[: LIMIT + 1])

    @cached_property
    def count(self) -> int:
        return min(len(self._keys), LIMIT)

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows than can be paged through."""
        return len(self._keys) > LIMIT

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        keys = self._keys[first : min(first + self.per_page, LIMIT)]
        rows = {row.pk: row for row in self._rows.filter(pk__in=keys)}
        return Page([rows[key] for key in keys if key in rows], number, self)
