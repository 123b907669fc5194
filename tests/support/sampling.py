"""Choose the part of an exhaustive test that one run executes.

A run with ``--sample SEED`` executes a part that depends on the seed alone. A run without it executes everything.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

Choice = TypeVar("Choice")


def sample(
    seed: str | None, subject: str, choices: Sequence[Choice], one_in: int, always: Collection[Choice] = ()
) -> list[Choice]:
    """Return the choices that this run tests, in their order.

    ``seed`` None: all of them. Otherwise those in ``always``, and about one in ``one_in`` of the others. ``subject``
    names the test, so that two tests with the same seed take different choices.
    """
    if seed is None:
        return list(choices)
    random = Random(f"{seed} {subject}")
    return [choice for choice in choices if random.randrange(one_in) == 0 or choice in always]


def first_of(seed: str | None, subject: str, step: int) -> int:
    """Return where a walk that takes each ``step``-th choice begins: 0 without a seed."""
    return 0 if seed is None else Random(f"{seed} {subject}").randrange(step)


def number_of(seed: str) -> int:
    """Return the number that a seed stands for, between 0 and 2**32."""
    return Random(seed).randrange(2**32)


def changed_files(base: str) -> set[str]:
    """Return the files that differ from the commit ``base``, also by what is not committed, below the project's root.

    Nothing, where Git does not know the commit.
    """
    git = ["git", "-C", str(Path(__file__).parents[2]), "diff", "--name-only", base]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return set(found.stdout.split()) if found.returncode == 0 else set()
