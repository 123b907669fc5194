"""A look at a topic in some hundred rows: read where they tell the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..policy.batching import batches
from ..store import offsets
from ..store.queries import bounded_counts, samples
from ..store.queries.samples import Row
from .sampling import DONE, IN_FLIGHT, PENDING, WAITING, Place, Sampled, Stratum, cut, halves, worth_splitting

EACH = 8
"""Rows at the begin of a stratum."""
TOGETHER = 4
"""Topics from which on one search for a time is made for all."""
STATES = 1_000
"""Messages in one statement."""
SPARSE = 50
"""Times as many offsets as rows: where there are more, it is not tried to read all rows."""


@dataclass(frozen=True)
class Size:
    """How much a survey reads: so many ``strata`` at first, and as many with each of the ``rounds`` in which some are
    split; up to ``exact`` rows all are read."""

    strata: int
    rounds: int
    exact: int


def size_for(surveys: int, exact: int | None = None) -> Size:
    """So that all that one call makes stay within some thousand rows."""
    most = max(1, surveys)
    return Size(
        max(8, min(48, 96 // most)), 2 if most <= 2 else 1, exact or max(100, min(1_000, 3_000 // most))
    )


class Surveyor:
    """Surveys of one call; what they have in common is read once. ``now``: the database's time."""

    def __init__(self, using: str, size: Size) -> None:
        self.using, self.size = using, size
        self.now = samples.now_ms(using)
        self._ends: dict[str, bounded_counts.Ends | None] = {}
        self._rows: dict[tuple[str, int, int, int], list[Row]] = {}
        self._times: dict[tuple[str, int], int] = {}

    def ends(self, topic: str) -> bounded_counts.Ends | None:
        if topic not in self._ends:
            self.prepare([topic])
        return self._ends[topic]

    def prepare(self, topics: Sequence[str]) -> None:
        """Read the ends of many topics at once."""
        for some in batches([topic for topic in dict.fromkeys(topics) if topic not in self._ends]):
            found = bounded_counts.ends(self.using, some)
            self._ends.update({topic: found.get(topic) for topic in some})

    def read(self, topic: str, ranges: Sequence[tuple[int, int]], each: int) -> list[list[Row]]:
        """The first rows of each range."""
        missing = [one for one in ranges if (topic, *one, each) not in self._rows]
        for some in batches(missing):
            for one in some:
                self._rows[topic, *one, each] = []
            for row in samples.at(self.using, topic, some, each):
                self._rows[topic, *some[row.place], each].append(row)
        return [self._rows[topic, *one, each] for one in ranges]

    def offset_at(self, topic: str, moment: int) -> int:
        """The first offset of a topic that was published then or later; one above the last where none was."""
        end = self.ends(topic)
        assert end is not None
        if end.first_at >= moment:
            return end.first
        if end.last_at < moment:
            return end.last + 1
        if (topic, moment) not in self._times:
            low, high = (end.first, end.first_at), (end.last, end.last_at)
            while high[0] - low[0] > 1:  # ``low`` was published before that, ``high`` was not.
                places = self.read(topic, halves(low, high, moment), 1)
                rows = [(found[0].offset, found[0].published_at) for found in places if found]
                if not rows:
                    break
                low, high = _closer(rows, low, high, moment)
            self._times[topic, moment] = high[0]
        return self._times[topic, moment]

    def prepare_times(self, topics: Sequence[str], moment: int) -> None:
        """Find ``offset_at`` for many topics at once: in the whole log, where times rise, too. What was found is looked
        at for each of them: where it does not hold, ``offset_at`` searches by itself."""
        self.prepare(topics)
        wanted = [
            topic
            for topic in dict.fromkeys(topics)
            if (end := self._ends[topic]) and end.first_at < moment <= end.last_at
        ]
        if len(wanted) < TOGETHER:
            return
        ends = [end for topic in wanted if (end := self._ends[topic])]
        low = min((end.first, end.first_at) for end in ends)
        offset = self._anywhere(moment, low, max((end.last, end.last_at) for end in ends))
        for some in batches(wanted, 50):
            for topic, rows in samples.around(self.using, some, offset).items():
                before = [at for row, at in rows if row < offset]
                after = [(row, at) for row, at in rows if row >= offset]
                if after and after[0][1] >= moment and all(at < moment for at in before):
                    self._times[topic, moment] = after[0][0]

    def _anywhere(self, moment: int, low: Place, high: Place) -> int:
        """An offset at which the log comes to a moment: ``low`` was published before that, ``high`` was not."""
        while high[0] - low[0] > 1:
            rows = samples.everywhere(self.using, halves(low, high, moment))
            if not rows:
                break
            low, high = _closer(rows, low, high, moment)
        return high[0]

    def partitions_seen(self, topic: str) -> set[str]:
        """Of the rows that were read so far."""
        return {row.partition for key, rows in self._rows.items() if key[0] == topic for row in rows}

    def survey(
        self, topic: str, group: str | None, since: int, step: int, *, whole: bool, start: int = 0
    ) -> list[Stratum]:
        """Strata of what a topic holds, in order; with a ``group``, which began at ``start``, how each row stands.

        Finest where something happened from ``since`` on, to steps of that length. Not ``whole``: only what was
        published since.
        """
        return _Survey(self, topic, group, since, step, start).strata(whole=whole)

    def between(self, topic: str, group: str, low: int, high: int, start: int, ends: int) -> Between:
        """What lies from offset ``low`` on and before ``high``, and how each row stands with a group that began at
        ``start``; finest where that changes. Up to ``exact`` rows all, however far apart; of more, ``ends`` rows at
        either end besides."""
        survey = _Survey(self, topic, group, self.now + 1, 1, start)
        (rows,) = self.read(topic, [(low, high)], self.size.exact)
        if len(rows) < self.size.exact:
            strata = survey.told([(low, high)], [rows], complete=True)
            return Between(strata, strata[0].rows)
        last = samples.last(self.using, topic, high, ends)
        sides = self.read(topic, [(low, high), (max(last, low), high)], ends)
        told = survey.told([(low, high)] * 2, sides, complete=True)
        strata = survey.refined(survey.part(low, high))
        seen = {row.offset: row for stratum in (*strata, *told) for row in stratum.rows}
        return Between(strata, tuple(seen[offset] for offset in sorted(seen)))


