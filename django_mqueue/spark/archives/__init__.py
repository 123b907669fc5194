"""Archives: topics as Delta tables, which other tools can also read. See docs/reference/archive.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import archive as archive
    from .api import compact as compact
    from .api import erase as erase
    from .api import verify as verify
    from .archive_run import Archived as Archived
    from .catalog import Archive as Archive
    from .rewriting import Compacted as Compacted
    from .rewriting import Erased as Erased
    from .verifying import Verified as Verified

_HOME = {
    "Archive": "catalog",
    "Archived": "archive_run",
    "Compacted": "rewriting",
    "Erased": "rewriting",
    "Verified": "verifying",
    "archive": "api",
    "compact": "api",
    "erase": "api",
    "verify": "api",
}

__all__ = [
    "Archive",
    "Archived",
    "Compacted",
    "Erased",
    "Verified",
    "archive",
    "compact",
    "erase",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
