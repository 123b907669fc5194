"""The number of partitions that each subscriber should own."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32


def fair_share(partitions: int, members: Sequence[str], member: str) -> int:
    """Return the number of partitions for ``member``: the quotient, and 1 more for the first members.

    12 partitions for 5 members are 3, 3, 2, 2, 2: two members differ by at most 1. Members are sorted by name. A member
    that is not yet in ``members`` gets 0.
    """
    ranked = sorted(set(members))
    if member not in ranked:
        return 0
    quotient, remainder = divmod(partitions, len(ranked))
    return quotient + (1 if ranked.index(member) < remainder else 0)


def takes_new(partition: str, rank: int, members: int, turn: int = 0) -> bool:
    """Return whether the member with this rank takes a new partition. Members decide it without communication.

    At first, a hash of the name selects one member. With each ``turn`` that leaves the partition free, eight times
    as many members may take it.
    """
    return (rank - crc32(partition.encode())) % members < 1 << 3 * min(turn, 9)
