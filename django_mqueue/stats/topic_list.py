"""The catalogue of topics.

A derived topic belongs to another topic. It holds that topic's scheduled messages, replies or dead letters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from difflib import get_close_matches

from .. import conf
from ..policy.batching import batches
from ..policy.names import ACTIONS_TOPIC, OPERATIONS_TOPIC, RESERVED_SUFFIXES
from ..store.connection import session
from ..store.queries import group_summaries, skip_scan
from .results import KnownTopic, Topics

ALIKE = 3
"""Maximum number of similar names."""


def topics(using: str, after: str, limit: int, containing: str) -> Topics:
    """Return the next ``limit`` topics after the name ``after`` whose names contain ``containing``.

    All names are read, because a derived topic can sort far from its topic. A loose index scan reads them in
    milliseconds.
    """
    with session.raises_not_migrated(using):
        found = known_topics(using)
    names = sorted(name for name in found if containing in name)
    start = bisect_right(names, after)
    page = names[start : start + limit]
    more = start + limit < len(names)
    return Topics(tuple(found[name] for name in page), page[-1] if more else None)


def known_topics(using: str) -> dict[str, KnownTopic]:
    """Return topics with their registered groups, by name; derived topics only if they have groups.

    The topics of operators' actions and operations are not returned.
    """
    stored, noted = skip_scan.topics_in_log(using), skip_scan.topics_in_offsets(using)
    groups: dict[str, list[str]] = {}
    for some in batches(noted):
        for topic, group in group_summaries.registered(using, some):
            groups.setdefault(topic, []).append(group)
    names = ({base_of(name) for name in stored} | set(groups)) - {ACTIONS_TOPIC, OPERATIONS_TOPIC}
    return {
        name: KnownTopic(name, tuple(sorted(groups.get(name, ()))), dead_letters_of(name)) for name in names
    }


def similar_to_missing(using: str, name: str) -> list[str] | None:
    """Return names similar to ``name``, the most similar first, if no such topic exists. Otherwise return None."""
    with session.raises_not_migrated(using):
        stored = {*skip_scan.topics_in_log(using), *skip_scan.topics_in_offsets(using)} - {""}
    existing = with_originals(stored)
    return None if name in existing else get_close_matches(name, sorted(existing), ALIKE)


def with_originals(names: Collection[str]) -> set[str]:
    """Return the names, and the topics to which the derived ones among them belong."""
    return {*names, *map(base_of, names)}


def base_of(name: str) -> str:
    """Return the topic that a derived topic belongs to, or ``name`` if the topic is not derived."""
    for suffix in RESERVED_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return dead_letters_of(name) or name


def dead_letters_of(name: str) -> str | None:
    """Return the topic whose dead letters this topic holds; None if it is not a dead-letter topic."""
    for suffix in conf.dead_letter_suffixes():
        base = name.removesuffix(suffix)
        if base and base != name and conf.dead_letter_topic(base) == name:
            return base
    return None


def topic(using: str, name: str) -> KnownTopic:
    """Return one topic with its registered groups, even if it holds no message."""
    with session.raises_not_migrated(using):
        groups = sorted(group for _, group in group_summaries.registered(using, [name]))
    return KnownTopic(name, tuple(groups), dead_letters_of(name))
