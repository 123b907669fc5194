"""Where a number is looked at: pages of the messages, letters and leases that it counts, for those who may."""

from __future__ import annotations

from django.http import HttpRequest

from .links import address
from .views import may


def to_topic(request: HttpRequest, topic: str) -> str | None:
    return address(request, "topic", topic=topic) if may(request, "view_topic") else None


def to_group(request: HttpRequest, topic: str, group: str) -> str | None:
    if not may(request, "view_consumergroup"):
        return None
    return address(request, "group", topic=topic, group=group)


def to_messages(
    request: HttpRequest, topic: str, group: str | None = None, status: str | None = None
) -> str | None:
    """The messages of a topic that are in a status (of ``inspect.messages``) for a group."""
    if not may(request, "view_message"):
        return None
    return address(request, "message_changelist", topic=topic, group=group, status=status)


def to_key(request: HttpRequest, topic: str, group: str, key: str | None) -> str | None:
    """The messages of a key. Those without one have no page by partition."""
    if key is None or not may(request, "view_message"):
        return None
    return address(request, "message_changelist", topic=topic, group=group, key=key)


def to_letters(request: HttpRequest, topic: str, group: str | None = None) -> str | None:
    """The dead letters of a topic by error; or those of a group."""
    if not may(request, "view_deadletter"):
        return None
    if group is None:
        return address(request, "deadletter_errors", topic=topic)
    return address(request, "deadletter_list", topic=topic, group=group)


def to_partitions(request: HttpRequest, topic: str, group: str) -> str | None:
    if not may(request, "view_offset", "view_partitionlease"):
        return None
    return address(request, "group_partitions", topic=topic, group=group)


def to_subscribers(request: HttpRequest, topic: str, group: str, subscriber: str | None = None) -> str | None:
    """All subscribers of a group, or one, and what they do now."""
    if not may(request, "view_subscriberheartbeat"):
        return None
    return address(request, "group_subscribers", topic=topic, group=group, subscriber=subscriber)
