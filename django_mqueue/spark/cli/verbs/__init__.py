"""The verbs of the command, one module each. Each module has a ``VERB``.

They import the functions of ``django_mqueue.spark``. None of them imports PySpark before it runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..verb import Verb

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
    return [import_module(f".{name}", __package__).VERB for name in MODULES]
