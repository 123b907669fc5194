"""``manage.py mqueue``: commands for operators."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Commands for operators of the message queue."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="part", required=True, metavar="PART")
        worklist = verbs.add_parser("worklist", help="list work items, and take steps with them")
        if apps.is_installed("django_mqueue.worklists"):
            from django_mqueue.worklists.command import add_arguments

            add_arguments(worklist)
        else:  # So that ``handle`` can say what to do.
            worklist.add_argument("rest", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed("django_mqueue.worklists"):
            raise CommandError("add 'django_mqueue.worklists' to INSTALLED_APPS")
        from django_mqueue.worklists.command import run

        if refused := run(options, self.stdout.write):
            raise CommandError("\n".join(refused))
