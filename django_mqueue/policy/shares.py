"""How many partitions each subscriber should own."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32


def fair_share(partitions: int, members: Sequence[str], me: str) -> int:
    """My part of ``partitions``, by rank in the sorted names: floor, and one more for the first remainder.

    12 over 5 is 3, 3, 2, 2, 2: any two members differ by at most one. A member that is not in ``members``
    (not yet seen by itself) has no share.
    """
    ranked = sorted(set(members))
    if me not in ranked:
        return 0
    whole, rest = divmod(partitions, len(ranked))
    return whole + (1 if ranked.index(me) < rest else 0)


def by_rank(partition: str, members: Sequence[str]) -> str | None:
    """Return the member that takes a new partition: all members find the same one without a word between them."""
    return members[crc32(partition.encode()) % len(members)] if members else None
