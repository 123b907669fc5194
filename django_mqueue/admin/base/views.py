"""The base class of the admin's pages other than Django's lists and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from django.contrib.admin import ModelAdmin
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.generic import TemplateView

from .display import Text
from .urls import APP, NAVIGATION, PERMISSIONS, allowed_url, may_open, overview_url, page_url

FRAGMENT = "X-MQueue-Fragment"
"""The browser's script checks this header: a response without it is another page, for example a login page."""
LAST = "last"
"""The value of the header if nothing more will change."""


class QueueView(PermissionRequiredMixin, TemplateView):
    """A page of the queue in the admin.

    ``url_name``: the end of its URL's name, and its key in ``PERMISSIONS``. ``route``: the path below the path of its
    model. ``parent``: the page before it in the breadcrumbs, if it is not the list of its model. ``is_top_level``: its
    breadcrumbs have no parent except the overview.
    """

    model_admin: ModelAdmin[Any] = None  # type: ignore[assignment]
    """The ModelAdmin to whose URLs the view belongs. ``as_view`` sets it."""
    route: ClassVar[str]
    url_name: ClassVar[str]
    parent: ClassVar[str] = ""
    is_top_level: ClassVar[bool] = False
    title: Text = ""
    crumb: Text = ""
    """The last breadcrumb, if it is not the title."""
    refresh_seconds: ClassVar[int] = 0
    """Seconds between two refreshes in the browser. 0: the page does not refresh itself."""
    frame: ClassVar[str] = "admin/django_mqueue/page.html"
    """The template that a page with refreshes extends. ``?fragment=1`` returns the page without it."""

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.current_app = self.model_admin.admin_site.name

    def has_permission(self) -> bool:
        return may_open(self.request, self.url_name)

    def handle_no_permission(self) -> HttpResponse:  # type: ignore[override]
        return forbidden(self.request, self.model_admin, PERMISSIONS[self.url_name])

    @property
    def is_fragment(self) -> bool:
        return bool(self.refresh_seconds) and "fragment" in self.request.GET

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> TemplateResponse:
        response = cast("TemplateResponse", super().render_to_response(context, **kwargs))
        if self.is_fragment:
            response.headers[FRAGMENT] = self.url_name if context.get("refresh_url") else LAST
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = self.model_admin.admin_site.each_context(self.request)
        opts = self.model_admin.opts
        crumbs: list[tuple[Text, str | None]] = [(gettext("Home"), self.index_url())]
        if any(app["app_label"] == APP for app in context["available_apps"]):
            crumbs.append((str(opts.app_config.verbose_name), overview_url(self.request)))
        crumbs += [*([] if self.is_top_level else self.parents()), (self.crumb or self.title, None)]
        own = {"request": self.request, "opts": opts, "media": self.model_admin.media, "title": self.title}
        if self.refresh_seconds:
            query = self.request.GET.copy()
            query["fragment"] = "1"
            url = f"{self.request.path}?{query.urlencode()}"
            own |= {"refresh_seconds": self.refresh_seconds, "refresh_url": url}
            own["frame"] = "admin/django_mqueue/fragment.html" if self.is_fragment else self.frame
        return super().get_context_data(**{**context, **own, "crumbs": crumbs, **kwargs})

    def index_url(self) -> str:
        """Return the URL of the site's index. Users without permissions on the queue may also see it."""
        return reverse("admin:index", current_app=self.model_admin.admin_site.name)

    def parents(self) -> list[tuple[Text, str | None]]:
        """Return (title, URL) of the breadcrumbs between the overview and this page."""
        page = self.parent or f"{self.model_admin.opts.model_name}_changelist"
        url = allowed_url(self.request, page)
        return [(NAVIGATION[page], url)] if url else []


def forbidden(
    request: HttpRequest, model_admin: ModelAdmin[Any], permissions: Sequence[str] = ()
) -> HttpResponse:
    """Return the page for users who may not open a page. ``permissions``: the permissions that the page needs."""
    text: Text = _("You have no permission for this page or action.")
    if permissions:
        names = ", ".join(one if "." in one else f"{APP}.{one}" for one in permissions)
        text = _("You may not open this page. It needs the permission %(names)s.") % {"names": names}
    return _problem(request, model_admin, 403, _("No permission"), text)


def not_found(request: HttpRequest, model_admin: ModelAdmin[Any], text: Text) -> HttpResponse:
    """Return the page for an object that does not exist."""
    return _problem(request, model_admin, 404, _("Not found"), text)


def _problem(
    request: HttpRequest, model_admin: ModelAdmin[Any], status: int, title: Text, text: Text
) -> HttpResponse:
    request.current_app = model_admin.admin_site.name
    page = f"{model_admin.opts.model_name}_changelist"
    is_allowed = page in PERMISSIONS and may_open(request, page)
    home = reverse("admin:index", current_app=model_admin.admin_site.name)
    context = {
        **model_admin.admin_site.each_context(request),
        "request": request,
        "opts": model_admin.opts,
        "title": title,
        "crumbs": [(gettext("Home"), home), (title, None)],
        "problem": text,
        "url": page_url(request, page) if is_allowed else home,
        "link_title": NAVIGATION[page] if is_allowed else gettext("Home"),
    }
    return TemplateResponse(request, "admin/django_mqueue/problem.html", context, status=status)
