"""``manage.py mqueue_spark VERB …``: work on the log with Spark, with the database of Django's settings."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from ... import conf
from ...spark.cli.arguments import add_password, add_verbs
from ...spark.cli.output import Output
from ...spark.cli.program import run
from ...spark.cli.verbs import VERBS
from ...spark.connecting import PASSWORD, options_refused
from ...spark.launching import environment_variables, settings_options


class Command(BaseCommand):
    help = (
        "Archive, report and replay the log with Spark. python -m django_mqueue.spark does the same without Django"
        " settings."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_verbs(parser, VERBS, _add_connection)

    def handle(self, *args: Any, **options: Any) -> None:
        arguments = Namespace(**options)
        alias = conf.database(arguments.database)
        what = f"--database {alias!r}" if arguments.database else f"MQUEUE['DATABASE'] {alias!r}"
        if alias not in connections:
            raise CommandError(f"{what} is no entry of DATABASES: {', '.join(connections)}")
        if connections[alias].vendor != "mysql":
            raise CommandError(
                f"{what} is {connections[alias].display_name}; the queue needs MySQL or MariaDB"
            )
        found = {"using": alias} if options_refused() else settings_options(alias)
        if arguments.password_file:
            found["passwordFile"] = arguments.password_file
        errors: list[str] = []
        with _password_for_workers(alias):
            code = run(arguments, found, Output(_stream(self.stdout), _stream(self.stderr)), errors.append)
        if errors:
            raise CommandError(errors[-1], returncode=code)
        if code:
            sys.exit(code)


def _add_connection(parser: ArgumentParser) -> None:
    parser.add_argument("--database", help='Alias of the queue\'s database (default MQUEUE["DATABASE"]).')
    add_password(parser)


def _stream(wrapper: Any) -> Any:
    """Return the stream behind Django's wrapper. The wrapper adds line ends, which would break a progress bar."""
    return wrapper._out


@contextmanager
def _password_for_workers(alias: str) -> Iterator[None]:
    """Put the password into this process's environment, which Spark's processes on this machine inherit.

    On other machines, Spark's processes have their own environment.
    """
    settings = connections[alias].settings_dict
    password = (
        settings["PASSWORD"] or settings["OPTIONS"].get("password") or settings["OPTIONS"].get("passwd")
    )
    with environment_variables({PASSWORD: str(password)} if password else {}):
        yield
