"""The buttons of a topic, by the status of its groups and the user's permissions."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ... import conf
from ...store import offsets
from ..base.operations import Subject, topic_subject
from ..base.urls import Tools, tools


def topic_tools(request: HttpRequest, topic: str) -> Tools:
    paused = offsets.pauses(conf.database(), topic).values()
    pages = {} if all(paused) else {"pause_topic": _("Pause all groups")}
    if any(paused):
        pages["resume_topic"] = _("Resume all groups")
    return tools(request, pages, topic=topic) + history(request, topic_subject(topic))


def history(request: HttpRequest, subject: Subject) -> Tools:
    """Return the button of the actions on this topic or group."""
    model = subject.model.__name__.lower()
    return tools(request, {"actions": _("History")}, model=model, object=subject.id)
