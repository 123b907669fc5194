"""``manage.py mqueue``: commands for operators."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import translation

from ...command.all_verbs import VERBS
from ...command.output import Output, Refused
from ...exceptions import MQueueError


class Command(BaseCommand):
    help = "Commands for operators of the message queue."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True, metavar="VERB")
        for verb in VERBS.values():
            verb.add_to(parts.add_parser(verb.name, help=verb.help, description=verb.help))
        worklist = parts.add_parser("worklist", help="list work items, and take steps with them")
        if apps.is_installed("django_mqueue.worklists"):
            from django_mqueue.worklists.command import add_arguments

            add_arguments(worklist)
        else:  # So that ``handle`` can say what to do.
            worklist.add_argument("rest", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        run = self._worklist if options["part"] == "worklist" else self._verb
        if problems := run(options):
            raise CommandError("\n".join(problems))

    def _verb(self, options: dict[str, Any]) -> list[str]:
        """Run a verb. Return the reasons for exit status 1."""
        output = Output(self.stdout.write, as_json=options["json"])
        try:
            with translation.override(None):  # One language for people and monitoring.
                VERBS[options["part"]].run(options, output)
        except (Refused, MQueueError, TypeError, ValueError) as problem:
            raise CommandError(str(problem)) from problem
        except DatabaseError as problem:
            raise CommandError(f"the database refused: {problem}") from problem
        output.end()
        return output.problems

    def _worklist(self, options: dict[str, Any]) -> list[str]:
        if not apps.is_installed("django_mqueue.worklists"):
            raise CommandError("add 'django_mqueue.worklists' to INSTALLED_APPS")
        from django_mqueue.worklists.command import run

        return run(options, self.stdout.write)
