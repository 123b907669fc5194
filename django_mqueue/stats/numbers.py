"""Statistics of topics and groups. All functions are public in ``django_mqueue.inspect``.

Several functions share these arguments:

* ``exact``: the number of messages up to which they are counted one by one, at most 10,000. None: a number that suits
  the number of topics or groups in the call.
* ``max_age``: the maximum age of a cached answer, in seconds. 0: do not use Django's cache.
* ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

Invalid arguments raise ``TypeError`` or ``ValueError`` before the first query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from .. import conf
from ..policy import durations, names
from ..service.registration import check_group
from ..service.subscription import check_count
from . import retention_blockers, topic_list
from .caching import cached
from .groups import group_lag, members
from .groups.group_figures import read_group_figures
from .rates import read_latency, read_rates
from .results import GroupFigures, Hold, Lag, Latency, Rates, SubscriberFigures, TopicFigures, Topics
from .topic_figures import read_topic_figures

TOPICS_MAX = 1_000
PAIRS_MAX = 200
PARTITIONS_MAX = 1_000
POINTS_MAX = 500
EXACT_MAX = 10_000
MAX_AGE_MAX = 3_600
HOUR = timedelta(hours=1)

Result = TypeVar("Result")


def topics(
    *,
    after: str = "",
    limit: int = 100,
    containing: str = "",
    max_age: float = 0,
    using: str | None = None,
) -> Topics:
    """Return the next ``limit`` topics (up to 1,000) after the name ``after`` whose names contain ``containing``.

    A topic is listed if it holds a message, a scheduled message or a dead letter, or if it has a registered group.
    Topics of scheduled messages, replies and dead letters are not listed, except dead-letter topics that a group
    consumes.
    """
    for argument, text in (("after", after), ("containing", containing)):
        if not isinstance(text, str):
            raise TypeError(f"{argument} must be a str, not {text!r}")
    check_count("limit", limit, TOPICS_MAX)
    return _cached(using, max_age, topic_list.topics, after, limit, containing)


def group_figures(
    pairs: Iterable[tuple[str, str]],
    *,
    exact: int | None = None,
    max_age: float = 0,
    using: str | None = None,
) -> dict[tuple[str, str], GroupFigures]:
    """Return the figures of up to 200 pairs of topic and group, by pair.

    They are the messages by status, the oldest open message, and the group's workers.
    """
    return _cached(using, max_age, read_group_figures, _pairs(pairs), _exact(exact))


def topic_figures(
    topics: Iterable[str], *, exact: int | None = None, max_age: float = 0, using: str | None = None
) -> dict[str, TopicFigures]:
    """Return the figures of up to 200 topics, by name: the messages that each holds, for all groups."""
    if isinstance(topics, str):
        raise TypeError(f"topics must be several topics, for example a list, not the str {topics!r}")
    unique = tuple(dict.fromkeys(map(names.check_topic, topics)))
    _check_number("topics", len(unique))
    return _cached(using, max_age, read_topic_figures, unique, _exact(exact))


def rates(
    pairs: Iterable[tuple[str, str | None]],
    *,
    span: timedelta | float = HOUR,
    points: int = 60,
    exact: int | None = None,
    max_age: float = 0,
    using: str | None = None,
) -> dict[tuple[str, str | None], Rates]:
    """Count the messages published, finished and dead-lettered in each of ``points`` steps of ``span``, by pair.

    ``pairs``: up to 200 pairs of topic and group. If the group is None, the series count all published messages and
    the dead letters of all groups. ``span``: a timedelta or seconds, at most 31 days. ``points``: up to 500. A step
    is at least one second.
    """
    targets = _pairs_or_topics(pairs)
    ms, points = _span(span, points)
    return _cached(using, max_age, read_rates, targets, ms, points, _exact(exact))


def latency(
    topic: str,
    group: str,
    *,
    span: timedelta | float = HOUR,
    points: int = 12,
    exact: int | None = None,
    max_age: float = 0,
    using: str | None = None,
) -> Latency:
    """Return the latency of the messages that a group finished in each of ``points`` steps of the last ``span``.

    ``span``: a timedelta or seconds, at most 31 days. ``points``: up to 500. A step is at least one second.
    """
    (pair,) = _pairs([(topic, group)])
    ms, points = _span(span, points)
    return _cached(using, max_age, read_latency, *pair, ms, points, _exact(exact))


def lag(
    topic: str,
    group: str,
    *,
    limit: int = 25,
    exact: int | None = None,
    max_age: float = 0,
    using: str | None = None,
) -> Lag:
    """Return the lag of a group: the total, and the ``limit`` partitions (up to 1,000) with the most messages."""
    (pair,) = _pairs([(topic, group)])
    check_count("limit", limit, PARTITIONS_MAX)
    return _cached(using, max_age, group_lag.lag, *pair, limit, _exact(exact))


def holds(topic: str, *, max_age: float = 0, using: str | None = None) -> list[Hold]:
    """Return the retention blockers of a topic, the oldest message first; none if the topic is empty."""
    return _cached(using, max_age, retention_blockers.holds, names.check_topic(topic))


def subscribers(
    topic: str, group: str, *, max_age: float = 0, using: str | None = None
) -> list[SubscriberFigures]:
    """Return the members of a group by name, including members that left or became silent within a day."""
    (pair,) = _pairs([(topic, group)])
    return _cached(using, max_age, members.subscribers, *pair)


def _cached(using: str | None, max_age: float, compute: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of ``compute(alias, *arguments)``, perhaps from the cache."""
    if isinstance(max_age, bool) or not isinstance(max_age, (int, float)):
        raise TypeError(f"max_age must be a number of seconds, not {max_age!r}")
    if not 0 <= max_age <= MAX_AGE_MAX:
        raise ValueError(f"max_age must be 0 to {MAX_AGE_MAX} seconds, not {max_age!r}")
    alias = conf.database(using)
    return cached(alias, (compute.__name__, *arguments), max_age, lambda: compute(alias, *arguments))


def _exact(exact: int | None) -> int | None:
    return exact if exact is None else check_count("exact", exact, EXACT_MAX)


def _pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    checked = []
    for topic, group in _pairs_or_topics(pairs):
        if group is None:
            raise TypeError("group must be a str: each group has figures of its own")
        checked.append((topic, group))
    return tuple(checked)


def _pairs_or_topics(pairs: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    checked: dict[tuple[str, str | None], None] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"pairs must be tuples of topic and group, not {pair!r}")
        topic, group = pair
        checked[names.check_topic(topic), None if group is None else check_group(group)] = None
    _check_number("pairs", len(checked))
    return tuple(checked)


def _check_number(argument: str, number: int) -> None:
    if number > PAIRS_MAX:
        raise ValueError(
            f"at most {PAIRS_MAX} {argument} are allowed in a call, not {number}: use several calls"
        )


def _span(span: timedelta | float, points: int) -> tuple[int, int]:
    ms = durations.to_ms("span", span, least=1)
    if ms > 31 * 86_400_000:
        raise ValueError(f"span must be at most 31 days, not {span!r}")
    check_count("points", points, POINTS_MAX)
    if ms // points < 1_000:
        raise ValueError(
            f"a step must last a second or more, not {ms / 1000:g} s / {points}: give fewer points"
        )
    return ms, points
