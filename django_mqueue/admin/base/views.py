"""Pages of the admin other than lists and rows: rights, URLs, breadcrumbs and navigation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.views.generic import TemplateView

from .links import APP, address, overview

if TYPE_CHECKING:
    from .pages import ReadOnlyAdmin

NAVIGATION: tuple[tuple[str, str, str], ...] = (
    ("Topics", "topic_changelist", "view_topic"),
    ("Groups", "consumergroup_changelist", "view_consumergroup"),
    ("Messages", "message_changelist", "view_message"),
    ("Dead letters", "deadletter_changelist", "view_deadletter"),
    ("Leases", "partitionlease_changelist", "view_partitionlease"),
    ("Subscribers", "subscriberheartbeat_changelist", "view_subscriberheartbeat"),
    ("Actions", "actions", "admin.view_logentry"),
)
"""Title, page and right of each link in the navigation bar."""


def may(request: HttpRequest, *rights: str) -> bool:
    """Return whether the user has all of these rights: ``may(request, "view_topic")``.

    A right without an app label is a right of the queue's app.
    """
    return all(request.user.has_perm(right if "." in right else f"{APP}.{right}") for right in rights)


class QueueView(TemplateView):
    """A page of the queue in the admin.

    ``route``: the path below the path of its ``page``'s model. ``url_name``: the end of its URL's name. ``rights``: the
    user needs all of them, for every method. Views run without ``ATOMIC_REQUESTS``, because the service layer commits
    its own transactions.
    """

    page: ReadOnlyAdmin = None  # type: ignore[assignment]
    """The ModelAdmin to whose URLs the view belongs. ``as_view`` sets it."""
    route: ClassVar[str]
    url_name: ClassVar[str]
    rights: ClassVar[tuple[str, ...]]
    title = ""
    crumb: ClassVar[tuple[str, str] | None] = None
    """(title, page) of the parent page, if that is not the model's list."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not may(request, *self.rights):
            raise PermissionDenied
        request.current_app = self.page.admin_site.name
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**{**frame(self.request, self.page, self.crumbs()), **kwargs})

    def home(self) -> str:
        """Return the URL of the site's index. Users without rights on the queue may also see it."""
        return reverse("admin:index", current_app=self.page.admin_site.name)

    def crumbs(self) -> list[tuple[str, str | None]]:
        """Return (title, URL) of the parent pages that the user may see, and of this page, whose URL is None."""
        opts = self.page.opts
        name, above = self.crumb or (
            str(opts.verbose_name_plural).capitalize(),
            f"{opts.model_name}_changelist",
        )
        found: list[tuple[str, str | None]] = [(gettext("Home"), self.home())]
        pages = [one for one in self.page.admin_site._registry.values() if one.opts.app_label == APP]
        if any(one.has_view_permission(self.request) for one in pages):
            found.append((str(opts.app_config.verbose_name), overview(self.request)))
        if self.page.has_view_permission(self.request):
            found.append((name, address(self.request, above)))
        return [*found, (str(self.title), None)]

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(title=self.title))


def frame(
    request: HttpRequest, page: ReadOnlyAdmin, crumbs: list[tuple[str, str | None]] | None = None
) -> dict[str, Any]:
    """Return the context that all templates need."""
    return {
        **page.admin_site.each_context(request),
        "request": request,
        "opts": page.opts,
        "media": page.media,
        "crumbs": crumbs or [],
    }


def navigation(request: HttpRequest) -> list[tuple[str, str, bool]]:
    """Return (title, URL, is this page) of the pages that the user may see."""
    here, landing = request.path, overview(request)
    found = [("Overview", landing, here == landing)] if may(request, "view_topic") else []
    for title, page, right in NAVIGATION:
        if may(request, right):
            url = address(request, page)
            found.append((title, url, here.startswith(url)))
    return found


def patterns(page: ReadOnlyAdmin, views: tuple[type[QueueView], ...]) -> list[URLPattern]:
    """Return the URLs of these views, below the URLs of a model."""
    found = []
    for view in views:
        inner = page.admin_site.admin_view(_by_itself(view.as_view(page=page)))
        found.append(path(f"{view.route}/", inner, name=f"{APP}_{view.url_name}"))
    return found


def _by_itself(view: Callable[..., Any]) -> Callable[..., Any]:
    for alias in settings.DATABASES:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view
