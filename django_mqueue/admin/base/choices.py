"""Names to choose from in search forms: the topics and the groups that exist."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _

from ... import conf
from ...stats import topic_list
from ...stats.caching import cached
from .display import listed, printable

NAMES_MAX = 500
"""The maximum number of names in each list. Other names can be typed."""
NAMES_MAX_AGE = 10
"""Seconds for which the names stay in Django's cache."""
LISTS = {"topic": "mqueue-topics", "consumer_group": "mqueue-groups"}
"""The id of the list of names for each column."""
TOPIC_INPUT = forms.TextInput({"size": 18, "list": LISTS["topic"]})
GROUP_INPUT = forms.TextInput({"size": 14, "list": LISTS["consumer_group"]})
"""Widgets that offer the names. Each field copies its widget."""


def names() -> tuple[list[str], list[str]]:
    """Return the first topics and groups, by name."""
    using = conf.database()
    found: tuple[list[str], list[str]] = cached(using, ("names",), NAMES_MAX_AGE, lambda: _names(using))
    return found


def _names(using: str) -> tuple[list[str], list[str]]:
    known = topic_list.known_topics(using)
    groups = {group for one in known.values() for group in one.groups}
    return sorted(known)[:NAMES_MAX], sorted(groups)[:NAMES_MAX]


def no_such_topic(topic: str) -> str | None:
    """Return a text with similar names if no such topic exists, else None."""
    similar = topic_list.similar_to_missing(conf.database(), topic)
    if similar is None:
        return None
    text = _("There is no topic %(topic)s.") % {"topic": printable(topic)}
    if not similar:
        return text
    return (
        text + " " + _("Similar names: %(names)s.") % {"names": listed([printable(one) for one in similar])}
    )
