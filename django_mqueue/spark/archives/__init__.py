"""Archives: topics as Delta tables, which other tools can also read. See docs/reference/archive.md.

They cover archive runs, compaction, erasure, verification and reading, on a local disk or in an object store.
It imports its parent package, ``spark.reader``, ``spark.database``, ``spark.sql``, ``store`` and lower layers.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalog import Archive


def open_archive(path: str | os.PathLike[str] | None, as_of: int | datetime | None = None) -> Archive | None:
    """Open the archive and return it; None without a path. Raises ``NoArchive``."""
    from .catalog import Archive  # Needs Arrow, so it is imported late.

    return None if path is None else Archive.open(path, as_of=as_of)
