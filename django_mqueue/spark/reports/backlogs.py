"""What groups still have to do, and had at the end of each step.

The live log alone knows what a group is not done with. An archive also holds messages that were deleted before the
group came; it lacks ends that came when it was written, and has ends that a reset has undone. So of what the log holds,
its own state counts. What was deleted each group was done with that was registered then: when, the archive knows, or
nobody does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counting import Counted
    from .reading import Extent

BEFORE, AFTER = -1, -2
"""In place of a step's number: before, or after, the time that was asked for."""

Row = Mapping[str, Any]
Pair = tuple[str, str]


class Standing:
    """Of topics and groups, as pairs; registered ones."""

    def __init__(self, extents: Mapping[str, Extent], counts: Counted) -> None:
        self.extents = extents
        self._published = by(counts.published, "topic")
        self._ended, self._held, self._known = (
            by(rows, "topic", "reader") for rows in (counts.ended, counts.held, counts.known)
        )

    def knows(self, pair: Pair) -> bool:
        return pair[1] in self.extents[pair[0]].groups

    def mine(self, topic: str, group: str) -> Iterable[Row]:
        """Rows of messages for all groups, or for this one; all rows for one that reads the log by itself: no message
        is deleted before it has come past, whomever it is for."""
        found = self.extents[topic].groups.get(group)
        reads_all = found is not None and found.reads_log
        return (row for row in self._published.get(topic, ()) if reads_all or row["target"] in ("", group))

    def lag(self, pair: Pair) -> int | None:
        """Messages above the group's start that the log holds, and that it has not ended."""
        if not self.knows(pair):
            return None
        there = total(row for row in self._above(pair) if row["there"])
        ended = sum(int(row["counted_there"]) for row in self._ended.get(pair, ()))
        return there - ended - total(self._held.get(pair, ()))

    def changes(self, pair: Pair) -> dict[int, int] | None:
        """By how much the backlog grows in each step."""
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
        """At the end of each of these steps; None where it is not known."""
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
        """By the step in which they were published: deleted messages of which nobody knows when the group was done
        with them, or whether it ever was to have them."""
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
        """Rows of ``mine`` that lie above the group's start."""
        topic, group = pair
        groups = self.extents[topic].groups
        place = sorted({found.start for found in groups.values()}).index(groups[group].start)
        return (row for row in self.mine(topic, group) if row["above"] > place)


def by(rows: Iterable[dict[str, Any]], *names: str) -> dict[Any, list[dict[str, Any]]]:
    """By the value of a column, or the values of several."""
    key, found = itemgetter(*names), dict[Any, list[dict[str, Any]]]()
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def total(rows: Iterable[Row]) -> int:
    return sum(int(row["rows"]) for row in rows)
