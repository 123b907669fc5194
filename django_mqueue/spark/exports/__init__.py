"""Exports: write the rows of a batch of ``format("mqueue")`` to Parquet files, without passing through Spark's JVM."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import export as export
    from .export_run import Exported as Exported

_HOME = {"Exported": "export_run", "export": "api"}

__all__ = ["Exported", "export"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
