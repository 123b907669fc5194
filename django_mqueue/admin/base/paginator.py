"""Pages over the first ``LIMIT`` rows of a list. The paginator never counts: a count reads the whole table."""

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
"""Maximum number of rows in the pages of a list. Lookups find the other rows."""


class Found(QuerySet[Any]):
    """A queryset whose first keys are already known, in its order.

    MariaDB needs a third of a second to find 500 composite keys among millions of rows. A queryset that is filtered
    further does not keep the keys.
    """

    keys: list[Any] | None = None

    @classmethod
    def with_keys(cls, queryset: QuerySet[Any], keys: list[Any]) -> Found:
        """Return the same rows with known keys. ``keys``: one more than ``LIMIT`` if there are more rows."""
        found = cls(queryset.model, queryset.query, queryset.db)
        found.keys = keys
        return found


class BoundedPaginator(_Paginator):
    """Reads the keys of the first rows from the index of the list's order, and then one page's rows by key."""

    object_list: QuerySet[Any]

    def __init__(self, object_list: QuerySet[Any], per_page: int, *, rows: QuerySet[Any]) -> None:
        """Set ``rows``: the queryset of the page's rows, without conditions except the key."""
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
        """True if there are more rows than the pages can show."""
        return len(self._keys) > LIMIT

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        keys = self._keys[first : min(first + self.per_page, LIMIT)]
        rows = {row.pk: row for row in self._rows.filter(pk__in=keys)}
        return Page([rows[key] for key in keys if key in rows], number, self)
