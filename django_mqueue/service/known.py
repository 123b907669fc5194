"""The topics that there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from .. import conf
from ..policy.figures import KnownTopic, Topics
from ..policy.names import REPLIES_SUFFIX, SCHEDULED_SUFFIX
from ..store import known, session
from .loading import batches

AT_ONCE = 2_000
"""Names in one statement."""


def topics(using: str, after: str, limit: int, containing: str) -> Topics:
    """All names are read, which a loose scan does in milliseconds: what is derived from a topic sorts far from it."""
    with session.explained(using):
        found = known_topics(using)
    names = sorted(name for name in found if containing in name)
    start = bisect_right(names, after)
    page = names[start : start + limit]
    more = start + limit < len(names)
    return Topics(tuple(found[name] for name in page), page[-1] if more else None)


def known_topics(using: str) -> dict[str, KnownTopic]:
    stored, noted = stored_names(using), noted_names(using)
    groups: dict[str, list[str]] = {}
    for some in batches(noted):
        for topic, group in known.registered(using, some):
            groups.setdefault(topic, []).append(group)
    names = {base_of(name) for name in stored} | set(groups)
    return {name: KnownTopic(name, tuple(sorted(groups.get(name, ()))), letters_of(name)) for name in names}


def stored_names(using: str) -> list[str]:
    """Of all topics that the log holds anything of, derived ones among them."""
    return list(_all(lambda after: known.in_log(using, after, AT_ONCE)))


def noted_names(using: str) -> list[str]:
    """Of all topics that a group has a position on, or that have a row of their own."""
    return list(_all(lambda after: known.in_offsets(using, after, AT_ONCE)))


def _all(read: Callable[[str], list[str]]) -> Iterator[str]:
    after = ""
    while names := read(after):
        yield from names
        if len(names) < AT_ONCE:
            return
        after = names[-1]


def base_of(name: str) -> str:
    """The topic that a derived one is a part of; itself for others."""
    for suffix in (SCHEDULED_SUFFIX, REPLIES_SUFFIX):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return letters_of(name) or name


def letters_of(name: str) -> str | None:
    """The topic whose dead letters it holds, if it is a dead-letter topic."""
    for suffix in conf.dead_letter_suffixes():
        base = name.removesuffix(suffix)
        if base and base != name and conf.dead_letter_topic(base) == name:
            return base
    return None


def topic(using: str, name: str) -> KnownTopic:
    """One topic with its groups, whether it holds anything or not."""
    with session.explained(using):
        groups = sorted(group for _, group in known.registered(using, [name]))
    return KnownTopic(name, tuple(groups), letters_of(name))
