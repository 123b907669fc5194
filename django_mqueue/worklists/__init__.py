"""Worklists: work items that people or handlers finish. An optional app.

Add ``django_mqueue.worklists`` to ``INSTALLED_APPS``. A worklist consumes a topic: each message becomes a work item, in
the transaction that acknowledges the message. It imports ``admin``, ``command`` and lower layers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .states import ItemChanged, State, TransitionNotAllowed, WorklistError

if TYPE_CHECKING:
    from .declaring import worklist
    from .models import WorkItem, WorkStep
    from .registry import Worklist
    from .searching import find
    from .steps import bulk

__all__ = [
    "ItemChanged", "State", "TransitionNotAllowed", "WorkItem", "WorkStep", "Worklist", "WorklistError", "bulk", "find",
    "worklist",
]  # fmt: skip

_MODULES = {
    "WorkItem": "models",
    "WorkStep": "models",
    "Worklist": "registry",
    "bulk": "steps",
    "find": "searching",
    "worklist": "declaring",
}


def __getattr__(name: str) -> Any:
    """Import names of modules with models on first use, when Django's app registry is ready."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
