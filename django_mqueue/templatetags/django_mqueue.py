"""Tags and filters of the admin's templates: URLs, breadcrumbs, buttons, and values as the lists show them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import VERSION, template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..admin.base import display, wording
from ..admin.base.links import address, link
from ..admin.base.views import navigation
from ..admin.groups import tools
from ..drawing import scales
from ..stats.results import Figure

register = template.Library()


@register.simple_tag(takes_context=True)
def mqueue_url(context: dict[str, Any], page: str, **query: Any) -> str:
    """Return the URL of a page: ``{% mqueue_url "group" topic=row.topic group=row.group %}``."""
    return address(context["request"], page, **query)


@register.simple_tag(takes_context=True)
def mqueue_page(context: dict[str, Any], page: str, *args: Any) -> str:
    """Return the URL of a page of one row: ``{% mqueue_page "message_change" row.offset %}``."""
    return address(context["request"], page, *args)


@register.simple_tag(takes_context=True)
def mqueue_breadcrumbs(context: dict[str, Any]) -> SafeString:
    """Return the breadcrumbs of the page, with the markup of this Django version: ``ol`` from 6.1 on."""
    ways = [(title, url) for title, url in context.get("crumbs", ())]
    if VERSION >= (6, 1):
        items = format_html_join(
            "",
            "{}",
            (
                (
                    format_html('<li><a href="{}">{}</a></li>', url, title)
                    if url
                    else format_html('<li aria-current="page">{}</li>', title),
                )
                for title, url in ways
            ),
        )
        return format_html('<ol class="breadcrumbs">{}</ol>', items)
    items = format_html_join(" \u203a ", "{}", ((link(url, title) if url else title,) for title, url in ways))
    return format_html('<div class="breadcrumbs">{}</div>', items)


@register.inclusion_tag("admin/django_mqueue/navigation.html", takes_context=True)
def mqueue_navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Show the navigation bar of the queue's pages."""
    request = context.get("request")
    return {"pages": navigation(request) if request else []}


@register.filter
def mqueue_moment(when: datetime | int | None) -> str:
    """Return a datetime, or epoch milliseconds, as text in the current time zone."""
    if isinstance(when, datetime):
        when = round(when.timestamp() * 1000)
    return display.moment(when, short=True)


@register.filter
def mqueue_key(partition: str) -> str:
    """Return the key of a partition as text."""
    return display.key(partition)


@register.filter
def mqueue_printable(text: object) -> str:
    """Escape characters that a page cannot show safely. The result is not marked as safe HTML."""
    return display.printable(str(text))


@register.inclusion_tag("admin/django_mqueue/group_tools.html", takes_context=True)
def mqueue_group_tools(context: dict[str, Any]) -> dict[str, Any]:
    """Show the buttons for the page's ``group`` on its ``topic``."""
    return {"tools": tools.of_group(context["request"], context["topic"], context["group"])}


@register.inclusion_tag("admin/django_mqueue/group_tools.html", takes_context=True)
def mqueue_topic_tools(context: dict[str, Any]) -> dict[str, Any]:
    """Show the buttons for the page's ``topic``."""
    return {"tools": tools.of_topic(context["request"], context["topic"])}


@register.simple_tag(takes_context=True)
def mqueue_message_url(context: dict[str, Any], offset: int) -> str:
    """Return the URL of a message's page."""
    return address(context["request"], "message_change", offset)


@register.filter
def mqueue_figure(figure: Figure) -> str:
    """Return a number as text, with its precision."""
    return wording.number(figure)


@register.filter
def mqueue_ago(age: timedelta) -> str:
    """Return a duration as text, in a suitable unit."""
    return scales.age(age).replace(" ", "\u00a0")


@register.filter
def mqueue_state(state: str, text: str = "") -> SafeString:
    """Return the badge of a lease's or a subscriber's state. ``text`` replaces the state's name."""
    kinds = {"held": "good", "alive": "good", "expired": "bad", "silent": "bad", "free": "waiting"}
    return display.badge(kinds.get(state, "over"), text or state)
