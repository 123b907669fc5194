"""The targets of the scenarios with large numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.speed.figures import Figures


@dataclass(frozen=True)
class Target:
    """``limit``: a number, or the name of another figure, plus ``more``. ``least``: the limit is a minimum."""

    figure: str
    limit: float | str
    more: float = 0
    least: bool = False

    def met(self, figures: Figures) -> bool:
        found, limit = figures[self.figure], self.value(figures)
        return found >= limit if self.least else found <= limit

    def value(self, figures: Figures) -> float:
        return (figures[self.limit] if isinstance(self.limit, str) else self.limit) + self.more


SUBSCRIBERS, HISTORY, STUCK, UNEVEN, MEMORY = (
    "scale: 200 subscribers, 5,000 partitions",
    "scale: a long history",
    "scale: a stuck head",
    "scale: one large partition and 999 small ones",
    "scale: memory of a worker",
)
TARGETS: dict[str, tuple[Target, ...]] = {
    SUBSCRIBERS: (
        Target("seconds until balanced", "two renewals, seconds"),
        Target("seconds until owned again", "the lease, seconds", 3),
    ),
    HISTORY: (Target("of an empty log", 0.9, least=True),),
    STUCK: (Target("of an empty log", 0.9, least=True),),
    UNEVEN: (Target("longest ms", 1000),),
    MEMORY: (Target("MiB grown", 10),),
}
