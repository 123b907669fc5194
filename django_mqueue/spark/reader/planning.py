"""Plan a read in the driver, from indexes only: its topics, where it begins and ends, and the ranges of the tasks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from ...policy.names import RESERVED_SUFFIXES
from ...service.registration import groups_of, last_before
from ..errors import NoSuchTopic
from ..sql import bulk
from .options import EARLIEST, LATEST, Bound, ReadOptions
from .ranges import Range, cuts, rows_each, shares
from .settling import readable

STEP = 10_000
"""The number of rows between two lookups in the index."""


def topics_of(using: str, options: ReadOptions) -> list[str]:
    """Return the topics of the log that are read; for dead letters, the dead-letter topics. Raises ``NoSuchTopic``."""
    suffixes, dead_letters = options.suffixes, options.table == "dead_letters"
    if options.pattern is not None:
        derived = (*RESERVED_SUFFIXES, *suffixes.all)
        known = bulk.topics(using)
        originals = filter(None, map(suffixes.original, known)) if dead_letters else known
        return sorted(
            suffixes.dead_letter_topic(topic) if dead_letters else topic
            for topic in originals
            if options.matches(topic) and not topic.endswith(derived)
        )
    for topic in options.topics:
        if not bulk.topics(using, topic) and not (
            dead_letters and bulk.topics(using, suffixes.dead_letter_topic(topic))
        ):
            near = get_close_matches(topic, bulk.topics(using), 3)
            hint = f"Did you mean {', '.join(map(repr, near))}?" if near else "Publish to it first"
            raise NoSuchTopic(
                f"there is no topic {topic!r}: nothing was ever published to it, and no group registered for it. {hint}"
            )
    return [suffixes.dead_letter_topic(topic) if dead_letters else topic for topic in options.topics]


def some_topics(using: str, options: ReadOptions) -> list[str]:
    """Return the topics as ``topics_of`` does. Raises ``NoSuchTopic`` also for a pattern that matches no topic."""
    found = topics_of(using, options)
    if not found:
        raise NoSuchTopic(_no_match(using, options))
    return found


def _no_match(using: str, options: ReadOptions) -> str:
    known = topics_of(using, replace(options, pattern=".*"))
    named = ", ".join(map(repr, known[:5])) + (" and more" if len(known) > 5 else "")
    return f"{options.pattern!r} matches no whole name of a topic; topics: {named or 'none'}"


def resolve_bound(using: str, topic: str, bound: Bound, last: int, name: str) -> int | None:
    """Return the offset above which (for a start) or up to which (for an end) a topic is read; None if not given.

    ``last``: the last offset that is settled, or readable. ``name``: the topic as the user named it.
    """
    if bound.where == "moment":
        return last_before(using, topic, bound.moment, last)
    offset = bound.of(name)
    if bound.where == "earliest" or offset == EARLIEST:
        return 0
    if bound.where == "latest" or offset == LATEST:
        return last
    return None if offset is None else min(max(offset - 1, 0), last)


def batch(using: str, options: ReadOptions) -> list[Range]:
    """Return the ranges of a batch. Warns if a pattern matches no topic."""
    found: list[tuple[str, int, int]] = []
    topics = topics_of(using, options)
    named = replace(options, table="messages")  # A topic without dead letters is not a mistake.
    if not topics and not topics_of(using, named):
        warnings.warn(f"subscribePattern: {_no_match(using, named)}. Nothing is read", stacklevel=2)
    for topic, last in readable(using, topics, options).items():
        name = options.named(topic)
        above = resolve_bound(using, topic, options.start, last, name) or 0
        upto = resolve_bound(using, topic, options.end, last, name)
        found.append((topic, above, last if upto is None else upto))
    return ranges(using, options, found)


def ranges(using: str, options: ReadOptions, spans: Sequence[tuple[str, int, int]]) -> list[Range]:
    """Cut spans of the log, given as (topic, above, upto), into ranges with about equally many rows."""
    most = options.max_records_per_partition
    counted = [
        list(_counted_ranges(using, topic, above, upto, min(STEP, most), options.targets))
        for topic, above, upto in spans
    ]
    total = sum(each.rows for some in counted for each in some)
    rows = max(rows_each(total, most, options.min_partitions), options.least_records)
    found = [each for some in counted for each in _even_ranges(using, some, rows, options.targets)]
    if options.table != "deliveries":
        return found
    groups = {topic: options.groups or groups_of(using, topic) for topic, _, _ in spans}
    return [replace(each, group=group) for each in found for group in groups[each.topic]]


def _even_ranges(
    using: str, counted: Sequence[Range], most: int, targets: Sequence[str] | None
) -> Iterator[Range]:
    """Cut a topic's ranges again, so that all have about equally many rows, at most ``most``."""
    total = sum(each.rows for each in counted)
    number = math.ceil(total / most)
    above = counted[0].above if counted else 0
    for cut, (index, rows) in enumerate(cuts([each.rows for each in counted], number), 1):
        last = counted[index]
        upto = None
        if rows < last.rows:
            upto = bulk.nth_above(using, last.topic, last.above, last.upto, rows, targets)
        upto = last.upto if upto is None else upto
        yield Range(last.topic, above, upto, total * cut // number - total * (cut - 1) // number)
        above = upto


def _counted_ranges(
    using: str, topic: str, above: int, upto: int, step: int, targets: Sequence[str] | None
) -> Iterator[Range]:
    while above < upto:
        end = bulk.nth_above(using, topic, above, upto, step, targets)
        if end is None:
            if rest := bulk.count(using, topic, above, upto, targets):
                yield Range(topic, above, upto, rest)
            return
        yield Range(topic, above, end, step)
        above = end


def ends(
    using: str, options: ReadOptions, spans: Sequence[tuple[str, int, int]], most: int | None
) -> dict[str, int]:
    """Return, by topic, the offset at which a batch of at most ``most`` rows in total ends. None: no limit."""
    if most is None:
        return {topic: upto for topic, _, upto in spans}
    backlogs, found = [], {}
    for topic, above, upto in spans:
        enough = above < upto and bulk.nth_above(using, topic, above, upto, most, options.targets)
        backlogs.append(most if enough else bulk.count(using, topic, above, upto, options.targets))
    for (topic, above, upto), backlog, share in zip(spans, backlogs, shares(most, backlogs), strict=True):
        if share == backlog < most:
            found[topic] = upto
        elif share == 0:
            found[topic] = above
        else:
            end = bulk.nth_above(using, topic, above, upto, share, options.targets)
            found[topic] = upto if end is None else end
    return found
