"""``manage.py publish_flights``: begin a run and publish it, for workers that you start yourself."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...models import Run
from ...progress import Progress
from ...publishing import publish_run, start_run
from ..arguments import add_flights


class Command(BaseCommand):
    help = "Delete the last run, and publish the flights. Then: manage.py runconsumer flights"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_flights(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        publish(self, start_run(options["flights"]))


def publish(command: BaseCommand, run: Run) -> Run:
    """Publish a run, with a progress bar."""
    progress = Progress(run.flights, "published")
    try:
        publish_run(run, lambda count: progress.advance("published", count))
    finally:
        progress.close()
    command.stdout.write(f"Published {run.flights:,} flights, {progress.rate('published'):,.0f} a second.")
    command.stdout.flush()
    return run
