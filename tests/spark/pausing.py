"""The command ``django_mqueue.spark``, which waits forever before it commits the table in ``MQUEUE_TEST_PAUSE_BEFORE``.

Run it as ``python -m tests.spark.pausing VERB …`` and kill it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from django_mqueue.spark.archives.tables import Snapshot
from django_mqueue.spark.cli import main

PAUSE_BEFORE = "MQUEUE_TEST_PAUSE_BEFORE"


def pause_before(table: str) -> None:
    commit = Snapshot.commit

    def committing(self: Snapshot, *arguments: Any) -> Snapshot:
        if self.table == table:
            threading.Event().wait()
        return commit(self, *arguments)

    Snapshot.commit = committing  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    pause_before(os.environ[PAUSE_BEFORE])
    sys.exit(main())
