"""The topics that have dead letters, page by page."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from .. import conf
from ..policy.batching import batches
from ..policy.names import possible_originals
from ..store.connection import session
from ..store.queries import bounded_counts, dead_letter_summaries, skip_scan

CAP = 1_000
"""The number up to which the dead letters of a group are counted."""
NAMES_AT_ONCE, NAMES_MOST = 100, 1_000
"""The maximum number of topics that are searched for dead letters: by one statement, and for one page."""


@dataclass(frozen=True)
class DeadLetterTopic:
    """A dead-letter topic.

    ``groups``: the number of dead letters by group, at most ``CAP``. ``first`` and ``newest``: when its first and its
    last message were published, in epoch milliseconds.
    """

    dead_topic: str
    topic: str
    groups: dict[str, int]
    first: int
    newest: int


@dataclass(frozen=True)
class DeadLetterTopics:
    """A page of dead-letter topics. ``next``: the name after which to continue; None at the end."""

    topics: list[DeadLetterTopic]
    next: str | None


def topics(using: str, after: str, limit: int) -> DeadLetterTopics:
    """Return the next topics that have dead letters, sorted by the names of their dead-letter topics.

    ``after``: a dead-letter topic's name; the page begins after it. ``limit``: the maximum number of topics.
    """
    with session.raises_not_migrated(using):
        found, next_name = _dead_topics(using, after, limit)
        groups = _groups(using, {name: group for name, (group, _) in found.items()})
        pairs = [(name, group) for name, some in groups.items() for group in some]
        if not pairs:
            return DeadLetterTopics([], next_name)
        counts = bounded_counts.dead_letters(using, pairs, CAP)
        ends = bounded_counts.ends(using, [*found])
        rows = [
            DeadLetterTopic(
                name,
                topic,
                {group: counts[name, group] for group in groups[name] if counts.get((name, group))},
                ends[name].first_at,
                ends[name].last_at,
            )
            for name, (_, topic) in found.items()
            if name in ends  # Its last dead letter may be gone.
        ]
        return DeadLetterTopics(rows, next_name)


def _dead_topics(using: str, after: str, limit: int) -> tuple[dict[str, tuple[str, str]], str | None]:
    """Return (a group, the original topic) by dead-letter topic, and the name after which to continue."""
    names = skip_scan.topics_in_log(using)
    known = {*names, *skip_scan.topics_in_offsets(using)}
    candidates = sorted(name for name in names if name > after and _may_hold_dead_letters(name, known))
    found: dict[str, tuple[str, str]] = {}
    for some in batches(candidates[:NAMES_MOST], NAMES_AT_ONCE):
        groups = dead_letter_summaries.next_groups(using, [(name, "") for name in some])
        for name in some:
            if name in groups:
                if len(found) == limit:
                    return found, list(found)[-1]
                found[name] = groups[name]
    return found, candidates[NAMES_MOST - 1] if len(candidates) > NAMES_MOST else None


def _may_hold_dead_letters(name: str, known: Set[str]) -> bool:
    """Return whether the name ends with a configured suffix, or is a known topic's name with another suffix."""
    return name.endswith(conf.dead_letter_suffixes()) or not known.isdisjoint(possible_originals(name))


def _groups(using: str, first: dict[str, str]) -> dict[str, list[str]]:
    """Return all groups of each topic. ``first``: one group of each. Each statement finds one more of every topic."""
    found = {name: [group] for name, group in first.items()}
    last = dict(first)
    while last:
        last = {
            name: group
            for name, (group, _) in dead_letter_summaries.next_groups(using, [*last.items()]).items()
        }
        for name, group in last.items():
            found[name].append(group)
    return found
