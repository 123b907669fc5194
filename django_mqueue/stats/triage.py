"""Order topics by urgency, for when there are too many to read the figures of each."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conf
from ..policy.batching import batches
from ..store.connection import session
from ..store.queries import bounded_counts, group_positions
from .results import KnownTopic

LETTERS = 100
"""The maximum number of dead letters that are counted for each topic."""


def worst_first(using: str, topics: Sequence[KnownTopic]) -> list[KnownTopic]:
    """Return the topics, the most urgent first.

    Topics without a group come first. Next are topics with groups that are paused, are being reset or have no worker;
    the more such groups, the earlier. Next are topics with dead letters. Equal topics are ordered by name. It takes a
    few statements for each 50 topics, whatever these hold.
    """
    with session.migration_errors(using):
        still, dead = _idle_pairs(using, topics), _dead(using, [known.topic for known in topics])
    return sorted(
        topics,
        key=lambda known: (
            bool(known.groups),
            -sum((known.topic, group) in still for group in known.groups),
            -dead.get(conf.dead_letter_topic(known.topic), 0),
            known.topic,
        ),
    )


def _idle_pairs(using: str, topics: Sequence[KnownTopic]) -> set[tuple[str, str]]:
    """Return the pairs of topic and group that deliver nothing: resetting, paused, or without a worker."""
    pairs = [(known.topic, group) for known in topics for group in known.groups]
    if not pairs:
        return set()
    alive = group_positions.alive(using, [(topic, group, conf.lease_ms(topic)) for topic, group in pairs])
    registered: dict[tuple[str, str], group_positions.Registered] = {}
    for some in batches(pairs):
        names = [sorted(set(column)) for column in zip(*some, strict=True)]
        registered |= group_positions.registrations(using, *names)
    return {
        pair
        for pair in pairs
        if not alive.get(pair)
        or (pair in registered and (registered[pair].paused or registered[pair].resetting))
    }


def _dead(using: str, topics: Sequence[str]) -> dict[str, int]:
    """Return the number of dead letters, by dead-letter topic."""
    names = [conf.dead_letter_topic(topic) for topic in topics]
    return {topic: sum(of.values()) for topic, of in bounded_counts.targets(using, names, LETTERS).items()}