def _closer(rows: Sequence[Place], low: Place, high: Place, moment: int) -> tuple[Place, Place]:
    """The rows next to a moment, of those that were looked at."""
    high = min([high, *(row for row in rows if row[1] >= moment)])
    return max([low, *(row for row in rows if row[0] < high[0])]), high


@dataclass(frozen=True)
class Between:
    """A survey of a range of offsets. ``seen``: all rows that were looked at, in order."""

    strata: list[Stratum]
    seen: tuple[Sampled, ...]


class _Survey:
    def __init__(
        self, surveyor: Surveyor, topic: str, group: str | None, since: int, step: int, start: int
    ) -> None:
        self.of, self.topic, self.group = surveyor, topic, group
        self.since, self.step, self.start = since, step, start

    def strata(self, *, whole: bool) -> list[Stratum]:
        end = self.of.ends(self.topic)
        if end is None:
            return []
        if whole and (found := self._all_rows(end.first, end.last + 1)):
            return found
        middle = self.of.offset_at(self.topic, self.since)
        parts = [(middle, end.last + 1)]
        if whole:
            parts.insert(0, (end.first, middle))
        return self.refined(
            [stratum for low, high in parts if low < high for stratum in self.part(low, high)]
        )

    def refined(self, strata: list[Stratum]) -> list[Stratum]:
        for _ in range(self.of.size.rounds):
            strata = self._finer(strata)
        return strata

    def part(self, low: int, high: int) -> list[Stratum]:
        if found := self._all_rows(low, high):
            return found
        # The last one of all by itself: the rest of the stratum before it lies between rows that were looked at.
        return self._look([*cut(low, high - 1, self.of.size.strata), (high - 1, high)])

    def _all_rows(self, low: int, high: int) -> list[Stratum]:
        """If they are few; else nothing."""
        exact = self.of.size.exact
        if high - low > exact * SPARSE:
            return []
        (rows,) = self.of.read(self.topic, [(low, high)], exact)
        return self.told([(low, high)], [rows], complete=True) if len(rows) < exact else []

    def _finer(self, strata: list[Stratum]) -> list[Stratum]:
        numbers = worth_splitting(strata, self.since, self.step)[: self.of.size.strata // 2]
        if not numbers:
            return strata
        share = max(2, self.of.size.strata // len(numbers))
        pieces = {number: cut(strata[number].low, strata[number].high, share) for number in numbers}
        found = iter(self._look([piece for number in sorted(pieces) for piece in pieces[number]]))
        finer: list[Stratum] = []
        for number, stratum in enumerate(strata):
            finer += [next(found) for _ in pieces[number]] if number in pieces else [stratum]
        return finer

    def _look(self, ranges: Sequence[tuple[int, int]]) -> list[Stratum]:
        return self.told(ranges, self.of.read(self.topic, ranges, EACH), complete=False)

    def told(
        self, ranges: Sequence[tuple[int, int]], rows: Sequence[Sequence[Row]], *, complete: bool
    ) -> list[Stratum]:
        sampled = self._sampled([row for some in rows for row in some])
        return [
            Stratum(low, high, tuple(sampled[row.offset] for row in some), complete or len(some) < EACH)
            for (low, high), some in zip(ranges, rows, strict=True)
        ]

    def _sampled(self, rows: Sequence[Row]) -> dict[int, Sampled]:
        found = {row.offset: _plain(row) for row in rows}
        if (group := self.group) is None:
            return found
        mine = [row for row in rows if row.target in ("", group)]
        states: dict[int, samples.State] = {}
        for some in batches(mine, STATES):
            states |= samples.states(self.of.using, group, [row.offset for row in some])
        fresh = sorted({row.partition for row in mine if row.offset not in states})
        places: dict[str, offsets.Position] = {}
        for names in batches(fresh, STATES):
            places |= offsets.positions(self.of.using, group, self.topic, names, self.start)
        found = {offset: replace(row, status=None) for offset, row in found.items()}
        for row in mine:
            if (state := states.get(row.offset)) is not None:
                found[row.offset] = _with_state(_plain(row), state)
            else:
                passed = row.offset <= places[row.partition].acked
                found[row.offset] = replace(found[row.offset], status=DONE if passed else PENDING)
        return found


def _plain(row: Row) -> Sampled:
    return Sampled(row.offset, row.published_at, target=row.target, failed_group=row.failed_group)


def _with_state(row: Sampled, state: samples.State) -> Sampled:
    status = DONE if state.acked else IN_FLIGHT if state.in_flight else WAITING
    # What was removed by hand was done, but delivered to nobody.
    delivered = bool(state.delivered_to)
    return replace(
        row, status=status, delivered_at=state.delivered_at if delivered else None, done_at=state.acked_at,
        once=delivered and not state.retries, started=state.handed, skipped=state.acked and state.skipped,
    )  # fmt: skip
