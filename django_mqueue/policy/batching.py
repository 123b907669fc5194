"""Batches of items that fit into one statement, one transaction or one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

PER_STATEMENT = 200
"""Maximum number of partitions, or of receipts, in one statement. A longer one is slower than several short ones."""
BYTES_PER_STATEMENT = 4 * 1_048_576
"""Maximum bytes of the messages that one statement or transaction reads or writes. A larger one has its own."""

Item = TypeVar("Item")


def batches(items: Sequence[Item], size: int = PER_STATEMENT) -> Iterator[Sequence[Item]]:
    """Yield slices of ``size`` items; the last one may be shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def batches_by_weight(
    items: Iterable[Item], weight: Callable[[Item], int], most: int, count: int | None = None
) -> Iterator[list[Item]]:
    """Yield lists of successive items whose weights are at most ``most`` in total. A heavier item has its own list.

    ``count``: the maximum number of items in a list.
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        added = weight(item)
        if batch and (len(batch) == count or total + added > most):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += added
    if batch:
        yield batch
