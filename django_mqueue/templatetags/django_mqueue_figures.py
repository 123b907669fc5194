"""Tags and filters for the queue's statistics in the admin's templates: numbers, links, ages and charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..admin.base import display
from ..admin.base.urls import may_open
from ..admin.topics import overview, status
from ..drawing import charts, scales
from ..inspect import Figure, Rates, Series

register = template.Library()


@register.inclusion_tag("admin/django_mqueue/overview.html", takes_context=True)
def mqueue_overview(context: dict[str, Any]) -> dict[str, Any]:
    """Show the overview to users who may see topics, and nothing to others.

    Put this tag into a landing page of your own.
    """
    request = context.get("request")
    if request is None or not may_open(request, "overview"):
        return {"may_see": False}
    return {**overview.context_of(request), "may_see": True}


@register.simple_tag
def mqueue_number(figure: Figure, url: str | None = None) -> SafeString:
    """Return a number with its precision: ``12``, ``1,000+``. With ``url``, a number above 0 is a link."""
    text = format_html("{}", f"{figure.value:,}")
    if figure.how == "at_least":
        more = '<span title="{}">{}+<span class="visually-hidden"> or more</span></span>'
        text = format_html(more, display.number(figure), text)
    return format_html('<a href="{}">{}</a>', url, text) if url and figure.value else text


@register.filter
def mqueue_age(time: timedelta | None) -> str:
    """Return an age as text: ``3 min``."""
    return "-" if time is None else scales.age(time)


@register.filter
def mqueue_duration(time: timedelta) -> str:
    """Return the time that something takes, as text: ``340 ms``."""
    return scales.duration(time / timedelta(milliseconds=1))


@register.simple_tag
def mqueue_per_minute(rates: Rates, series: Series, what: str, look: str) -> SafeString:
    """Return the mean rate of the last five minutes, and a line chart of the hour without the unfinished minute."""
    rate = scales.count(status.recently(rates, series))
    about = "about " if series.how == "about" else ""
    label = (
        f"{what}: {about}{rate} per minute in the last 5 minutes, at most {about}"
        f"{scales.count(max(series.values, default=0))}, {about}{series.total.value:,} in the last hour"
    )
    mark = "≈" if about else ""
    return format_html(
        '<span class="mqueue-rate"><span>{}{}</span> {}</span>',
        mark,
        rate,
        charts.sparkline(series.values[:-1], label, look),
    )
