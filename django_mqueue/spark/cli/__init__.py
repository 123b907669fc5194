"""The command ``manage.py mqueue_spark VERB …``; without Django's settings ``python -m django_mqueue.spark VERB …``.

Each verb is a module of this package with a constant ``VERB``. ``MODULES`` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verb import Verb

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
    """Return all verbs, in the order in which the help lists them. Their modules do not import PySpark."""
    return [import_module(f".verbs.{name}", __package__).VERB for name in MODULES]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m django_mqueue.spark`` from another program. Return the exit code.

    ``arguments``: without the program's name. Default: the arguments of the process.
    """
    from .program import main

    return main(arguments)
