"""A directory for one server. The next run removes the directories of killed runs."""

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
"""The kernel's limit for a socket's path, less the suffix of the lock file that MySQL puts next to it."""


@dataclass(frozen=True)
class Scratch:
    """The directories of one server.

    ``lock``: the descriptor of a locked file. While a process holds or has inherited it, the directory is in use.
    """

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
    """Create a new directory, and remove it after the block."""
    with locked(make(home) / ".lock"):
        _remove_abandoned(home)
        directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=home))
        lock = try_lock(directory / "lock")
        assert lock is not None, "no other process knows the directory"
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
        except (FileNotFoundError, NotADirectoryError):
            continue  # Its owner is removing it, or this is the home's lock file.
        if lock is not None:
            _remove(directory)
            os.close(lock)


def _remove(directory: Path) -> None:
    elsewhere = directory / "sockets"
    if elsewhere.is_symlink():
        shutil.rmtree(elsewhere.readlink(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
