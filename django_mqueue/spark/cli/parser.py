"""The command line: a parser for each verb, and the arguments that all verbs have."""

from __future__ import annotations

import argparse
import os
import re
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

from ..configuration import check_configuration
from ..errors import OptionError
from .connection import add_connection
from .verb import Verb

LEAST = 500
"""The minimum memory in MiB. Spark refuses less than 450, and Java keeps some for itself."""

LEVELS = ("OFF", "ERROR", "WARN", "INFO")


def parser_of(prog: str, verbs: Sequence[Verb]) -> ArgumentParser:
    """Return the parser of ``python -m django_mqueue.spark``."""
    parser = ArgumentParser(
        prog=prog,
        description="Process the queue's log with Spark. The exit code is 0 (success), 1 (an error) or 2 (bad"
        " arguments).",
        epilog=f"{prog} VERB --help lists the arguments of a verb.",
        allow_abbrev=False,
    )
    add_verbs(parser, verbs, add_connection)
    return parser


def add_verbs(
    parser: ArgumentParser, verbs: Sequence[Verb], add_connection: Callable[[ArgumentParser], None]
) -> None:
    """Add a parser for each verb to this parser.

    ``add_connection``: adds the arguments that name the database.
    """
    below = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in verbs:
        # Without abbreviations: --password would mean --password-file.
        own = below.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        own.set_defaults(run=verb.run, light=verb.light, answers=verb.answers)
        verb.arguments(own)
        add_connection(own)
        add_launching(own)


def add_launching(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        type=_master,
        help="Where Spark runs (default local[*]: on this machine). Under spark-submit, give it to spark-submit.",
    )
    group.add_argument(
        "--remote",
        type=_remote,
        metavar="sc://HOST",
        default=os.environ.get("SPARK_REMOTE"),
        help="The address of a Spark Connect server.",
    )
    group.add_argument(
        "--memory",
        type=_memory,
        help="Memory of the driver; with a local master, of all of Spark (default 1g).",
    )
    group.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A Spark configuration setting; can be repeated.",
    )
    group.add_argument(
        "--spark-log",
        choices=LEVELS,
        default="OFF",
        help="The level of Spark's own log on stderr (default OFF).",
    )
    group.add_argument(
        "--traceback",
        action="store_true",
        default=argparse.SUPPRESS,  # manage.py also has this argument, before the verb
        help="Show the traceback of an error.",
    )


def _master(text: str) -> str:
    if not re.fullmatch(r"local(\[.+\])?|yarn|(spark|k8s)://.+", text):
        raise argparse.ArgumentTypeError(
            f"must be local[N], spark://HOST:PORT, k8s://… or yarn, not {text!r} (Spark Connect is --remote)"
        )
    return text


def _remote(text: str) -> str:
    if not text.startswith("sc://"):
        raise argparse.ArgumentTypeError(f"must be like sc://HOST:15002, not {text!r}")
    return text


def _memory(text: str) -> str:
    found = re.fullmatch(r"([1-9][0-9]{0,8})([mgMG])", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"must be a number followed by m or g, such as 900m or 4g, not {text!r}"
        )
    if int(found[1]) * (1024 if found[2] in "gG" else 1) < LEAST:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST}m, or Spark cannot start, not {text!r}")
    return text


def _setting(text: str) -> tuple[str, str]:
    """Return the key and the value of a setting.

    Refuse a password, because Spark shows its configuration.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"must be like spark.executor.memory=2g, not {text!r}")
    try:
        check_configuration([key])
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return key, value
