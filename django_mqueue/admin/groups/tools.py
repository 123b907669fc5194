"""The buttons of groups and topics, by their current status and the user's permissions."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ... import conf
from ...store import offsets
from ..base.operations import Subject, group_subject, topic_subject
from ..base.urls import Tools, tools


def group_tools(request: HttpRequest, topic: str, group: str) -> Tools:
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
    return tools(request, pages, topic=topic, group=group) + _history(request, group_subject(topic, group))


def topic_tools(request: HttpRequest, topic: str) -> Tools:
    paused = offsets.pauses(conf.database(), topic).values()
    pages = {} if all(paused) else {"pause_topic": _("Pause all groups")}
    if any(paused):
        pages["resume_topic"] = _("Resume all groups")
    return tools(request, pages, topic=topic) + _history(request, topic_subject(topic))


def _history(request: HttpRequest, subject: Subject) -> Tools:
    """Return the button of the actions on this topic or group."""
    model = subject.model.__name__.lower()
    return tools(request, {"actions": _("History")}, model=model, object=subject.id)
