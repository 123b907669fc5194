"""The command ``django_mqueue.spark``, which waits before a step of a run.

``MQUEUE_TEST_PAUSE_BEFORE`` names the step and how many of its kind are done before, as in ``deliveries 1``. The step
is the commit of a table, or ``group``, the move of the group. The command waits until the file at
``MQUEUE_TEST_PAUSE_UNTIL`` exists. Run it as ``python -m tests.spark.pausing VERB …``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_mqueue.spark.archives.archive_run import Run
from django_mqueue.spark.archives.tables import Snapshot
from django_mqueue.spark.cli import main

PAUSE_BEFORE, PAUSE_UNTIL = "MQUEUE_TEST_PAUSE_BEFORE", "MQUEUE_TEST_PAUSE_UNTIL"


def pause_before(step: str, done: int, door: Path) -> None:
    left = done

    def reach(this: str) -> None:
        nonlocal left
        if this == step:
            while not left and not door.exists():
                threading.Event().wait(0.02)
            left -= 1

    commit: Callable[..., Any] = Snapshot.commit
    move: Callable[..., Any] = Run._move

    def committing(self: Snapshot, *arguments: Any) -> Snapshot:
        reach(self.table)
        return commit(self, *arguments)  # type: ignore[no-any-return]

    def moving(self: Run, *arguments: Any) -> None:
        reach("group")
        move(self, *arguments)

    Snapshot.commit = committing  # type: ignore[assignment,method-assign]
    Run._move = moving  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    step, _, done = os.environ[PAUSE_BEFORE].partition(" ")
    pause_before(step, int(done or 0), Path(os.environ[PAUSE_UNTIL]))
    sys.exit(main())
