"""The form of a verb, and the options that verbs share."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .output import Output, Refused

Options = dict[str, Any]


@dataclass(frozen=True)
class Verb:
    """A verb of ``manage.py mqueue``.

    ``run``: does the work, and reports to the ``Output``. Its option ``database`` is an alias, never None.
    ``add_arguments``: adds the arguments of the verb. ``changes``: the verb changes something. It then has the option
    ``--dry-run``. ``recorded``: the change is an operator's action. The verb then has the options ``--by`` and
    ``--why``. ``deletes``: the verb deletes something. It then asks for confirmation, unless ``--yes`` is given.
    """

    name: str
    help: str
    run: Callable[[Options, Output], None]
    add_arguments: Callable[[ArgumentParser], None] = lambda parser: None
    changes: bool = False
    deletes: bool = False
    recorded: bool = True

    def add_to(self, parser: ArgumentParser) -> None:
        """Add the arguments of the verb, and the options that all verbs of its sort have."""
        self.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--database", help='alias of the queue\'s database (default MQUEUE["DATABASE"])')
        if self.changes:
            parser.add_argument("--dry-run", action="store_true", help="change nothing, and report")
        if self.changes and self.recorded:
            parser.add_argument(
                "--by", default="", help="the author, for the record of actions (default: this process)"
            )
            parser.add_argument("--why", default="", help="the reason, for the record of actions")
        if self.deletes:
            parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def confirm(options: Options, question: str) -> None:
    """Ask the operator on the terminal. Raise ``Refused`` if the answer is not "yes" or there is no terminal."""
    if options["yes"]:
        return
    if options["json"] or sys.stdin is None or not sys.stdin.isatty():
        raise Refused(
            f"{question} With --json or without a terminal, this cannot ask: give --yes to confirm, or --dry-run to"
            " look first"
        )
    try:
        answer = input(f"{question} Type yes to continue: ")
    except EOFError:
        answer = ""
    if answer.strip().lower() != "yes":
        raise Refused("not confirmed; nothing was changed")


def positive_int(text: str) -> int:
    """Return the argument as a number. Raise ``ArgumentTypeError`` unless it is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def parse_duration(text: str) -> timedelta:
    """Return a duration: seconds, or a number with s, m, h or d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        found = timedelta(seconds=float(number) * unit)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"must be seconds, or a number with s, m, h or d, not {text!r}") from error
    if found < timedelta(0):
        raise ArgumentTypeError(f"must not be negative: {text!r}")
    return found


def parse_time(text: str) -> datetime:
    """Return a time: ISO 8601, UTC unless it has a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"must be an ISO 8601 time such as 2026-03-01T08:00, not {text!r}") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
