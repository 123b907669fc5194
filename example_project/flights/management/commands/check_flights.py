"""``manage.py check_flights``: check the groups' results for the newest run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...models import Run
from ...report import check


class Command(BaseCommand):
    help = "Print what each group computed, and compare it with a plain computation over the file."

    def handle(self, *args: Any, **options: Any) -> None:
        run = Run.objects.order_by("pk").last()
        if run is None:
            raise CommandError("no flights were published yet: manage.py publish_flights")
        if run.published_at is None:
            raise CommandError("the newest run is incomplete: publish flights again")
        report(self, run)


def report(command: BaseCommand, run: Run) -> None:
    """Print the check. Raises ``CommandError``, which exits with 1, if something differs."""
    found = check(run)
    for line in found.lines():
        command.stdout.write(line)
    if found.wrong:
        raise CommandError("the groups' results differ from the file's")
