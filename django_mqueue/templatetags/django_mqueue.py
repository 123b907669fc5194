"""Tags and filters of the admin's templates: URLs, breadcrumbs, buttons, and values as the lists show them."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django import VERSION, template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from ..admin.base import choices, display
from ..admin.base.urls import allowed_url, link, navigation
from ..policy import errors

register = template.Library()


@register.simple_tag(takes_context=True)
def mqueue_url(context: dict[str, Any], page: str, *args: Any, **query: Any) -> str:
    """Return the URL of a page, or "" for users who may not open it.

    ``{% mqueue_url "group" topic=row.topic group=row.group as url %}``
    """
    return allowed_url(context["request"], page, *args, **query) or ""


@register.simple_tag(takes_context=True)
def mqueue_breadcrumbs(context: dict[str, Any]) -> SafeString:
    """Return the breadcrumbs of the page, with the markup of this Django version: ``ol`` from 6.1 on."""
    crumbs = [(link(url, title) if url else title, bool(url)) for title, url in context.get("crumbs", ())]
    if VERSION < (6, 1):
        items = format_html_join(" \u203a ", "{}", ((html,) for html, _ in crumbs))
        return format_html('<div class="breadcrumbs">{}</div>', items)
    current = mark_safe(' aria-current="page"')
    items = format_html_join(
        "", "<li{}>{}</li>", (("" if is_link else current, html) for html, is_link in crumbs)
    )
    return format_html('<ol class="breadcrumbs">{}</ol>', items)


@register.inclusion_tag("admin/django_mqueue/navigation.html", takes_context=True)
def mqueue_navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Show the navigation bar of the queue's pages."""
    request = context.get("request")
    return {"pages": navigation(request) if request else [], "now": time.time() * 1000}


@register.inclusion_tag("admin/django_mqueue/choices.html")
def mqueue_choices() -> dict[str, Any]:
    """Show the lists of names that search forms offer."""
    topics, groups = choices.names()
    return {"lists": [(choices.LISTS["topic"], topics), (choices.LISTS["consumer_group"], groups)]}


@register.filter
def mqueue_moment(when: datetime | int | None, form: str = "short") -> str:
    """Return a datetime, or epoch milliseconds, as HTML in the current time zone. ``form``: "short" or "long"."""
    return display.moment(when, short=form == "short")


@register.filter
def mqueue_printable(text: object) -> str:
    """Escape characters that a page cannot show safely. The result is not marked as safe HTML."""
    return display.printable(str(text))


@register.filter
def mqueue_first_line(error: str) -> str:
    """Return the beginning of an error's first line."""
    return display.printable(display.first_line(error))[:200]


@register.filter
def mqueue_integer(number: int) -> str:
    return f"{number:,}"


@register.filter
def mqueue_short_error(line: str) -> SafeString:
    """Return an error's first line, or the name of its class, without the module. The tooltip has the module."""
    line = display.printable(line)
    return format_html('<span title="{}">{}</span>', line, errors.short(line))


register.filter("mqueue_badge", display.badge)
register.filter("mqueue_state", display.state_badge)
register.filter("mqueue_block", display.block)
register.filter("mqueue_key", display.key)
register.filter("mqueue_name", display.name)
register.filter("mqueue_figure", display.number)
