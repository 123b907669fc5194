"""``manage.py mqueue``: commands for operators."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections
from django.utils import translation

from ... import conf
from ...command import (
    collecting,
    group_changes,
    health,
    leases,
    message_changes,
    messages,
    publishing,
    server,
    status,
    topics,
    why,
)
from ...command.output import Output, Refused
from ...command.verbs import Verb
from ...exceptions import MQueueError

_READING = (status, topics, messages, why, leases, health, server)
_CHANGING = (publishing, message_changes, group_changes, collecting)

VERBS: dict[str, Verb] = {verb.name: verb for subject in _READING + _CHANGING for verb in subject.VERBS}
"""All verbs, by name."""


class Command(BaseCommand):
    help = "Commands for operators of the message queue."
    requires_system_checks: list[str] = []
    """Empty: a failed check of another app must not stop an operator. ``mqueue doctor`` runs the queue's checks."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="subcommand", required=True, metavar="VERB")
        for verb in VERBS.values():
            verb.add_to(verbs.add_parser(verb.name, help=verb.help, description=verb.help))
        worklist = verbs.add_parser("worklist", help="list work items, and take steps with them")
        if apps.is_installed("django_mqueue.worklists"):
            from django_mqueue.worklists.command import add_arguments

            add_arguments(worklist)
        else:  # ``handle`` raises an error that names the missing app.
            worklist.add_argument("rest", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["subcommand"] != "worklist":
            self._verb(options)
        elif problems := self._worklist(options):
            raise CommandError("\n".join(problems))

    def _verb(self, options: dict[str, Any]) -> None:
        """Run a verb. Raise ``CommandError`` with the reasons for exit status 1, after the output."""
        output = Output(self.stdout.write, as_json=options["json"])
        cause: Exception | None = None
        try:
            options["database"] = _database(options["database"])
            with translation.override(None):  # One language for people and monitoring.
                VERBS[options["subcommand"]].run(options, output)
        except (Refused, MQueueError, ImproperlyConfigured, TypeError, ValueError, OverflowError) as error:
            output.problem(str(error))
            cause = error
        except Error as error:
            output.problem(f"database error: {error}")
            cause = error
        output.end()
        if output.problems:
            raise CommandError("\n".join(output.problems)) from cause

    def _worklist(self, options: dict[str, Any]) -> list[str]:
        if not apps.is_installed("django_mqueue.worklists"):
            raise CommandError(
                "the app django_mqueue.worklists is not installed: add 'django_mqueue.worklists' to INSTALLED_APPS"
            )
        from django_mqueue.worklists.command import run

        try:
            _database(None)
        except (Refused, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        return run(options, self.stdout.write)


def _database(given: str | None) -> str:
    """Return the alias of the queue's database. Raises ``Refused`` if DATABASES does not have it."""
    alias = conf.database(given)
    if alias not in connections:
        what = 'MQUEUE["DATABASE"]' if given is None else "--database"
        raise Refused(f"{what} {alias!r} is no entry of DATABASES: {', '.join(connections)}")
    return alias
