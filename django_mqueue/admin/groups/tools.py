"""The buttons of a group, by its current status and the user's permissions."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ... import conf
from ...store import offsets
from ..base.operations import group_subject
from ..base.urls import Tools, tools
from ..topics.tools import history


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
    return tools(request, pages, topic=topic, group=group) + history(request, group_subject(topic, group))
