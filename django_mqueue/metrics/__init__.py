"""Metrics for Prometheus. They need the package ``prometheus-client`` (the extra ``prometheus``).

``view`` returns the metrics of the database, for the urls of a project. ``runconsumer --metrics-port`` also returns the
measurements of its workers. docs/reference/metrics.md lists all metrics.
It imports ``stats``, ``instruments`` and lower layers. It imports the optional package only on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .database import DatabaseCollector as DatabaseCollector
    from .views import view as view

_HOME = {"DatabaseCollector": "database", "view": "views"}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because it needs an optional package."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ImportError(
            "django_mqueue.metrics needs the package prometheus-client: install the extra django-mqueue[prometheus]"
        ) from error
