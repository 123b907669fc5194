"""Local files that hold message data.

Only this account can read them, and nothing is written through a symbolic link.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
"""Modes of new files and folders. An existing file or folder keeps its own mode."""


def create(path: Path) -> int:
    """Create a file and return its descriptor. Raises ``FileExistsError`` if anything is there, even a link."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)


def overwrite(path: str | os.PathLike[str], flags: int = 0) -> int:
    """Open a file for writing from its beginning, or create it. This is an ``opener`` for ``open``.

    Raises ``OSError`` for a symbolic link.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)


def refuse_links(top: Path, path: str) -> None:
    """Raise ``OSError`` if a folder on the way from ``top`` to ``path``, or ``path`` itself, is a symbolic link."""
    folder = top
    for part in Path(path).parts:
        folder /= part
        if folder.is_symlink():
            raise OSError(
                errno.ELOOP, "a symbolic link is not followed for writing: give a folder", str(folder)
            )
