"""URLs and permissions of the queue's pages.

Names of topics and groups are in the query, because they may hold any character.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .display import Text, printable
from .jobs import backends, recurring_jobs

APP = "django_mqueue"

PERMISSIONS: dict[str, tuple[str, ...]] = {
    "actions": ("admin.view_logentry",),
    "overview": ("view_topic",),
    "topic_changelist": ("view_topic",),
    "topic": ("view_topic",),
    "pause_topic": ("pause_topic",),
    "resume_topic": ("resume_topic",),
    "consumergroup_changelist": ("view_consumergroup",),
    "group": ("view_consumergroup",),
    "pause_group": ("pause_consumergroup",),
    "resume_group": ("resume_consumergroup",),
    "reset_group": ("reset_consumergroup",),
    "unsubscribe_group": ("unsubscribe_consumergroup",),
    "remove_messages": ("remove_message",),
    "jobs": ("view_message",),
    "stop_job": ("stop_message",),
    "recurring_jobs": ("view_consumergroup",),
    "pause_job": ("pause_consumergroup",),
    "resume_job": ("resume_consumergroup",),
    "run_job": ("publish_message",),
    "group_partitions": ("view_offset", "view_partitionlease"),
    "group_subscribers": ("view_subscriberheartbeat",),
    "subscriberheartbeat_changelist": ("view_subscriberheartbeat",),
    "partitionlease_changelist": ("view_partitionlease",),
    "offset_changelist": ("view_offset",),
    "deliverystate_changelist": ("view_deliverystate",),
    "release_leases": ("release_partitionlease",),
    "message_changelist": ("view_message",),
    "message_change": ("view_message",),
    "publish_message": ("publish_message",),
    "hurry_message": ("hurry_message",),
    "skip_message": ("remove_message",),
    "reschedule_message": ("reschedule_message",),
    "cancel_message": ("cancel_message",),
    "deadletter_changelist": ("view_deadletter",),
    "deadletter_errors": ("view_deadletter",),
    "deadletter_list": ("view_deadletter",),
    "deadletter": ("view_deadletter",),
    "deadletter_run": ("view_deadletter",),
    "redrive_selected": ("view_deadletter", "redrive_deadletter"),
    "redrive_matching": ("view_deadletter", "redrive_deadletter"),
    "purge_selected": ("view_deadletter", "purge_deadletter"),
    "purge_matching": ("view_deadletter", "purge_deadletter"),
    "edit_deadletter": ("view_deadletter", "redrive_deadletter", "edit_deadletter"),
}
"""The permissions that a user needs for each page. The key is the end of the name of the page's URL."""

NAVIGATION = {
    "topic_changelist": _("Topics"),
    "consumergroup_changelist": _("Consumer groups"),
    "message_changelist": pgettext_lazy("message queue", "Messages"),
    "deadletter_changelist": _("Dead letters"),
    "jobs": _("Jobs"),
    "recurring_jobs": _("Recurring jobs"),
    "subscriberheartbeat_changelist": _("Subscribers"),
    "partitionlease_changelist": _("Partition leases"),
    "offset_changelist": _("Offsets"),
    "deliverystate_changelist": _("Delivery states"),
    "actions": _("Actions"),
}
"""The pages of the navigation bar. It has every table of the admin's side bar, under the same name."""

Tools = list[tuple[Text, str]]


def may(request: HttpRequest, *permissions: str) -> bool:
    """Return whether the user has all of these permissions: ``may(request, "view_topic")``.

    A permission without an app label is a permission of the queue's app.
    """
    return all(request.user.has_perm(one if "." in one else f"{APP}.{one}") for one in permissions)


def may_open(request: HttpRequest, page: str) -> bool:
    return may(request, *PERMISSIONS[page])


def page_url(request: HttpRequest, page: str, *args: object, **query: object) -> str:
    """Return the URL of a page on the request's admin site: ``page_url(request, "group", topic="orders")``.

    ``page``: the end of the URL's name, after ``admin:django_mqueue_``. Query parameters that are None are left out.
    """
    path = reverse(f"admin:{APP}_{page}", args=args, current_app=getattr(request, "current_app", None))
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def allowed_url(request: HttpRequest, page: str, *args: object, **query: object) -> str | None:
    """Return ``page_url``, or None if the user may not open the page."""
    return page_url(request, page, *args, **query) if may_open(request, page) else None


def tools(request: HttpRequest, pages: Mapping[str, Text], **query: object) -> Tools:
    """Return (title, URL) of the buttons that the user may use. ``pages``: the titles by page."""
    return [(text, url) for page, text in pages.items() if (url := allowed_url(request, page, **query))]


def overview_url(request: HttpRequest) -> str:
    """Return the URL of the app's landing page."""
    return reverse("admin:app_list", args=(APP,), current_app=getattr(request, "current_app", None))


def link(url: str, text: Text) -> SafeString:
    return format_html('<a href="{}">{}</a>', url, printable(str(text)))


def navigation(request: HttpRequest) -> list[tuple[Text, str, bool]]:
    """Return (title, URL, is this page) of the pages that the user may open."""
    here, landing = request.path, overview_url(request)
    found: list[tuple[Text, str]] = []
    if may_open(request, "overview"):
        found.append((_("Overview"), here if here == page_url(request, "overview") else landing))
    for page, title in NAVIGATION.items():
        if (page == "jobs" and not backends()) or (page == "recurring_jobs" and not recurring_jobs()):
            continue
        if url := allowed_url(request, page):
            found.append((title, url))
    # The longest URL that matches is current. The landing page would match every page.
    current = max(
        (url for _title, url in found if url != landing and here.startswith(url)), key=len, default=here
    )
    return [(title, url, url == current) for title, url in found]
