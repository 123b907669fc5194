"""The arguments by which several verbs choose topics."""

from __future__ import annotations

from argparse import ArgumentParser


def add_topics(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", help="A topic; as often as needed.")
    which.add_argument("--pattern", help="All topics that this regular expression matches as a whole.")
