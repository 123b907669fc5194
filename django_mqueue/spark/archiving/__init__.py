"""Topics kept as Parquet files, with manifests that say what belongs to them; see docs/reference/archive.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog import Archive as Archive
    from .checking import Verified as Verified
    from .checking import verify as verify
    from .compacting import Compacted as Compacted
    from .compacting import compact as compact
    from .running import Archived as Archived
    from .running import archive as archive

_HOME = {
    "Archive": "catalog",
    "Archived": "running",
    "Compacted": "compacting",
    "Verified": "checking",
    "archive": "running",
    "compact": "compacting",
    "verify": "checking",
}

__all__ = ["Archive", "Archived", "Compacted", "Verified", "archive", "compact", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
