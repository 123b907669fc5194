"""Topics in the order of how bad they look at a glance, where there are too many to look at each."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conf
from ..policy.figures import KnownTopic
from ..store import figures, session, standing
from .derived import BRANCHES
from .loading import batches

LETTERS = 100
"""Dead letters that are counted of each topic."""


def worst_first(using: str, topics: Sequence[KnownTopic]) -> list[KnownTopic]:
    """Topics without a group come first, then those with groups that are paused or have no worker, then those with dead
    letters; equal ones by name. A few statements for each 50 topics, whatever these hold."""
    with session.explained(using):
        still, dead = _still(using, topics), _dead(using, [known.topic for known in topics])
    return sorted(
        topics,
        key=lambda known: (
            bool(known.groups),
            -sum((known.topic, group) in still for group in known.groups),
            -dead.get(conf.dead_letter_topic(known.topic), 0),
            known.topic,
        ),
    )


def _still(using: str, topics: Sequence[KnownTopic]) -> set[tuple[str, str]]:
    """Pairs of topic and group that deliver nothing: resetting, paused, or without a worker."""
    pairs = [(known.topic, group) for known in topics for group in known.groups]
    found: set[tuple[str, str]] = set()
    for some in batches(pairs):
        alive = standing.alive(using, [(topic, group, conf.lease_ms(topic)) for topic, group in some])
        names = [sorted(set(column)) for column in zip(*some, strict=True)]
        registered = standing.registrations(using, *names)
        found |= {
            pair
            for pair in some
            if not alive.get(pair)
            or (pair in registered and (registered[pair].paused or registered[pair].resetting))
        }
    return found


def _dead(using: str, topics: Sequence[str]) -> dict[str, int]:
    """Dead letters by the topic that holds them."""
    found: dict[str, int] = {}
    for some in batches([conf.dead_letter_topic(topic) for topic in topics], BRANCHES):
        counted = figures.targets(using, some, LETTERS)
        found.update({topic: sum(of.values()) for topic, of in counted.items()})
    return found
