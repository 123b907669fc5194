"""The child processes of a supervisor, as the tests see them."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import Worker
from tests.support.shop.models import Step


def pids(what: str = "start") -> set[int]:
    """Return the processes whose handlers have recorded this step."""
    return set(Step.objects.filter(what=what).values_list("pid", flat=True))


def running(pid: int) -> bool:
    """Return True unless the process has ended. An ended process may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    """Return the parent. Raise ``FileNotFoundError`` or ``ProcessLookupError`` if the process has ended."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(worker: Worker) -> set[int]:
    """Return the running children of a process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if parent(int(path.name)) == worker.pid and running(int(path.name)):
                found.add(int(path.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
