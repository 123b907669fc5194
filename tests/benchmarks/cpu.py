"""CPU seconds of this process's descendants by kind, and of a server. Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """Counts CPU seconds since its creation. A process that has ended is counted with its parent."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._begun = self._now()

    def read(self) -> dict[str, float]:
        """Return the seconds since the creation, by part."""
        return {part: seconds - self._begun.get(part, 0.0) for part, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        found = {"server": _spent(self._server)[1], "JVM": 0.0, "Python": 0.0}
        processes: dict[int, tuple[int, float, str]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                processes[int(path.name)] = (*_spent(int(path.name)), (path / "comm").read_text().strip())
        own, news = set[int](), {os.getpid()}
        while news:
            own |= news
            news = {pid for pid, (parent, *_) in processes.items() if parent in news} - own - {self._server}
        for pid in own - {os.getpid()}:
            _, seconds, name = processes[pid]
            found["JVM" if name == "java" else "Python"] += seconds
        return found


def _spent(pid: int) -> tuple[int, float]:
    """Return a process's parent, and the CPU seconds of the process and its ended children."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS
