"""The lag of groups now, and their backlog at the end of each step.

Only the live log knows which messages a group is not done with. An archive also holds messages that were deleted before
the group was registered. It lacks ends that came after it was written, and has ends that a reset has undone. So for
messages that the log holds, the state in the log counts. Groups that were registered when a message was deleted were
done with it. Only the archive can know when; otherwise the time is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counting import Counted
    from .reading import Extent

BEFORE, AFTER = -1, -2
"""Values instead of the number of a step: before, or after, the requested time."""

Row = Mapping[str, Any]
Pair = tuple[str, str]


class Backlogs:
    """Computes the lag and backlogs of registered groups. A pair is a topic and a group."""

    def __init__(self, extents: Mapping[str, Extent], counts: Counted) -> None:
        self.extents = extents
        self._published = by(counts.published, "topic")
        self._ended, self._held, self._known = (
            by(rows, "topic", "reader") for rows in (counts.ended, counts.held, counts.known)
        )

    def knows(self, pair: Pair) -> bool:
        return pair[1] in self.extents[pair[0]].groups

    def mine(self, topic: str, group: str) -> Iterable[Row]:
        """Yield the counts of messages that a group gets: those for all groups, and those for this group alone.

        For a group that reads the log by itself, yield all counts: no message is deleted before the group has passed
        it.
        """
        found = self.extents[topic].groups.get(group)
        reads_all = found is not None and found.reads_log
        return (row for row in self._published.get(topic, ()) if reads_all or row["target"] in ("", group))

    def lag(self, pair: Pair) -> int | None:
        """Return the lag: messages that the log holds above the group's start, and that the group is not done with.

        None if the group is not registered.
        """
        if not self.knows(pair):
            return None
        there = total(row for row in self._above(pair) if row["there"])
        ended = sum(int(row["counted_there"]) for row in self._ended.get(pair, ()))
        return there - ended - total(self._held.get(pair, ()))

    def changes(self, pair: Pair) -> dict[int, int] | None:
        """Return by how much the backlog grows in each step; None if the group is not registered."""
        if not self.knows(pair):
            return None
        found: dict[int, int] = {}
        for row in self._above(pair):
            found[row["step"]] = found.get(row["step"], 0) + row["rows"]
        for row in self._ended.get(pair, ()):
            found[row["step"]] = found.get(row["step"], 0) - row["counted"]
        for row in self._held.get(pair, ()):
            found[row["step"]] = found.get(row["step"], 0) - row["rows"]
        return found

    def backlogs(self, pair: Pair, steps: Collection[int]) -> dict[int, int | None]:
        """Return the backlog at the end of each of these steps; None if it is not known."""
        changes = self.changes(pair)
        if changes is None:
            return dict.fromkeys(steps)
        begin = min(self.unknown(pair), default=None)
        backlog, found = changes.get(BEFORE, 0), dict[int, int | None]()
        for step in sorted(steps):
            backlog += changes.get(step, 0)
            found[step] = max(0, backlog) if begin is None or step < begin else None
        return found

    def unknown(self, pair: Pair) -> dict[int, int]:
        """Return the number of deleted messages with an unknown end, by the step in which they were published.

        For these it is not known when the group was done with them, or whether it should ever get them.
        """
        found: dict[int, int] = {}
        if self.knows(pair):
            for row in self._above(pair):
                if not row["there"] and row["step"] != AFTER:
                    found[row["step"]] = found.get(row["step"], 0) + row["rows"]
            for row in self._known.get(pair, ()):
                if row["step"] in found:
                    found[row["step"]] -= row["rows"]
        return {step: rows for step, rows in found.items() if rows > 0}

    def _above(self, pair: Pair) -> Iterable[Row]:
        """Return the rows of ``mine`` that lie above the group's start."""
        topic, group = pair
        groups = self.extents[topic].groups
        place = sorted({found.start for found in groups.values()}).index(groups[group].start)
        return (row for row in self.mine(topic, group) if row["above"] > place)


def by(rows: Iterable[dict[str, Any]], *names: str) -> dict[Any, list[dict[str, Any]]]:
    """Group rows by the value of a column, or by the values of several columns."""
    key, found = itemgetter(*names), dict[Any, list[dict[str, Any]]]()
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def total(rows: Iterable[Row]) -> int:
    return sum(int(row["rows"]) for row in rows)
