"""Whether a folder is free for an archive: nobody's files may be among an archive's."""

from __future__ import annotations

from .files import HIDDEN, Files

LOST_AND_FOUND = "lost+found"
"""Is on each new disk, and nobody else's."""


def held(files: Files) -> list[str]:
    """Files that the folder holds, those of one folder below it at least; none if it is free.

    What is hidden does not count: a run that was killed may have left it.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            there = [each for each in files.look(folder) if folder or _counts(each[0])]
        except PermissionError:
            if not folder:
                raise
            return [folder]  # Somebody else's, whatever it holds.
        if found := sorted(path for path, is_folder in there if not is_folder):
            return found
        waiting += sorted((path for path, is_folder in there if is_folder), reverse=True)
    return []


def _counts(path: str) -> bool:
    return not path.startswith(HIDDEN) and path != LOST_AND_FOUND
