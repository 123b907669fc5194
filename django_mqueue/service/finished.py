"""Up to where nothing is delivered any more: whose delivery history will not change."""

from __future__ import annotations

from ..store import unfinished
from .registration import last_before


def finished_upto(using: str, topic: str, above: int, upto: int, age_ms: int) -> int:
    """Up to which offset all registered groups are done with the messages above ``above``, or these are so old.

    At most ``upto``, which must be settled. A message that is held up for longer than ``age_ms`` holds up nothing else.
    Groups that read the log by themselves do not count: nothing is delivered to them.
    """
    groups = unfinished.groups(using, topic)
    if not groups or above >= upto:
        return max(above, upto)
    old = max(above, last_before(using, topic, unfinished.now_ms(using) - age_ms, upto))
    for group, start in groups.items():
        first = unfinished.first(using, topic, group, max(old, start), upto)
        upto = upto if first is None else first - 1
    return max(old, upto)
