"""Topics kept as Parquet files, with manifests that say what belongs to them; see docs/reference/archive.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import archive as archive
    from .calls import compact as compact
    from .calls import verify as verify
    from .catalog import Archive as Archive
    from .checking import Verified as Verified
    from .compacting import Compacted as Compacted
    from .running import Archived as Archived

_HOME = {
    "Archive": "catalog",
    "Archived": "running",
    "Compacted": "compacting",
    "Verified": "checking",
    "archive": "calls",
    "compact": "calls",
    "verify": "calls",
}

__all__ = ["Archive", "Archived", "Compacted", "Verified", "archive", "compact", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
