"""A Spark source and sink for the log (extra ``[spark]``: PySpark 4.2 or newer).

``format("mqueue")`` reads topics, dead letters and delivery state, in batches and as a stream. It appends to topics.
The package needs no Django settings where it runs (see ``connecting``). It imports PySpark only when a caller uses a
name that needs Spark. It imports ``service``, ``protocol``, ``store`` and lower layers. Only its command also imports
``checks`` and ``command``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .archives.archive_run import archive as archive
    from .archives.catalog import Archive as Archive
    from .archives.rewriting import compact as compact
    from .archives.rewriting import erase as erase
    from .archives.verifying import verify as verify
    from .collecting import collect_all as collect_all
    from .explaining import explained as explained
    from .exports.export_run import export as export
    from .launching import session as session
    from .launching import settings_options as settings_options
    from .reader.source import MQueueDataSource as MQueueDataSource
    from .replays.backfills import backfill as backfill
    from .replays.replay_run import replay as replay
    from .reports import Report as Report
    from .reports import report as report
    from .writer.ordering import keep_order as keep_order

_HOME = {
    "Archive": "archives.catalog",
    "archive": "archives.archive_run",
    "compact": "archives.rewriting",
    "MQueueDataSource": "reader.source",
    "Report": "reports",
    "collect_all": "collecting",
    "keep_order": "writer.ordering",
    "report": "reports",
    "backfill": "replays.backfills",
    "explained": "explaining",
    "erase": "archives.rewriting",
    "export": "exports.export_run",
    "replay": "replays.replay_run",
    "session": "launching",
    "settings_options": "launching",
    "verify": "archives.verifying",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
