"""Local files that hold message data.

Only this account can read them, and nothing is written through a symbolic link.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
"""Modes of new files and folders. An existing file or folder keeps its own mode."""


def opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for ``open``. A new file is for this account only. Raises ``OSError`` for a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE)


def refuse_links(top: Path, path: str) -> None:
    """Raise ``OSError`` if a folder on the way from ``top`` to ``path``, or ``path`` itself, is a symbolic link."""
    folder = top
    for part in Path(path).parts:
        folder /= part
        if folder.is_symlink():
            raise OSError(
                errno.ELOOP, "a symbolic link is not followed for writing: give a folder", str(folder)
            )
