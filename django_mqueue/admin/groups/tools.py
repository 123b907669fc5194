"""The buttons of groups and topics, by their current status and the user's permissions."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ... import conf
from ...store import offsets
from ..base.operations import Subject, group_subject, topic_subject
from ..base.urls import allowed_url

Tool = tuple[str, str | None]
"""Title, and URL. The URL is None if the user may not open the page."""


def group_tools(request: HttpRequest, topic: str, group: str) -> list[Tool]:
    registration = offsets.registration(conf.database(), group, topic)
    pages = {"group_subscribers": _("Subscribers")}
    if registration is not None:
        pages = {
            "reset_group": _("Reset"), "remove_messages": _("Remove messages"), "unsubscribe_group": _("Unsubscribe"),
            "group_partitions": _("Partitions"), **pages,
        }  # fmt: skip
        if registration.paused:
            pages = {"resume_group": _("Resume"), **pages}
        elif not registration.reads_log:
            pages = {"pause_group": _("Pause"), **pages}
    found = [(title, allowed_url(request, page, topic=topic, group=group)) for page, title in pages.items()]
    return _allowed(request, found, group_subject(topic, group))


def topic_tools(request: HttpRequest, topic: str) -> list[Tool]:
    paused = offsets.pauses(conf.database(), topic).values()
    found: list[Tool] = []
    if not all(paused):
        found.append((_("Pause all groups"), allowed_url(request, "pause_topic", topic=topic)))
    if any(paused):
        found.append((_("Resume all groups"), allowed_url(request, "resume_topic", topic=topic)))
    return _allowed(request, found, topic_subject(topic))


def _allowed(request: HttpRequest, tools: list[Tool], subject: Subject) -> list[Tool]:
    """Return the buttons that the user may use, and the button of the actions on this topic or group."""
    model = subject.model.__name__.lower()
    history = (_("History"), allowed_url(request, "actions", model=model, object=subject.id))
    return [tool for tool in [*tools, history] if tool[1]]
