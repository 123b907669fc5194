"""Order a death from the zygote, and wait until the server has noticed it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from example_project.environment.lineage import die_with_parent
from tests.support.processes import ROOT, database_url
from tests.support.transactions import wait_until


@dataclass(frozen=True)
class Death:
    """The end of one process: it was killed at a boundary, or it ``completed`` and exited without closing anything."""

    completed: bool
    boundaries: int
    phase: str
    statement: str
    heard: list[tuple[int, int]]
    """(payload, attempt) of each message that its handlers received."""
    commits: list[int]
    """If ``completed``: the numbers of the boundaries at which a commit is sent and its response is not read."""

    def __str__(self) -> str:
        return "after the operation" if self.completed else f"{self.phase} {self.statement!r}"


class Zygote:
    """A process that forks one child for each death."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process, self._errors = process, errors

    def walk(self, name: str, topic: str, die_at: int | None) -> Death:
        """Let a child operate and die at that boundary. Return once the server has ended its transactions."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"walk": name, "topic": topic, "die_at": die_at}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the zygote has died:\n{self._errors.read_text()[-4000:]}"
        answer = json.loads(line)
        said: dict[str, Any] = answer["said"]
        assert "error" not in said, said["error"]
        completed = "boundaries" in said
        assert answer["status"] == (0 if completed else -signal.SIGKILL), answer
        ids = said["connections"]
        wait_until(
            lambda: not _still_there(ids), "the server ends the dead process's connections", every=0.001
        )
        heard = [(payload, attempt) for payload, attempt in said["heard"]]
        where = said.get("phase", ""), said.get("statement", "")
        return Death(completed, said.get("boundaries", 0), *where, heard, said.get("commits", []))


@contextmanager
def zygote(mqueue: dict[str, Any]) -> Iterator[Zygote]:
    """Start a zygote on the test database with this ``MQUEUE`` setting."""
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.support.worker_settings",
        "DATABASE_URL": database_url(),
        "TEST_MQUEUE": json.dumps(mqueue),
    }
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.protocol.boundaries.zygote"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        with process:
            try:
                yield Zygote(process, Path(errors.name))
            finally:
                process.kill()


def _still_there(ids: list[int]) -> bool:
    if not ids:
        return False
    with connection.cursor() as cursor:
        marks = ", ".join(["%s"] * len(ids))
        cursor.execute(f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID IN ({marks})", ids)
        return bool(cursor.fetchone()[0])
