"""Choose the part of an exhaustive test that this run executes.

With ``--sample SEED``, the part depends on the seed alone. Without it, a run executes everything.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

Choice = TypeVar("Choice")


def sample(
    seed: str | None, subject: str, choices: Sequence[Choice], one_in: int, always: Collection[Choice] = ()
) -> list[Choice]:
    """Return the choices that this run tests, in their order.

    With ``seed`` None, return all choices. Otherwise return the choices in ``always``, and about one in ``one_in`` of
    the others. ``subject`` names the test, so that two tests with the same seed take different choices.
    """
    if seed is None:
        return list(choices)
    random = Random(f"{seed} {subject}")
    return [choice for choice in choices if random.randrange(one_in) == 0 or choice in always]


def timed_sample(seed: str, subject: str, seconds: Mapping[str, float], one_in: int) -> set[str]:
    """Return about one in ``one_in`` of the names, which together have about this part of the seconds.

    The names form a circle in random order, each as long as its seconds. The sample has those that begin in one arc of
    the circle. (Systematic sampling: a sample of independent choices would sometimes take twice the time of another.)
    """
    random = Random(f"{seed} {subject}")
    order, total = sorted(seconds), sum(seconds.values())
    random.shuffle(order)
    start, place, taken = random.random() * total, 0.0, set()
    for name in order:
        if (place - start) % total < total / one_in:
            taken.add(name)
        place += seconds[name]
    return taken


def first_of(seed: str | None, subject: str, step: int) -> int:
    """Return the start of a walk that takes each ``step``-th choice. Without a seed, return 0."""
    return 0 if seed is None else Random(f"{seed} {subject}").randrange(step)


def number_of(seed: str) -> int:
    """Return a number between 0 and 2**32 that depends only on the seed."""
    return Random(seed).randrange(2**32)


def changed_files(base: str) -> set[str]:
    """Return the files that differ from the commit ``base``, including changes that are not committed.

    The paths are relative to the project's root. Return an empty set if Git does not know the commit.
    """
    git = ["git", "-C", str(Path(__file__).parents[2]), "diff", "--name-only", base]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return set(found.stdout.split()) if found.returncode == 0 else set()
