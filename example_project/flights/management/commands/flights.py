"""``manage.py flights``: publish the flights, consume them in worker processes, and check the results."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from example_project.workers import workers

from ...dataset import FLIGHTS
from ...events import GROUPS, TOPIC
from ...models import Run
from ...progress import Progress, consumed
from ...publishing import start_run
from ..arguments import add_flights, positive
from .check_flights import report
from .publish_flights import publish

LOOK_EVERY = 1.0


class Command(BaseCommand):
    help = "Send real flights through the queue to two groups of consumers, and check their results."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_flights(parser)
        parser.add_argument(
            "--workers", type=positive, default=2, help="worker processes; default: %(default)s"
        )
        parser.add_argument(
            "--threads",
            type=positive,
            default=32,
            help="threads of each worker process: their acks share commits; default: %(default)s",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = publish(self, start_run(options["flights"]))
            self._consume(run, options["workers"], options["threads"])
        except KeyboardInterrupt:
            raise CommandError("interrupted: start the run again", returncode=130) from None
        report(self, run)
        if run.flights < FLIGHTS:
            self.stdout.write(f"These were the first of {FLIGHTS:,} flights; --flights all takes them all.")

    def _consume(self, run: Run, count: int, threads: int) -> None:
        progress = Progress(run.flights, *GROUPS)
        names = [f"flights-{run.pk}-{number}" for number in range(1, count + 1)]
        try:
            with workers(names, TOPIC, "--drain", "--threads", str(threads)) as started:
                while started.running():
                    time.sleep(LOOK_EVERY)
                    self._look(run, progress)
            progress.show(consumed(run))
        finally:
            progress.close()
        rates = {group: progress.rate(group) for group in GROUPS}
        each = ", ".join(f"{group} {rate:,.0f}" for group, rate in rates.items())
        self.stdout.write(f"Consumed {len(GROUPS)} times; messages a second: {each}.\n")
        if failed := started.failed():
            raise CommandError(f"a worker failed with exit code {failed[0]}")

    def _look(self, run: Run, progress: Progress) -> None:
        """Show the progress. The workers survive a restart of the server, so this method ignores one."""
        try:
            progress.show(consumed(run))
        except OperationalError:
            connection.close()
