"""A directory for one server's life. What a killed run left behind is removed by the next."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .layout import LOCAL, make
from .locks import locked, try_lock

HOME = LOCAL / "servers"
SOCKET_PATH_MAX = 107 - len(".lock")
"""The kernel's limit for a socket's path, with room for the lock file that MySQL puts beside it."""


@dataclass(frozen=True)
class Scratch:
    """``lock`` is an open, locked file: who holds it, or inherited it, says that the directory is in use."""

    directory: Path
    sockets: Path
    lock: int

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def socket(self) -> Path:
        return self.sockets / "s"


@contextmanager
def scratch(kind: str, home: Path = HOME) -> Iterator[Scratch]:
    """A fresh directory, removed at the end."""
    with locked(make(home) / ".lock"):
        _remove_abandoned(home)
        directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=home))
        lock = try_lock(directory / "lock")
        assert lock is not None, "nobody else knows this directory yet"
    sockets = directory
    if len(os.fsencode(directory / "s")) > SOCKET_PATH_MAX:
        sockets = Path(tempfile.mkdtemp(prefix="mqueue-"))
        (directory / "sockets").symlink_to(sockets)
    try:
        yield Scratch(directory, sockets, lock)
    finally:
        _remove(directory)
        os.close(lock)


def _remove_abandoned(home: Path) -> None:
    for directory in home.iterdir():
        try:
            lock = try_lock(directory / "lock")
        except (
            FileNotFoundError,
            NotADirectoryError,
        ):  # its owner removes it at this moment; the home's lock
            continue
        if lock is not None:
            _remove(directory)
            os.close(lock)


def _remove(directory: Path) -> None:
    elsewhere = directory / "sockets"
    if elsewhere.is_symlink():
        shutil.rmtree(elsewhere.readlink(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
