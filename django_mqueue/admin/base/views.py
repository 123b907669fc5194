"""The base class of the admin's pages other than Django's lists and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext
from django.views.generic import TemplateView

from .display import Text
from .urls import APP, NAVIGATION, allowed_url, may_open, overview_url

if TYPE_CHECKING:
    from .tables import ReadOnlyAdmin


class QueueView(PermissionRequiredMixin, TemplateView):
    """A page of the queue in the admin.

    ``url_name``: the end of its URL's name, and its key in ``PERMISSIONS``. ``route``: the path below the path of its
    model. ``parent``: the page before it in the breadcrumbs, if it is not the list of its model. ``is_list``: its
    breadcrumbs have no parent except the overview.
    """

    model_admin: ReadOnlyAdmin = None  # type: ignore[assignment]
    """The ModelAdmin to whose URLs the view belongs. ``as_view`` sets it."""
    route: ClassVar[str]
    url_name: ClassVar[str]
    parent: ClassVar[str] = ""
    is_list: ClassVar[bool] = False
    title: Text = ""
    crumb: Text = ""
    """The last breadcrumb, if it is not the title."""
    raise_exception = True

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.current_app = self.model_admin.admin_site.name

    def has_permission(self) -> bool:
        return may_open(self.request, self.url_name)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = self.model_admin.admin_site.each_context(self.request)
        opts = self.model_admin.opts
        crumbs: list[tuple[Text, str | None]] = [(gettext("Home"), self.index_url())]
        if any(app["app_label"] == APP for app in context["available_apps"]):
            crumbs.append((str(opts.app_config.verbose_name), overview_url(self.request)))
        crumbs += [*([] if self.is_list else self.parents()), (self.crumb or self.title, None)]
        own = {"request": self.request, "opts": opts, "media": self.model_admin.media, "title": self.title}
        return super().get_context_data(**{**context, **own, "crumbs": crumbs, **kwargs})

    def index_url(self) -> str:
        """Return the URL of the site's index. Users without permissions on the queue may also see it."""
        return reverse("admin:index", current_app=self.model_admin.admin_site.name)

    def parents(self) -> list[tuple[Text, str | None]]:
        """Return (title, URL) of the breadcrumbs between the overview and this page."""
        page = self.parent or f"{self.model_admin.opts.model_name}_changelist"
        url = allowed_url(self.request, page)
        return [(NAVIGATION[page], url)] if url else []
