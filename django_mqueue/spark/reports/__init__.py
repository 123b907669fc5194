"""Reports on topics in numbers, from the live log, an archive, or both; see docs/reference/report.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .making import report as report
    from .result import Report as Report

_HOME = {"Report": "result", "report": "making"}

__all__ = ["Report", "report"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
