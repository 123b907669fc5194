"""What a mutation is: a guard taken out of the code, by exact replacements of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """``old``, which stands in ``file`` (below ``django_mqueue/``) exactly once, becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """One guard less. ``without``: what goes wrong then. ``tests``: each of them fails."""

    guard: str
    without: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def changes_tables(self) -> bool:
        """Whether its tables are others, so that it needs a database of its own."""
        return any(edit.file.startswith("migrations/") for edit in self.edits)


def mutation(guard: str, without: str, file: str, old: str, new: str, *tests: str) -> Mutation:
    """One with a single edit."""
    return Mutation(guard, without, (Edit(file, old, new),), tests)
