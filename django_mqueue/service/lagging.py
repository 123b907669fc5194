"""How far a group is behind, partition by partition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..policy.durations import moment
from ..policy.figures import ABOUT, EXACT, Figure, Lag, PartitionLag
from ..policy.names import key_of
from ..policy.sampling import DEVIATIONS, IN_FLIGHT, LEAST_ERROR, PENDING, WAITING, cut, figure
from ..store import history, session, standing
from ..store.standing import FEW, Place
from . import partitions
from .derived import more_than
from .loading import batches
from .surveying import Surveyor, size_for

MOST = 6_000
"""Partitions that are looked at where a topic has too many to look at all."""
ROWS = 5_000
"""Rows of all partitions that are counted one by one."""
STEP = 60_000
PLACES = 100
"""Of the log that are looked at to meet partitions."""


def lag(using: str, topic: str, group: str, limit: int, exact: int | None = None) -> Lag:
    with session.explained(using):
        registered = standing.registrations(using, [topic], [group]).get((topic, group))
        surveyor = Surveyor(using, size_for(1, exact))
        end = surveyor.ends(topic)
        if registered is None or end is None:
            return Lag(topic, group, Figure(0), (), 0, False)
        start = registered.start
        surveyor.read(topic, cut(end.first, end.last + 1, PLACES), 1)
        seen = surveyor.partitions_seen(topic)
        known = standing.known_names(using, group, topic, partitions.NAMED + 1)
        names = partitions.all_names(using, topic, known | seen)
        look = partitions.look(using, group, topic, start, names, seen, MOST)
        chosen = sorted(look.behind, key=lambda one: -_guess(one))
        rows = exact or ROWS
        if sum(map(_guess, chosen)) > rows / 2:
            # Twice as many as are asked for: which have the most is known when they are counted.
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
        behind = len(look.behind) - (len(chosen) - len(found))
        return Lag(topic, group, total, tuple(found[:limit]), behind, not look.all)


def _guess(place: Place) -> float:
    """About how many messages are above a watermark, from how dense the last ones are."""
    if place.few is None or place.few <= place.acked:
        return FEW / 2
    return FEW + (place.few - place.acked) * _density(place)


def _density(place: Place) -> float:
    assert place.few is not None
    return FEW / max(1, place.newest - place.few)


def _counted(using: str, topic: str, group: str, places: Sequence[Place], each: int) -> list[PartitionLag]:
    rows: dict[str, list[history.Place]] = {place.partition: [] for place in places}
    opened: dict[str, int] = dict.fromkeys(rows, 0)
    for some in batches(places):
        above = [(place.partition, place.acked) for place in some]
        read = history.undelivered(using, topic, above, each)
        for row in read:
            rows[row[1]].append(row)
        for one in partitions.open_ones(using, group, read, {}):
            opened[one.partition] += 1
    found = []
    for place in places:
        mine, count = rows[place.partition], opened[place.partition]
        lag = Figure(count, least=count)
        if len(mine) == each and max(row[0] for row in mine) < place.newest:
            share = sum(target in ("", group) for *_, target in mine) / each
            lag = _estimated(place, sorted(offset for offset, *_ in mine), count, share)
        found.append(_told(place, lag))
    return found


def _estimated(place: Place, looked: Sequence[int], opened: int, share: float) -> Figure:
    """The first offsets above the watermark, so many of which are open, tell of the rest, as far as it has been
    delivered; behind that all is open but what is for others. ``share``: of the messages that are for the group."""
    here = (len(looked) - 1) / max(1, looked[-1] - looked[0])
    there = _density(place) if place.few is not None and place.few > looked[-1] else here
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
