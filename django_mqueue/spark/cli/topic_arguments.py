"""The arguments by which several verbs choose topics."""

from __future__ import annotations

from argparse import ArgumentParser


def add_topics(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", help="A topic; can be repeated.")
    which.add_argument("--pattern", help="All topics whose whole name matches this regular expression.")
