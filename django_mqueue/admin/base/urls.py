"""Links from numbers to the pages of the messages, dead letters or leases that they count.

Each function returns None if the user may not see the page.
"""

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
    """Return the URL of a topic's messages with a status (see ``inspect.messages``) for a group."""
    if not may(request, "view_message"):
        return None
    return address(request, "message_changelist", topic=topic, group=group, status=status)


def to_key(request: HttpRequest, topic: str, group: str, key: str | None) -> str | None:
    """Return the URL of a key's messages. Keyless messages have no page by partition."""
    if key is None or not may(request, "view_message"):
        return None
    return address(request, "message_changelist", topic=topic, group=group, key=key)


def to_letters(request: HttpRequest, topic: str, group: str | None = None) -> str | None:
    """Return the URL of a topic's dead letters by error, or of a group's dead letters."""
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
    """Return the URL of a group's subscribers, or of one subscriber, with their current deliveries."""
    if not may(request, "view_subscriberheartbeat"):
        return None
    return address(request, "group_subscribers", topic=topic, group=group, subscriber=subscriber)
