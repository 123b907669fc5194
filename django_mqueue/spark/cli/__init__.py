"""The command ``manage.py mqueue_spark``, and ``python -m django_mqueue.spark`` without Django's settings."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m django_mqueue.spark`` from another program. Return the exit code.

    ``arguments``: without the program's name. Default: the arguments of the process.
    """
    from .program import main

    return main(arguments)
