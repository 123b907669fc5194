"""Checks that verbs make before Spark starts."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from .verb import BadArguments


@contextmanager
def checked() -> Iterator[None]:
    """Raise ``BadArguments`` instead of ``TypeError`` or ``ValueError``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        raise BadArguments(str(error)) from error


def whole(text: str) -> int:
    """Return the number in an argument that counts something."""
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number, at least 1, not {text!r}")
    return int(text)


AS_OF = "Read an earlier state of the archive: a version of its messages table, or a time; only without the live log."


def state(text: str) -> int | datetime:
    """Return the version of a table, or the time, that an argument names."""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else moment(text)


def moment(text: str) -> datetime:
    """Return the time that an argument names. Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"must be a date, or a time like 2026-05-03T12:00 or 2026-05-03T12:00+02:00, not {text!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
