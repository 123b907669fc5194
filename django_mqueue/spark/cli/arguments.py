"""The arguments of the command: for the database, for Spark, and for several verbs."""

from __future__ import annotations

import os
import re
from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...command.verbs import parse_time
from ...store.connection.dialect import SSL_MODES
from ..connecting import CONNECTION_OPTIONS, connecting
from ..errors import OptionError
from ..launching import check_configuration
from ..suffixes import OPTION, suffixes_of
from .verb import BadArguments, Verb

if TYPE_CHECKING:
    from argparse import _ActionsContainer

MEMORY_MIN_MIB = 500
"""The minimum memory in MiB. Spark refuses less than 450, and Java keeps some for itself."""


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
    """Add a parser for each verb. ``add_connection`` adds the arguments that name the database."""
    below = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in verbs:
        # Without abbreviations: --password would mean --password-file.
        own = below.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        own.set_defaults(run=verb.run, light=verb.light, answers=verb.answers)
        verb.arguments(own)
        add_connection(own)
        add_launching(own)


def add_connection(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "the database",
        "The password is read from --password-file, --defaults-file, --connection-hook or the environment's"
        " MQUEUE_PASSWORD, in the driver and on each executor.",
    )
    add = group.add_argument
    for name in ("--host", "--port", "--user"):
        add(name)
    add("--database", help="Name of the database.")
    add("--unix-socket", metavar="PATH")
    encryption = "Encryption of the connection, and verification of the server's certificate."
    add("--ssl-mode", choices=SSL_MODES, help=encryption)
    add("--ssl-ca", metavar="PATH", help="CA certificates that verify the server's certificate.")
    add("--ssl-capath", metavar="PATH", help="A folder of CA certificates.")
    add("--ssl-cert", metavar="PATH", help="The client certificate of this account.")
    add("--ssl-key", metavar="PATH", help="The certificate's private key.")
    add("--ssl-cipher", metavar="LIST", help="Ciphers that the connection may use.")
    add_password(group)
    add("--defaults-file", metavar="PATH", help="A MySQL option file; its [client] group is read.")
    add("--defaults-group", metavar="NAME", help="Another group of the option file to read.")
    hook = "A function that returns connection parameters for mysqlclient."
    add("--connection-hook", metavar="MODULE:FUNCTION", help=hook)
    suffix = (
        "The DLQ_SUFFIX of this queue (default _dlq, or the value in Django's settings), or JSON by topic."
    )
    add("--dead-letter-suffix", metavar="TEXT", help=suffix)


def add_password(group: _ActionsContainer) -> None:
    """Add ``--password-file``, and ``--password``, which is always refused."""
    help_text = "A file that contains the password; it must also exist on the executors."
    group.add_argument("--password-file", metavar="PATH", help=help_text)
    group.add_argument("--password", nargs="?", action=_Refused, help="Refused.")


class _Refused(Action):
    """Refuses the password as an argument, because every user of the machine could read it. The error hides it."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: Any = None) -> None:
        parser.error(
            "the password cannot be an argument, because all users of the machine can read arguments. Set"
            " MQUEUE_PASSWORD in the environment, or give a file (--password-file, --defaults-file)"
        )


def connection_options(arguments: Namespace) -> dict[str, str]:
    """Return the options that the arguments give; an empty dict if they name no database. Raises ``BadArguments``."""
    options = {}
    for name in (CONNECTION_OPTIONS - {"using"}) | {OPTION}:
        value = getattr(arguments, re.sub("(?=[A-Z])", "_", name).lower())
        if value is not None:
            options[name] = str(value)
    try:
        suffixes_of(options, connecting(options))
    except OptionError as error:
        raise BadArguments(str(error)) from error
    return options


def add_launching(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("Spark").add_argument
    master = (
        "Where Spark runs (default local[*]: on this machine). Under spark-submit, give it to spark-submit."
    )
    masters = "local[N], spark://HOST:PORT, k8s://… or yarn"  # Spark Connect is --remote.
    add("--master", type=_matching(r"local(\[.+\])?|yarn|(spark|k8s)://.+", masters), help=master)
    remote, server = os.environ.get("SPARK_REMOTE") or None, "The address of a Spark Connect server."
    address = _matching("sc://.*", "like sc://HOST:15002")
    add("--remote", type=address, metavar="sc://HOST", default=remote, help=server)
    memory = "Memory of the driver; with a local master, of all of Spark (default 1g)."
    add("--memory", type=_memory, help=memory)
    setting = "A Spark configuration setting; can be repeated."
    add("--conf", type=_setting, action="append", default=[], metavar="KEY=VALUE", help=setting)
    level = "The level of Spark's own log on stderr (default OFF)."
    add("--spark-log", choices=("OFF", "ERROR", "WARN", "INFO"), default="OFF", help=level)
    # manage.py also has this argument, before the verb.
    add("--traceback", action="store_true", default=SUPPRESS, help="Show the traceback of an error.")


def _matching(pattern: str, rule: str) -> Callable[[str], str]:
    """Return a function that returns a text if it matches the pattern."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ArgumentTypeError(f"must be {rule}, not {text!r}")
        return text

    return check


def _memory(text: str) -> str:
    found = re.fullmatch(r"([1-9][0-9]{0,8})([mgMG])", text)
    if not found:
        raise ArgumentTypeError(f"must be a number followed by m or g, such as 900m or 4g, not {text!r}")
    if int(found[1]) * (1024 if found[2] in "gG" else 1) < MEMORY_MIN_MIB:
        raise ArgumentTypeError(f"must be at least {MEMORY_MIN_MIB}m, or Spark cannot start, not {text!r}")
    return text


def _setting(text: str) -> tuple[str, str]:
    """Return the key and the value of a setting. Refuse a password, because Spark shows its configuration."""
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise ArgumentTypeError(f"must be like spark.executor.memory=2g, not {text!r}")
    try:
        check_configuration([key])
    except OptionError as error:
        raise ArgumentTypeError(str(error)) from error
    return key, value


def add_topics(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", action="append", metavar="NAME", help="A topic; can be repeated.")
    pattern = "All topics whose whole name matches this regular expression."
    which.add_argument("--pattern", metavar="REGEX", help=pattern)


def add_times(parser: ArgumentParser, since: str, until: str) -> None:
    text = f"{since}; ISO 8601, by default in UTC."
    parser.add_argument("--since", type=parse_time, metavar="TIME", help=text)
    parser.add_argument("--until", type=parse_time, metavar="TIME", help=f"{until}.")


def add_as_of(parser: ArgumentParser) -> None:
    earlier = "Read an earlier state of the archive: a version of its messages table, or a time; without the live log."
    parser.add_argument("--as-of", type=_state, metavar="STATE", help=earlier)


def add_allow_gaps(parser: ArgumentParser, name: str = "--allow-gaps") -> None:
    parser.add_argument(
        name, action="store_true", help="Continue if messages may be missing, instead of failing."
    )


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.")


def _state(text: str) -> int | datetime:
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else parse_time(text)


@contextmanager
def checked() -> Iterator[None]:
    """Turn ``TypeError`` and ``ValueError``, but no subclass, into ``BadArguments``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        raise BadArguments(str(error)) from error
