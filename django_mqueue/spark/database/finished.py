"""Find the offset up to which the delivery history of a topic is final."""

from __future__ import annotations

from ...service.registration import last_before
from ...store import offsets
from ...store.queries import group_rows, partition_progress


def finished_upto(using: str, topic: str, above: int, upto: int, age_ms: int) -> int:
    """Return the offset up to which all registered groups are done with the messages above ``above``.

    ``upto`` must be settled. The result lies between ``above`` and ``upto``. A message that is older than ``age_ms``
    milliseconds counts as done. Groups that read the log themselves do not count: nothing is delivered to them.
    """
    groups = offsets.delivery_starts(using, topic)
    if not groups or above >= upto:
        return max(above, upto)
    old = max(above, last_before(using, topic, group_rows.now_ms(using) - age_ms, upto))
    for group, start in groups.items():
        first = partition_progress.first_above_watermark(using, topic, group, max(old, start), upto)
        upto = upto if first is None else first - 1
    return max(old, upto)
