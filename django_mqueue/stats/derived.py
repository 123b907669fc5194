"""Statistics of scheduled messages and dead letters: counted up to a limit, estimated above it."""

from __future__ import annotations

from collections.abc import Sequence

from ..policy.batching import batches
from ..store.queries import bounded_counts
from ..store.queries.partition_walk import OFFSET_END
from .results import ABOUT, AT_LEAST, EXACT, Figure
from .sampling import Stratum, figure
from .surveying import Surveyor

CAP = 1_000
"""The maximum number that is counted. Larger numbers are estimated."""
BRANCHES = 50
NEWEST = 200
"""The number of newest dead letters of a topic that are read to count the recent ones."""


def more_than(counted: int, estimate: Figure) -> Figure:
    """Combine an incomplete count with an estimate.

    Return the estimate if it is exact or higher than the count, else ``"at_least"`` the count.
    """
    if estimate.how == EXACT:
        return estimate
    least = max(counted, estimate.least)
    if estimate.value <= least:
        return Figure(least, AT_LEAST, 0, least)
    return Figure(estimate.value, ABOUT, estimate.error, least)


class Derived:
    """The scheduled messages and the dead letters of topics."""

    def __init__(self, surveyor: Surveyor, scheduled: Sequence[str], dead: Sequence[str]) -> None:
        self.surveyor = surveyor
        self.targets: dict[str, dict[str, int]] = {}
        for some in batches(sorted({*scheduled, *dead}), BRANCHES):
            self.targets |= bounded_counts.targets(surveyor.using, some, CAP + 1)

    def all_of(self, topic: str) -> Figure:
        """Return the number of rows of a derived topic."""
        count = sum(self.targets.get(topic, {}).values())
        if count <= CAP:
            return Figure(count, least=count)
        return more_than(CAP, figure(self._strata(topic), lambda row: True))

    def scheduled_for(self, topic: str, group: str) -> Figure:
        targets = self.targets.get(topic, {})
        counted = targets.get("", 0) + targets.get(group, 0)
        if sum(targets.values()) <= CAP:
            return Figure(counted, least=counted)
        return more_than(counted, figure(self._strata(topic), lambda row: row.target in ("", group)))

    def letters_of_groups(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Figure]:
        """Return the number of dead letters, by dead-letter topic and group."""
        found: dict[tuple[str, str], Figure] = {}
        some_letters = [pair for pair in pairs if sum(self.targets.get(pair[0], {}).values()) > 0]
        counts: dict[tuple[str, str], int] = {}
        for some in batches(some_letters, BRANCHES):
            counts |= bounded_counts.letters(self.surveyor.using, some, CAP + 1)
        for topic, group in pairs:
            count = counts.get((topic, group), 0)
            if count <= CAP:
                found[topic, group] = Figure(count, least=count)
            else:
                found[topic, group] = more_than(CAP, self._letters(topic, group))
        return found

    def letters_lately(self, topics: Sequence[str], since: int) -> dict[tuple[str, str], Figure]:
        """Return the number of dead letters since a time, by dead-letter topic and group.

        Only the newest ``NEWEST`` dead letters of each topic are read. ``since``: epoch milliseconds.
        """
        holding = [topic for topic in dict.fromkeys(topics) if sum(self.targets.get(topic, {}).values()) > 0]
        found: dict[tuple[str, str], int] = {}
        for some in batches(holding, BRANCHES):
            found |= bounded_counts.letters_since(self.surveyor.using, some, since, NEWEST)
        full = {
            topic
            for topic in holding
            if sum(count for (of, _), count in found.items() if of == topic) == NEWEST
        }
        return {
            pair: Figure(count, AT_LEAST if pair[0] in full else EXACT, 0, count)
            for pair, count in found.items()
        }

    def _letters(self, topic: str, group: str) -> Figure:
        return figure(self._strata(topic), lambda row: row.failed_group == group)

    def _strata(self, topic: str) -> list[Stratum]:
        return self.surveyor.survey(topic, None, 0, OFFSET_END, whole=True)
