"""The buttons of groups and topics, by their current status and the user's rights."""

from __future__ import annotations

from django.http import HttpRequest

from ... import conf
from ...store import offsets
from ..base import subjects
from ..base.audit import Subject
from ..base.links import address
from ..base.views import may

Tool = tuple[str, str]
"""Title and URL."""


def of_group(request: HttpRequest, topic: str, group: str) -> list[Tool]:
    registration = offsets.registration(conf.database(), group, topic)
    paused = None if registration is None else registration.paused
    can_pause = registration is not None and not (registration.paused or registration.reads_log)
    return _of(
        request,
        {"topic": topic, "group": group},
        [
            ("Pause", "pause_group", can_pause, ("pause_consumergroup",)),
            ("Resume", "resume_group", paused is True, ("resume_consumergroup",)),
            ("Move", "reset_group", paused is not None, ("reset_consumergroup",)),
            (
                "Its partitions",
                "group_partitions",
                paused is not None,
                ("view_offset", "view_partitionlease"),
            ),
            ("Its subscribers", "group_subscribers", True, ("view_subscriberheartbeat",)),
        ],
    ) + _history(request, subjects.group(topic, group))


def of_topic(request: HttpRequest, topic: str) -> list[Tool]:
    found = offsets.pauses(conf.database(), topic)
    return _of(
        request,
        {"topic": topic},
        [
            ("Pause all groups", "pause_topic", not all(found.values()), ("pause_topic",)),
            ("Resume all groups", "resume_topic", any(found.values()), ("resume_topic",)),
        ],
    ) + _history(request, subjects.topic(topic))


def _history(request: HttpRequest, subject: Subject) -> list[Tool]:
    """Return the button of the actions on a topic or group, if the user may see the log."""
    if not may(request, "admin.view_logentry"):
        return []
    return [("History", address(request, "actions", model=subject.model._meta.model_name, object=subject.id))]


def _of(
    request: HttpRequest, query: dict[str, str], tools: list[tuple[str, str, bool, tuple[str, ...]]]
) -> list[Tool]:
    return [
        (title, address(request, page, **query))
        for title, page, is_there, rights in tools
        if is_there and may(request, *rights)
    ]
