"""A mutation: a guard that is removed from the code by exact replacements of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Replaces ``old`` with ``new``. ``file`` (below ``django_mqueue/``) must contain ``old`` exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """A guard that is removed. ``without`` is the consequence, and each of ``tests`` must fail."""

    guard: str
    without: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def changes_tables(self) -> bool:
        """Return True if it changes the tables, so that it needs a database of its own."""
        return any(edit.file.startswith("migrations/") for edit in self.edits)


def mutation(guard: str, without: str, file: str, old: str, new: str, *tests: str) -> Mutation:
    """Return a mutation with a single edit."""
    return Mutation(guard, without, (Edit(file, old, new),), tests)
