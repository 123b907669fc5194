"""Store messages of an archive, and of the log above it, again as copies.

The copies are for all groups, for one group, or for a new group that gets the past of the topic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backfills import backfill as backfill
    from .replay_run import replay as replay

_HOME = {"backfill": "backfills", "replay": "replay_run"}

__all__ = ["backfill", "replay"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
