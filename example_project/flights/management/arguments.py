"""The arguments that the commands share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from ..dataset import FLIGHTS

DEFAULT = 50_000
"""About a minute on two cores. All flights take about six minutes if the machine also does other work."""


def flights(text: str) -> int:
    """Parse a number of flights: a number, or ``all``."""
    if text == "all":
        return FLIGHTS
    if not text.isdecimal() or not 0 < int(text) <= FLIGHTS:
        raise ArgumentTypeError(f"must be a number from 1 to {FLIGHTS}, or all; not {text!r}")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a number of at least 1, not {text!r}")
    return int(text)


def add_flights(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--flights",
        type=flights,
        default=DEFAULT,
        metavar="N",
        help=f"the first N flights of the file, or 'all' for its {FLIGHTS:,}; default: %(default)s",
    )
