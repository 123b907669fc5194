"""The base class of the tables' pages. They are read-only, and their cost does not depend on the table's length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...store.queries import search
from ...store.queries.group_rows import NOW
from . import choices
from .display import EMPTY, Text, column, key_column
from .forms import parse_number
from .row_ids import encode
from .urls import APP, may_open, page_url
from .views import QueueView, forbidden, not_found

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]  # Generic for type checkers only.
    _Paginator = Paginator[Any]
else:
    ModelAdmin, _Paginator = admin.ModelAdmin, Paginator

LIMIT = 500
"""Maximum number of rows in all pages of a list. Lookups find the other rows."""
FROM_OFFSET = "message_offset__gte"
"""The only lookup that is a number."""

RowLink = tuple[Text, str, Callable[[Any], Mapping[str, str] | None]]
"""Title, page, and a function that returns the page's query for a row, or None if the row has no such page."""


class KeyedQuerySet(QuerySet[Any]):
    """A queryset whose first primary keys are known. ``keys``: at most ``LIMIT`` + 1, in the order of the queryset.

    MariaDB needs a third of a second to find 500 composite keys among millions of rows. A queryset that is filtered
    further does not keep the keys.
    """

    keys: list[Any]


def with_keys(queryset: QuerySet[Any], keys: list[Any]) -> KeyedQuerySet:
    found = KeyedQuerySet(queryset.model, queryset.query, queryset.db)
    found.keys = keys
    return found


class BoundedPaginator(_Paginator):
    """A paginator that reads the keys of the first rows from an index, and then the rows of one page by key.

    It never counts: a count reads the whole table. ``rows``: the table's queryset, without the list's filters.
    """

    object_list: QuerySet[Any]

    def __init__(self, object_list: QuerySet[Any], per_page: int, *, rows: QuerySet[Any]) -> None:
        super().__init__(object_list, per_page)
        self._rows = rows

    @cached_property
    def _keys(self) -> list[Any]:
        if isinstance(self.object_list, KeyedQuerySet) and hasattr(self.object_list, "keys"):
            return self.object_list.keys
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


class PagedChangeList(ChangeList):
    """A change list that always reads its rows from the paginator. Django does this only for several pages."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.page_num = 1
            self.result_list = self.paginator.page(1).object_list


class BoundedChangeList(PagedChangeList):
    """A change list that never reads the whole table: lookups by index instead of a search, and no count.

    ``fields`` (name, label, value, is a number, the id of its list of names) and ``hidden_fields`` make up the lookup
    form.
    """

    paginator: BoundedPaginator

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Model]:
        page = cast("ReadOnlyAdmin", self.model_admin)
        self.params.pop(ORDER_VAR, None)
        self.filter_params.pop(ORDER_VAR, None)
        typed = {name: self.params.pop(name, "") for name in page.lookups}
        self.fields = [
            (*pair, typed[pair[0]], pair[0] == FROM_OFFSET, choices.LISTS.get(pair[0], ""))
            for pair in page.lookups.items()
        ]
        self.hidden_fields = dict(self.params)
        given, problems = page.choose(typed)
        if "topic" in given and (problem := choices.no_such_topic(given["topic"])):
            problems.append(problem)
        for problem in problems:
            messages.warning(request, problem)
        for name in page.lookups:
            self.filter_params.pop(name, None)
        queryset = page.narrow(super().get_queryset(request, exclude_parameters), given)
        self.is_narrowed = bool(given)
        self.params.update(given)
        self.filter_params.update({name: [value] for name, value in given.items()})
        return queryset

    def url_for_result(self, result: Model) -> str:
        name = f"admin:{APP}_{self.opts.model_name}_change"
        return reverse(name, args=(quote(encode(result.pk)),), current_app=self.model_admin.admin_site.name)


class NoChanges:
    """For a ModelAdmin or an inline: it changes no rows, whatever permissions the user has."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission


