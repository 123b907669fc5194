"""The command: ``manage.py mqueue_spark VERB …``; without Django's settings ``python -m django_mqueue.spark VERB …``.

Each verb is a module of this package that has a ``VERB``; those that are named here are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verbs import Verb

MODULES = (
    "doctor",
    "archive",
    "compact",
    "verify",
    "erase",
    "export",
    "report",
    "replay",
    "backfill",
)  # fmt: skip


def known_verbs() -> list[Verb]:
    """All verbs, in the order in which help lists them. None of their modules imports PySpark."""
    return [import_module(f".{name}", __package__).VERB for name in MODULES]


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m django_mqueue.spark``, for a program of your own: the exit code.

    ``arguments``: those of the process, unless given.
    """
    from .program import main

    return main(arguments)
