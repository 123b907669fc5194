"""Where things are in a clone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / ".local"
"""Everything that the launchers make. Deleting it costs time, nothing else."""


def make(directory: Path) -> Path:
    """The directory, existing."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory
