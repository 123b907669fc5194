"""Tags and filters for the queue's statistics in the admin's templates: numbers, links, ages and charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django import template
from django.forms.utils import flatatt
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..admin.base import urls, wording
from ..admin.topics import overview, ranking, status
from ..drawing import charts, scales
from ..inspect import Figure, Rates, Series

register = template.Library()


@register.inclusion_tag("admin/django_mqueue/overview.html", takes_context=True)
def mqueue_overview(context: dict[str, Any]) -> dict[str, Any]:
    """Show the overview to users who may see topics, and nothing to others.

    Put this tag into a landing page of your own.
    """
    request = context.get("request")
    if request is None or not overview.may_see(request):
        return {"may_see": False}
    return {**overview.context_of(request), "may_see": True}


@register.simple_tag(takes_context=True)
def mqueue_place(context: dict[str, Any], page: int = 1, sort: str | None = None) -> str:
    """Return the query string of a page of the overview. Without ``sort``, it keeps the order of the current page."""
    given = {"p": "" if page == 1 else str(page), "sort": sort or context["sort"], "find": context["find"]}
    if given["sort"] == ranking.WORST:
        del given["sort"]
    return "?" + urlencode({name: value for name, value in given.items() if value}, errors="replace")


@register.simple_tag(takes_context=True)
def mqueue_sort(context: dict[str, Any], sort: str, title: str) -> SafeString:
    """Return the head of a column of the overview, with a link that sorts by that column."""
    attributes = {"scope": "col", "role": "columnheader"}
    if sort not in (ranking.NAME, ranking.WORST):
        attributes["class"] = "mqueue-number"
    if context["sort"] == sort:
        attributes["aria-sort"] = "ascending" if sort == ranking.NAME else "descending"
    url = mqueue_place(context, sort=sort)
    return format_html('<th{}><a href="{}">{}</a></th>', flatatt(attributes), url, title)


@register.simple_tag
def mqueue_number(figure: Figure, url: str | None = None) -> SafeString:
    """Return a number with its precision: ``12``, ``1,000+``. With ``url``, a number above 0 is a link."""
    text = format_html("{}", f"{figure.value:,}")
    if figure.how == "at_least":
        more = '<span title="{}">{}+<span class="visually-hidden"> or more</span></span>'
        text = format_html(more, wording.number(figure), text)
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


@register.simple_tag(takes_context=True)
def mqueue_way(context: dict[str, Any], to: str, *args: Any, **kwargs: Any) -> str | None:
    """Return the URL from the function ``to_<to>`` of ``admin.base.urls``; None for users without permission."""
    url: str | None = getattr(urls, f"to_{to}")(context["request"], *args, **kwargs)
    return url


@register.filter
def mqueue_seconds(seconds: float) -> str:
    """Return a setting in seconds as text, in a suitable unit."""
    return scales.duration(seconds * 1000)
