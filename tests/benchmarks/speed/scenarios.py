"""The scenarios: what is published, how the worker runs, and which plain SQL is the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Drain:
    """A worker handles ``count`` messages over ``keys`` keys. ``floor``: the method of ``Floor`` to compare with."""

    name: str
    count: int
    keys: int
    floor: str
    threads: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)


DRAINS = (
    Drain("one message a call", 20_000, 100, "lots"),
    Drain("one message a call, one thread", 10_000, 100, "lots", 1),
    Drain("one message a call, one key", 10_000, 1, "lots"),
    Drain("batches of 200", 40_000, 100, "lots", options={"batch": True, "batch_size": 200}),
    Drain("atomic", 4_000, 100, "atomic", options={"atomic": True}),
    Drain("atomic, one thread", 2_000, 100, "atomic", 1, {"atomic": True}),
    Drain("strict, one key", 2_000, 1, "strict", options={"strict": True}),
    Drain("strict, 1,000 keys", 10_000, 1_000, "lots", options={"strict": True}),
)
CURVES: dict[str, dict[int, Drain]] = {
    "batch size": {
        size: Drain(f"curve: batches of {size}", 20_000, 100, "lots", 4, {"batch": True, "batch_size": size})
        for size in (10, 50, 200, 1000)
    },
    "threads": {
        count: Drain(f"curve: {count} threads", 10_000, 100, "lots", count) for count in (1, 2, 4, 8)
    },
}
"""Drains by the value that changes."""
PUBLISHERS = {1: "publish, 1 connection", 4: "publish, 4 connections"}
"""Names by the number of connections."""
MANY, PROCESSES, WAKING = "publish_many of 500", "handlers that compute", "publish with wake-ups"
PUBLISHERS_CURVE = {1: "curve: publish, 1 connection"} | {
    n: f"curve: publish, {n} connections" for n in (2, 4, 8)
}
FLOORS = {"update": (1_000, 100), "lots": (20_000, 100), "atomic": (1_000, 100), "strict": (1_000, 1)}
"""The number of messages and keys for each method of ``Floor``."""

FLOORS_NAME = "plain SQL"

RATES = {10: 10.0, 100: 5.0}
"""Messages a second, for the latency from commit to handler, and for how many seconds."""
IDLE = 10.0
"""Seconds in which the statements of an idle worker are counted: a whole interval of its periodic work."""
PARTITIONS = (20, 5_020)
"""Partitions of an idle worker."""


def shortened(seconds: float, size: float) -> float:
    """Return the seconds of a scenario if the run has a part of the usual size: at least 2."""
    return max(seconds * size, 2.0)


def payload(number: int) -> dict[str, Any]:
    """Return a payload of about 300 bytes."""
    return {
        "n": number,
        "order": f"order-{number:010}",
        "customer": number * 7919 % 5000,
        "note": "to be delivered in the afternoon, to a neighbour if nobody is there. " * 3,
    }
