"""Checks of the names of topics, keys, ids, groups and subscribers; partitions of messages without a key."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from zlib import crc32

TOPIC_MAX = 100
DLQ_SUFFIX_MAX = 14
LONG_TOPIC_MAX = TOPIC_MAX + DLQ_SUFFIX_MAX
"""Maximum length of the name of a topic that groups consume, with the suffix of a dead-letter topic."""
KEY_MAX = 255
ID_MAX = 255
GROUP_MAX = 128
SUBSCRIBER_MAX = 128
KIND_MAX = 255
PRIORITY_MIN, PRIORITY_MAX = -100, 100
SCHEDULED_SUFFIX = "_scheduled"
REPLIES_SUFFIX = "_replies"
ACTIONS_TOPIC = "mqueue_actions"
"""The topic that records the actions of operators."""
OPERATIONS_TOPIC = "mqueue_operations"
"""The topic of long operations of the admin that workers continue."""
RESERVED_SUFFIXES: Mapping[str, str] = {
    SCHEDULED_SUFFIX: "scheduled messages",
    REPLIES_SUFFIX: "replies",
    ACTIONS_TOPIC: "the actions of operators",
}
"""Suffixes that no topic of a user may have, with their uses."""

_SPREAD_MARK = " "
"""The first character of partitions of messages without a key. No key may begin with a blank.

In a partition of ``SPREAD`` a number follows. If the priority is not 0, it precedes the number, with sign and blank:
``" +050 0003"``.
"""
_ONE_AT_A_TIME = f"{_SPREAD_MARK}="
"""The beginning of partitions of which one message at a time is in flight, whatever the handler allows.

They may end in a slash and a pause in milliseconds: ``" =name/60000"``.
"""


def check_name(argument: str, value: object, limit: int) -> str:
    """Return ``value`` if it is a valid name of at most ``limit`` characters.

    Blanks at the ends are refused, because both servers ignore trailing blanks in comparisons, which would merge two
    names. Control characters and lone surrogates are refused, because they cannot be distinguished or stored. Raises
    ``TypeError`` or ``ValueError`` that names the argument and the limit.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{argument} must not be empty")
    if len(value) > limit:
        raise ValueError(f"{argument} may have at most {limit} characters, not {len(value)}")
    if value != value.strip():
        raise ValueError(f"{argument} must not begin or end with blanks: {value!r}")
    for character in "" if value.isprintable() else value:
        category = unicodedata.category(character)
        if category in ("Cc", "Cs"):
            raise ValueError(
                f"{argument} must not contain control characters or lone surrogates; found {character!r} in {value!r}"
            )
    return value


def check_topic(value: object, limit: int = LONG_TOPIC_MAX) -> str:
    """Return ``value`` if it is a valid topic to consume. Raises ``TypeError`` or ``ValueError``.

    It must not have one of the ``RESERVED_SUFFIXES``.
    """
    return _refuse_suffixes(check_name("topic", value, limit), RESERVED_SUFFIXES)


def scheduled_topic(topic: str) -> str:
    """Return the topic where messages of ``topic`` wait until they are due."""
    return topic + SCHEDULED_SUFFIX


def replies_topic(topic: str) -> str:
    """Return the topic where callers of ``request`` wait for replies from ``topic``."""
    return topic + REPLIES_SUFFIX


def check_publish_topic(value: object, dlq_suffixes: Iterable[str]) -> str:
    """Return ``value`` if users may publish to this topic. Suffixes of derived topics are reserved for the queue."""
    uses = dict.fromkeys(dlq_suffixes, "dead letters") | {OPERATIONS_TOPIC: "operations of the admin"}
    return _refuse_suffixes(check_topic(value, TOPIC_MAX), uses)


def _refuse_suffixes(topic: str, uses: Mapping[str, str]) -> str:
    for suffix, use in uses.items():
        if topic.endswith(suffix):
            raise ValueError(f"topic must not end in {suffix!r}, which is reserved for {use}: {topic!r}")
    return topic


def possible_originals(topic: str) -> list[str]:
    """Return the names of topics whose dead letters this topic may hold, whatever ``DLQ_SUFFIX`` was."""
    return [topic[:-length] for length in range(1, min(DLQ_SUFFIX_MAX, len(topic) - 1) + 1)]


def check_priority(value: object) -> int:
    """Return ``value`` if it is a priority. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"priority must be an int, not {type(value).__name__}")
    if not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise ValueError(f"priority must be from {PRIORITY_MIN} to {PRIORITY_MAX}, not {value}")
    return value


def spread_partition(message_id: str, spread: int, priority: int = 0) -> str:
    """Return the partition of a message without a key.

    It depends on the id and the priority only, so that duplicate ids of one priority are found.
    """
    prefix = f"{priority:+04d} " if priority else ""
    return f"{_SPREAD_MARK}{prefix}{crc32(message_id.encode()) % spread:04d}"


def priority_of(partition: str) -> int:
    """Return the priority of the messages in a partition."""
    has_priority = partition.startswith((f"{_SPREAD_MARK}+", f"{_SPREAD_MARK}-"))
    return int(partition[1:5]) if has_priority else 0


def one_at_a_time(name: str) -> str:
    """Return a partition of which one message at a time is in flight. ``name`` may end in ``/`` and a pause."""
    return f"{_ONE_AT_A_TIME}{name}"


def is_one_at_a_time(partition: str) -> bool:
    """Return whether one message of the partition at a time is in flight."""
    return partition.startswith(_ONE_AT_A_TIME)


def pause_of(partition: str) -> int:
    """Return the milliseconds between the end of a message of the partition and the start of the next one."""
    pause = partition.rpartition("/")[2] if is_one_at_a_time(partition) else ""
    return int(pause) if pause.isdecimal() and "/" in partition else 0


def key_of(partition: str) -> str | None:
    """Return the key of a partition; None for a partition of messages without a key."""
    return None if partition.startswith(_SPREAD_MARK) else partition


def check_partition(value: object) -> str:
    """Return ``value`` if it can name a partition. Raises ``TypeError`` or ``ValueError``."""
    if isinstance(value, str) and key_of(value) is None:
        check_name("partition", value[1:], KEY_MAX)
        return value
    return check_name("partition", value, KEY_MAX)
