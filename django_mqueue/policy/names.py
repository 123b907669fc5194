"""What may name a topic, a key, an id, a group or a subscriber; and the partitions of keyless messages."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from zlib import crc32

TOPIC_MAX = 100
KEY_MAX = 255
ID_MAX = 255
GROUP_MAX = 128
SUBSCRIBER_MAX = 128
KIND_MAX = 255
SCHEDULED_SUFFIX = "_scheduled"
REPLIES_SUFFIX = "_replies"

_SPREAD_MARK = " "
"""Keyless partitions are named by a leading blank and a number: no key may begin with a blank."""


def check_name(argument: str, value: object, limit: int) -> str:
    """``value`` if it can be a name of at most ``limit`` characters.

    Blanks at the ends are refused because both servers ignore trailing ones when they compare, which would
    merge two names; control characters and lone surrogates because they cannot be told apart or stored.
    Raises ``TypeError`` or ``ValueError`` naming the argument and the limit.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{argument} must not be empty")
    if len(value) > limit:
        raise ValueError(f"{argument} may have at most {limit} characters, not {len(value)}")
    if value != value.strip():
        raise ValueError(f"{argument} must not begin or end with blanks: {value!r}")
    for character in value:
        category = unicodedata.category(character)
        if category in ("Cc", "Cs"):
            raise ValueError(
                f"{argument} must not contain control characters or lone surrogates; found {character!r} in {value!r}"
            )
    return value


def check_topic(value: object, limit: int = TOPIC_MAX) -> str:
    """A topic that may be consumed. Scheduled messages may not: they come into their topic when they are due."""
    topic = check_name("topic", value, limit)
    uses = {SCHEDULED_SUFFIX: "scheduled messages", REPLIES_SUFFIX: "replies"}
    for suffix, use in uses.items():
        if topic.endswith(suffix):
            raise ValueError(f"topic must not end in {suffix!r}, which is reserved for {use}: {topic!r}")
    return topic


def scheduled_topic(topic: str) -> str:
    """Where messages of a topic wait until they are due."""
    return topic + SCHEDULED_SUFFIX


def replies_topic(topic: str) -> str:
    """Where requesters of ``topic`` wait for their replies."""
    return topic + REPLIES_SUFFIX


def check_publish_topic(value: object, dlq_suffixes: Iterable[str]) -> str:
    """A topic that users may publish to: the endings of derived topics are the queue's own."""
    topic = check_topic(value)
    for suffix in dlq_suffixes:
        if topic.endswith(suffix):
            raise ValueError(
                f"topic must not end in {suffix!r}, which is reserved for dead letters: {topic!r}"
            )
    return topic


def spread_partition(message_id: str, spread: int) -> str:
    """The partition of a keyless message: by a hash of its id, so that a repeated id meets itself."""
    return f"{_SPREAD_MARK}{crc32(message_id.encode()) % spread:04d}"


def key_of(partition: str) -> str | None:
    """The key that a partition stands for; None for one of the keyless partitions."""
    return None if partition.startswith(_SPREAD_MARK) else partition
