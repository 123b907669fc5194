"""A small disk for a server, so that a test can fill it. It is memory, mounted where the user may mount (root)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SIZE = 3 << 30
STEP = 1 << 22


@dataclass(frozen=True)
class Disk:
    directory: Path

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"

    def fill(self) -> None:
        """Fill the disk. Only blocks that files already have remain writable."""
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (STEP, 4096):
                with suppress(OSError):
                    while True:
                        ballast.write(b"\0" * size)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(directory: Path) -> Iterator[Disk | None]:
    """Mount the disk at ``directory`` while the block runs. Yield None if the user may not mount."""
    directory.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode:
        directory.rmdir()
        yield None
        return
    try:
        yield Disk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True)
        directory.rmdir()
