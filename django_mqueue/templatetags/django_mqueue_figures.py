"""Tags and filters for the queue's statistics in the admin's templates: numbers, links, ages and charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..admin.base import display
from ..admin.base.urls import may_open
from ..admin.topics import overview
from ..drawing import charts, scales
from ..inspect import Figure, Rates, Series
from ..stats.summaries import recently

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
        more = '<span title="{}">{}+<span class="visually-hidden"> {}</span></span>'
        text = format_html(more, display.number(figure), text, _("or more"))
    return format_html('<a href="{}">{}</a>', url, text) if url and figure.value else text


@register.filter
def mqueue_age(time: timedelta | None) -> str:
    """Return an age as text: ``3 min``."""
    return display.EMPTY if time is None else display.age(time)


@register.simple_tag
def mqueue_per_minute(rates: Rates, series: Series, what: str, style: str) -> SafeString:
    """Return the mean rate of the last five minutes, and a line chart of the hour without the unfinished minute."""
    rate = scales.count(recently(rates, series))
    is_exact = series.how != "about"
    label = _(
        "%(series)s: %(rate)s per minute in the last 5 minutes, at most %(highest)s, %(total)s in the last hour"
    )
    if not is_exact:
        label = _(
            "%(series)s: about %(rate)s per minute in the last 5 minutes, at most about %(highest)s, about %(total)s in"
            " the last hour"
        )
    values = {"series": what, "rate": rate, "total": f"{series.total.value:,}"}
    values["highest"] = scales.count(max(series.values, default=0))
    return format_html(
        '<span class="mqueue-rate"><span>{}</span> {}</span>',
        rate if is_exact else _("about %(rate)s") % {"rate": rate},
        charts.sparkline(series.values[:-1], label % values, style),
    )


register.filter("mqueue_duration", display.duration)
