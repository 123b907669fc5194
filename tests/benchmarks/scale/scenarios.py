"""The scenarios with large numbers, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks import targets
from tests.benchmarks.speed.figures import Figures
from tests.benchmarks.speed.measuring import Bench

from . import balance, loads

SCALES: dict[str, Callable[[Bench], Figures]] = {
    targets.SUBSCRIBERS: balance.balance,
    targets.HISTORY: loads.history,
    targets.STUCK: loads.stuck_head,
    targets.UNEVEN: loads.uneven,
    targets.MEMORY: loads.memory,
    targets.TAKEOVER: loads.takeover,
}
