"""The lag of groups now, and their backlog at the end of each step.

The *end* of a message for a group is the moment when the group is done with it. Only the live log knows which messages
have no end yet. An archive may lack newer ends, may have ends that a reset has undone, and may hold messages that were
deleted before the group was registered. So for messages that the log holds, the state in the log counts. When a message
is deleted, all groups of that time are done with it. Only the archive can know since when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any

from .counting import AFTER, BEFORE
from .extents import Extent

Row = Mapping[str, Any]
Pair = tuple[str, str]


class Backlogs:
    """Computes the lag and backlogs of registered groups. A pair is a topic and a group."""

    def __init__(
        self,
        extents: Mapping[str, Extent],
        published: Mapping[str, list[dict[str, Any]]],
        events: Mapping[Pair, list[dict[str, Any]]],
    ) -> None:
        self._extents, self._published, self._events = extents, published, events

    def received(self, topic: str, group: str | None) -> Iterable[Row]:
        """Yield the counts of messages that a group gets: messages for all groups, and messages for this group alone.

        Yield all counts for a group that reads the log by itself, because it reads all messages. Also yield all
        counts if ``group`` is None, for a topic without groups.
        """
        found = self._extents[topic].groups.get(group or "")
        reads_all = group is None or (found is not None and found.reads_log)
        return (row for row in self._published.get(topic, ()) if reads_all or row["target"] in ("", group))

    def lag(self, pair: Pair) -> int | None:
        """Return the number of messages in the log, above the group's start, that the group is not done with.

        None if the group is not registered.
        """
        if not self._registered(pair):
            return None
        in_log = total(row for row in self._above(pair) if row["in_log"])
        return in_log - sum(int(row["counted_in_log"] + row["overlap"]) for row in self._events.get(pair, ()))

    def changes(self, pair: Pair) -> Mapping[int, int]:
        """Return the growth of the backlog in each step; empty if the group is not registered."""
        found = Counter[int]()
        if self._registered(pair):
            found.update(by_step(self._above(pair)))
            for row in self._events.get(pair, ()):
                if row["step"] is not None and row["shown"]:
                    found[row["step"]] -= row["counted"] + row["overlap"]
        return found

    def backlogs(self, pair: Pair, steps: Collection[int]) -> dict[int, int | None]:
        """Return the backlog at the end of each of these steps; None if it is not known."""
        if not self._registered(pair):
            return dict.fromkeys(steps)
        changes = self.changes(pair)
        begin = min(self.unknown(pair), default=None)
        backlog, found = changes.get(BEFORE, 0), dict[int, int | None]()
        for step in sorted(steps):
            backlog += changes.get(step, 0)
            found[step] = max(0, backlog) if begin is None or step < begin else None
        return found

    def unknown(self, pair: Pair) -> dict[int, int]:
        """Return the number of deleted messages with an unknown end, by the step in which they were published.

        It is unknown when the group was done with these messages, or whether it received them.
        """
        if not self._registered(pair):
            return {}
        found = by_step(row for row in self._above(pair) if not row["in_log"] and row["step"] != AFTER)
        for row in self._events.get(pair, ()):
            if row["step"] in found:
                found[row["step"]] -= row["known"]
        return {step: rows for step, rows in found.items() if rows > 0}

    def _registered(self, pair: Pair) -> bool:
        return pair[1] in self._extents[pair[0]].groups

    def _above(self, pair: Pair) -> Iterable[Row]:
        """Return the rows of ``received`` that lie above the group's start."""
        topic, group = pair
        groups = self._extents[topic].groups
        index = sorted({found.start for found in groups.values()}).index(groups[group].start)
        return (row for row in self.received(topic, group) if row["above"] > index)


def by(rows: Iterable[dict[str, Any]], *names: str) -> dict[Any, list[dict[str, Any]]]:
    """Group rows by the value of a column, or by the values of several columns."""
    key, found = itemgetter(*names), dict[Any, list[dict[str, Any]]]()
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def by_step(rows: Iterable[Row]) -> Counter[int]:
    found = Counter[int]()
    for row in rows:
        found[row["step"]] += row["rows"]
    return found


def total(rows: Iterable[Row]) -> int:
    return sum(int(row["rows"]) for row in rows)
