"""Figures of a scenario, by name, and how they are computed from counts and times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

Figures = dict[str, float]
PERCENTILES = (50, 95, 99)


def per_message(cost: Mapping[str, float], count: int) -> Figures:
    """Return a meter's counts for each message: statements and commits if it counted them, and CPU in milliseconds."""
    found = {f"{name} per message": cost[name] / count for name in ("statements", "commits") if name in cost}
    return found | {
        f"{of} CPU ms per message": cost[f"{of}_cpu"] * 1000 / count for of in ("worker", "server")
    }


def percentiles(values: Sequence[float]) -> Figures:
    """Return p50, p95 and p99 of times in milliseconds. Each is a measured value (nearest rank)."""
    ordered = sorted(values)
    return {f"p{part} ms": ordered[-(-len(ordered) * part // 100) - 1] for part in PERCENTILES}


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the rounds. Each round has the same figures."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