class ReadOnlyAdmin(NoChanges, ModelAdmin):
    """A ModelAdmin that shows rows to users who may view them.

    ``ordering``: columns that an index serves. The list has no other sorting and no text search, because no index
    serves them.
    """

    lookups: ClassVar[Mapping[str, Text]] = {}
    """The fields that filter the list, in the order of an index, with their labels. Each needs the field before it."""
    without_previous: ClassVar[frozenset[str]] = frozenset()
    """The fields that do not need the field before them."""
    ordering: ClassVar[tuple[str, ...]] = ()
    views: tuple[type[QueueView], ...] = ()
    """Further pages and operations of this model."""
    list_view: type[QueueView] | None = None
    """Replaces Django's list at its URL. Django's links to a row then lead to ``row_url``."""
    row_links: tuple[RowLink, ...] = ()
    """Links in each row of the list, to the pages that the user may open."""
    actions = None
    list_per_page = 100
    list_max_show_all = 0
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by = ()

    class Media:
        css = {"all": ["django_mqueue/admin.css"]}
        js = [Script("django_mqueue/pages.js", defer=True)]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only ``lookups`` and the page's filters. Other lookups would read the whole table."""
        filters = {getattr(item, "parameter_name", None) for item in self.list_filter}
        return lookup in self.lookups or lookup in filters

    def row_url(self, request: HttpRequest, object_id: str) -> str | None:
        """Return the URL of the row's page. None if there is no such page: the link then leads to the list."""
        return None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:  # type: ignore[override]
        if self.list_view is None:
            return super().changelist_view(request, extra_context)
        return self._with_problem_page(self.list_view.as_view(model_admin=self))(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if self.list_view is None:
            return super().change_view(request, object_id, form_url, extra_context)
        request.current_app = self.admin_site.name
        url = self.row_url(request, object_id) or page_url(request, self.list_view.url_name)
        return HttpResponseRedirect(url)

    def find_row(self, request: HttpRequest, object_id: str) -> Model | None:
        """Return the row whose page has this key in its URL, or None."""
        return super().get_object(request, object_id)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        """Return the row. Raise ``Http404`` if it does not exist, but only for users who may see rows."""
        found = self.find_row(request, object_id)
        if found is None and self.has_view_permission(request):
            raise Http404(_("There is no such row. It may have been deleted."))
        return found

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        request.current_app = self.admin_site.name
        links = [one for one in self.row_links if may_open(request, one[1])]

        @admin.display(description=gettext_lazy("more"))
        def more(row: Any) -> str:
            pages = [(title, page, query_of(row)) for title, page, query_of in links]
            urls = [(page_url(request, page, **query), title) for title, page, query in pages if query]
            return format_html_join(", ", '<a href="{}">{}</a>', urls) or EMPTY

        return [*super().get_list_display(request), *([more] if links else [])]

    def get_urls(self) -> list[URLPattern]:
        """Add ``views``. They run without ``ATOMIC_REQUESTS``: the service layer commits its own transactions."""
        found = []
        for one in self.views:
            view = self._with_problem_page(one.as_view(model_admin=self))
            for alias in settings.DATABASES:
                view = transaction.non_atomic_requests(using=alias)(view)
            name = f"{APP}_{one.url_name}"
            found.append(path(f"{one.route}/", self.admin_site.admin_view(view), name=name))
        own = super().get_urls()
        for pattern in own:
            pattern.callback = self._with_problem_page(pattern.callback)
        return [*found, *own]

    def _with_problem_page(self, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Wrap a view: show the queue's own page for a missing row or a missing permission."""

        @wraps(view)
        def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                return view(request, *args, **kwargs)
            except PermissionDenied:
                return forbidden(request, self)
            except Http404 as problem:
                return not_found(request, self, str(problem))

        return wrapped

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirect to the page of all actions. That page checks the permission itself."""
        request.current_app = self.admin_site.name
        url = page_url(request, "actions", model=self.opts.model_name, object=unquote(object_id))
        return HttpResponseRedirect(url)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the queue's database, each with ``now_ms``: that database's time in epoch milliseconds."""
        rows: QuerySet[Any] = super().get_queryset(request).using(conf.database()).annotate(now_ms=NOW)
        return rows

    def choose(self, typed: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return the lookups that are applied, and a warning for each of the others."""
        given: dict[str, str] = {}
        problems = []
        before = ""
        for name, label in self.lookups.items():
            if typed[name] and before and before not in given and name not in self.without_previous:
                names = {"field": label, "other": self.lookups[before]}
                problems.append(_("%(field)s was left out: it also needs %(other)s.") % names)
            elif typed[name] and name == FROM_OFFSET and parse_number(typed[name]) is None:
                problems.append(_("%(field)s was left out: it must be a number.") % {"field": label})
            elif typed[name]:
                given[name] = typed[name]
            before = name
        return given, problems

    def narrow(self, queryset: QuerySet[Any], given: dict[str, str]) -> QuerySet[Any]:
        """Filter the list by the user's lookups, and sort it.

        The ordering leaves out the columns that the filter fixes: with them, MariaDB would sort the rows.
        """
        order = [column for column in self.ordering if column not in given]
        return queryset.filter(**given).order_by(*order or ["pk"])

    def get_paginator(
        self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any, **kwargs: Any
    ) -> BoundedPaginator:
        return BoundedPaginator(queryset, per_page, rows=self.get_queryset(request))


class GroupTable(ReadOnlyAdmin):
    """A table whose key begins with group, topic and partition."""

    ordering: ClassVar[tuple[str, ...]] = ("consumer_group", "topic", "partition_key")
    lookups = {
        "consumer_group": gettext_lazy("Group"),
        "topic": gettext_lazy("Topic"),
        "partition_key": gettext_lazy("Key"),
    }
    without_previous = frozenset({"topic"})
    group = column("consumer_group", gettext_lazy("group"))
    key = key_column

    def narrow(self, queryset: QuerySet[Any], given: dict[str, str]) -> QuerySet[Any]:
        """Filter the list. The index begins with the group: without one, look for the topic's rows of each group."""
        if "topic" in given and "consumer_group" not in given:
            groups = search.groups(queryset.db, self.model._meta.db_table)
            queryset = queryset.filter(consumer_group__in=["", *groups])  # Rows of topics have no group.
        return super().narrow(queryset, given)
