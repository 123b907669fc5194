"""The lag of a group, in total and by partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...policy.batching import batches
from ...policy.durations import moment
from ...policy.names import key_of
from ...store import removal
from ...store.connection import session
from ...store.queries import group_positions, message_pages
from ...store.queries.group_positions import FEW, Place
from ..derived import more_than
from ..results import ABOUT, EXACT, Figure, Lag, PartitionLag
from ..sampling import DEVIATIONS, IN_FLIGHT, LEAST_ERROR, PENDING, WAITING, cut, figure
from ..surveying import Surveyor, size_for
from . import partitions

MOST = 6_000
"""The maximum number of partitions that are read if a topic has too many to read all of them."""
LIKELY = 200
"""The maximum number of partitions whose lag is estimated, of all in which the group is behind."""
ROWS = 3_000
"""The default number of rows that are counted one by one, of all partitions together."""
STEP = 60_000
PLACES = 100
"""The number of places in the log whose rows are read to find partitions."""


def lag(using: str, topic: str, group: str, limit: int, exact: int | None = None) -> Lag:
    """Return the lag of a group: the total, and the ``limit`` partitions with the most messages.

    ``exact``: the number of rows that are counted one by one; None for ``ROWS``.
    """
    with session.migration_errors(using):
        registered = group_positions.registrations(using, [topic], [group]).get((topic, group))
        surveyor = Surveyor(using, size_for(1, exact))
        end = surveyor.ends(topic)
        pair = (topic, group)
        removing = registered.resetting if registered else pair in removal.unfinished_among(using, [pair])
        if registered is None or end is None or removing:
            return Lag(topic, group, Figure(0), (), 0, False, removing)
        start = registered.start
        known, seen = group_positions.known_names(using, group, topic, partitions.NAMED + 1), set[str]()
        if len(known) <= partitions.NAMED:
            surveyor.read(topic, cut(end.first, end.last + 1, PLACES), 1)
            seen = surveyor.partitions_seen(topic)
        names = partitions.all_names(using, topic, known | seen)
        look = partitions.read_positions(using, group, topic, start, names, seen, MOST)
        rows = exact or ROWS
        behind = [_Behind(one) for one in look.behind]
        if len(behind) > LIKELY:
            # The range of offsets above the watermark limits the number of messages in it.
            behind = sorted(behind, key=lambda one: one.place.acked - one.place.newest)[:LIKELY]
        for some in batches(behind):
            tails = group_positions.tails(using, topic, [one.place.partition for one in some])
            for one in some:
                one.few = tails.get(one.place.partition)
        chosen = sorted(behind, key=lambda one: -one.guess)
        if len(behind) < len(look.behind) or sum(one.guess for one in chosen) > rows / 2:
            # Only the count shows which partitions have the most: count twice as many as requested.
            chosen = chosen[: 2 * limit]
        found = _counted(using, topic, group, chosen, max(10, rows // max(1, len(chosen))))
        found = [one for one in found if one.lag.value]
        found.sort(key=lambda one: (-one.lag.value, one.partition))
        counted = sum(one.lag.least for one in found)
        if look.all and len(chosen) == len(look.behind) and all(one.lag.how == EXACT for one in found):
            total = Figure(counted, least=counted)
        else:
            now, opened = surveyor.now, (PENDING, IN_FLIGHT, WAITING)
            strata = surveyor.survey(topic, group, now - STEP, STEP, whole=True, start=start)
            total = more_than(counted, figure(strata, lambda row: row.status in opened))
        number = len(look.behind) - (len(chosen) - len(found))
        return Lag(topic, group, total, tuple(found[:limit]), number, not look.all)


@dataclass
class _Behind:
    """A partition in which the group is behind.

    ``few``: the offset of the message that has ``FEW`` messages after it; None if the partition has too few.
    """

    place: Place
    few: int | None = None

    @property
    def density(self) -> float:
        """The number of messages for each offset at the end of the partition; 0 if unknown."""
        return 0 if self.few is None else FEW / max(1, self.place.newest - self.few)

    @property
    def guess(self) -> float:
        """The estimated number of messages above the watermark."""
        if self.few is None or self.few <= self.place.acked:
            return FEW / 2
        return FEW + (self.few - self.place.acked) * self.density


def _counted(using: str, topic: str, group: str, behind: Sequence[_Behind], each: int) -> list[PartitionLag]:
    rows: dict[str, list[message_pages.Place]] = {one.place.partition: [] for one in behind}
    opened: dict[str, int] = dict.fromkeys(rows, 0)
    for some in batches(behind):
        above = [(one.place.partition, one.place.acked) for one in some]
        read = message_pages.undelivered(using, topic, above, each)
        for row in read:
            rows[row[1]].append(row)
        for message in partitions.open_ones(using, group, read, {}):
            opened[message.partition] += 1
    found = []
    for one in behind:
        place = one.place
        mine, count = rows[place.partition], opened[place.partition]
        lag = Figure(count, least=count)
        if len(mine) == each and max(row[0] for row in mine) < place.newest:
            share = sum(target in ("", group) for *_, target in mine) / each
            lag = _estimated(one, sorted(offset for offset, *_ in mine), count, share)
        found.append(_told(place, lag))
    return found


def _estimated(behind: _Behind, looked: Sequence[int], opened: int, share: float) -> Figure:
    """Estimate the lag of a partition from the first rows above its watermark.

    ``looked``: the offsets of these rows, of which ``opened`` are open. Delivered messages after them are assumed to be
    open at the same rate. Messages that were not delivered yet are open if they are for the group: ``share`` of them.
    """
    here = (len(looked) - 1) / max(1, looked[-1] - looked[0])
    place = behind.place
    there = behind.density if behind.few is not None and behind.few > looked[-1] else here
    delivered = max(0, min(place.scanned, place.newest) - looked[-1])
    fresh = place.newest - looked[-1] - delivered
    dense = (here + there) / 2
    more = dense * (delivered * opened / len(looked) + fresh * share)
    unsure = (delivered + fresh) * abs(here - there) / 2 + DEVIATIONS * more / math.sqrt(len(looked))
    return Figure(opened + max(1, round(more)), ABOUT, math.ceil(max(unsure, more * LEAST_ERROR)), opened)


def _told(place: Place, lag: Figure) -> PartitionLag:
    return PartitionLag(
        place.partition, key_of(place.partition), lag, place.acked, place.newest, place.owner,
        None if place.renewed_at is None else moment(place.renewed_at),
        None if place.moved_at is None else moment(place.moved_at),
    )  # fmt: skip
