"""Paths in a clone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / ".local"
"""All files that the launchers make. If you delete them, the launchers make them again."""


def make(directory: Path) -> Path:
    """Create the directory if necessary, and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory
