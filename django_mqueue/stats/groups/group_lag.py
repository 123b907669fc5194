"""The lag of a group, in total and by partition."""

from __future__ import annotations

from collections.abc import Sequence

from ...policy.durations import moment_or_none
from ...policy.names import key_of
from ...store import removal
from ...store.connection import session
from ...store.queries import group_summaries, partition_progress
from ...store.queries.partition_progress import PartitionSearch, Progress
from ..results import AT_LEAST, Figure, Lag, PartitionLag, cap_for, total
from .backlog import PARTITIONS_READ, backlogs, read_positions

LIKELY = 200
"""The number of partitions whose lag is counted, or twice the requested number if that is more."""
ROWS = 3_000
"""The default number of rows that are counted, of all partitions together."""


def lag(using: str, topic: str, group: str, limit: int, count_limit: int | None) -> Lag:
    """Return the lag of a group: the total, and the ``limit`` partitions with the most messages."""
    pair = (topic, group)
    with session.raises_not_migrated(using):
        registered = group_summaries.registrations(using, [topic], [group]).get(pair)
        removing = registered.resetting if registered else pair in removal.unfinished_among(using, [pair])
        if registered is None or removing:
            return Lag(topic, group, Figure(0), (), 0, False, removing)
        starts = {pair: registered.start}
        backlog = backlogs(using, starts, count_limit or cap_for(1))[pair]
        found = backlog.positions or read_positions(using, starts, PARTITIONS_READ)[pair]
        # A longer range of offsets above the watermark can hold more messages.
        likely = sorted(found.behind, key=lambda one: one.acked - one.newest)[: max(LIKELY, 2 * limit)]
        counted = _counted(using, topic, group, likely, count_limit or ROWS)
        shown = sorted(
            (one for one in likely if counted[one.partition].value),
            key=lambda one: (-counted[one.partition].value, one.partition),
        )
        behind = len(found.behind) - len(likely) + len(shown)
        rows = _rows(using, topic, group, shown[:limit], counted)
    every = total([backlog.pending, backlog.in_flight, backlog.waiting])
    return Lag(topic, group, every, tuple(rows), behind, found.is_partial)


def _counted(using: str, topic: str, group: str, behind: Sequence[Progress], rows: int) -> dict[str, Figure]:
    """Count the open messages of each partition: a share of ``rows`` is read of each."""
    each = max(10, rows // max(1, len(behind)))
    searches = [(PartitionSearch(topic, group, one.partition, one.acked), each) for one in behind]
    found = {}
    for one, count in zip(behind, partition_progress.count_open(using, searches), strict=True):
        is_more = count.rows_read == each and count.last < one.newest
        found[one.partition] = Figure(count.opened, AT_LEAST) if is_more else Figure(count.opened)
    return found


def _rows(
    using: str, topic: str, group: str, shown: Sequence[Progress], counted: dict[str, Figure]
) -> list[PartitionLag]:
    names = [one.partition for one in shown]
    states = partition_progress.partition_states(using, group, topic, names) if names else {}
    rows = []
    for one in shown:
        state = states[one.partition]
        rows.append(
            PartitionLag(
                one.partition, key_of(one.partition), counted[one.partition], one.acked, one.newest, state.owner,
                moment_or_none(state.renewed_at), moment_or_none(state.moved_at),
            )
        )  # fmt: skip
    return rows
