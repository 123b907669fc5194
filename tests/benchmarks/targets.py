"""The targets of the scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.benchmarks.speed.figures import Figures
from tests.benchmarks.speed.scenarios import MANY, PUBLISHERS, WAKING

RATE, PLAIN, GATED = "messages per second", "of plain SQL", "of plain SQL with the gate"
STATEMENTS, COMMITS = "statements per message", "commits per message"


@dataclass(frozen=True)
class Target:
    """A limit for a figure of a scenario, or for the quotient of the figure and the same figure of another one.

    ``least``: the limit is a minimum. ``of``: the other scenario.
    """

    scenario: str
    figure: str
    limit: float
    least: bool = False
    of: str | None = None

    @property
    def name(self) -> str:
        return f"{self.figure}, compared with {self.of}" if self.of else self.figure

    def value(self, measured: Mapping[str, Figures]) -> float | None:
        """Return the measured value, or None if a scenario was not measured."""
        found = measured.get(self.scenario, {}).get(self.figure)
        other = measured.get(self.of, {}).get(self.figure) if self.of else 1.0
        return None if found is None or other is None else found / other

    def met(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit


DRAIN = "one message a call"
SUBSCRIBERS = "scale: 200 subscribers, 5,000 partitions"
HISTORY = "scale: a long history"
STUCK = "scale: a stuck head"
UNEVEN = "scale: one large partition and 999 small ones"
MEMORY = "scale: memory of a worker"
TAKEOVER = "scale: restart after a kill"

TARGETS = (
    Target(DRAIN, PLAIN, 0.6, least=True),
    Target(DRAIN, RATE, 20, least=True, of="dj-queue"),
    Target(f"{DRAIN}, one thread", RATE, 0.95, least=True, of=DRAIN),
    Target(f"{DRAIN}, one key", RATE, 0.8, least=True, of=DRAIN),
    Target("batches of 200", PLAIN, 1, least=True),
    Target("atomic", PLAIN, 2, least=True),
    Target("atomic", STATEMENTS, 3),
    Target("atomic", COMMITS, 1.15),
    Target("atomic, one thread", PLAIN, 0.8, least=True),
    Target("strict, one key", PLAIN, 0.8, least=True),
    Target("strict, one key", STATEMENTS, 3),
    Target("strict, one key", COMMITS, 1.05),
    Target("strict, 1,000 keys", RATE, 0.7, least=True, of=DRAIN),
    *(Target(name, PLAIN, 0.85, least=True) for name in PUBLISHERS.values()),
    Target(MANY, GATED, 0.85, least=True),
    Target(WAKING, "time with wake-ups", 1.03),
    Target(WAKING, "with one for each", 1.03),
    *(
        Target(f"latency at {rate}/s", f"p{part} ms", limit)
        for rate in (10, 100)
        for part, limit in ((50, 10), (99, 50))
    ),
    *(Target(f"idle with {count} partitions", "statements per second", 5) for count in ("20", "5,020")),
    Target(SUBSCRIBERS, "renewals until balanced", 2),
    Target(SUBSCRIBERS, "seconds after the lease until owned again", 3),
    Target(HISTORY, "of an empty log", 0.9, least=True),
    Target(STUCK, "of an empty log", 0.9, least=True),
    Target(UNEVEN, "longest ms", 1000),
    Target(MEMORY, "MiB grown", 10),
    Target(TAKEOVER, "seconds until handled again", 3),
    Target(TAKEOVER, "seconds until 500 are handled", 3),
)
