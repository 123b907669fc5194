"""All walks: importing this module registers them."""

from __future__ import annotations

from . import (
    walks_batches,
    walks_claims,
    walks_dead_letters,
    walks_following,
    walks_handlers,
    walks_hooks,
    walks_leases,
    walks_moving,
    walks_positions,
    walks_publish,
    walks_requests,
    walks_runner,
    walks_schedule,
    walks_settlements,
    walks_topics,
    walks_worklists,
)
from .walks import WALKS

__all__ = [
    "WALKS",
    "walks_batches",
    "walks_claims",
    "walks_dead_letters",
    "walks_following",
    "walks_handlers",
    "walks_hooks",
    "walks_leases",
    "walks_moving",
    "walks_positions",
    "walks_publish",
    "walks_requests",
    "walks_runner",
    "walks_schedule",
    "walks_settlements",
    "walks_topics",
    "walks_worklists",
]
