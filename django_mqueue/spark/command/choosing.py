"""Arguments that several verbs have: of which topics, and of which time."""

from __future__ import annotations

from argparse import ArgumentParser

from .checking import moment


def add_topics(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", help="A topic; as often as needed.")
    which.add_argument("--pattern", help="All topics that this regular expression matches as a whole.")


def add_times(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="Published then or later; ISO 8601, in UTC unless it says.",
    )
    parser.add_argument("--until", type=moment, metavar="TIME", help="Published before then.")
