"""``manage.py pipeline``: send the flights through all parts of the queue and of Spark, and report.

The parts are log, streaming query, archive, deletion, sink, replay and backfill. All must give the same answers.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_mqueue.spark import explained, session
from django_mqueue.spark.launching import check_pyspark
from example_project.environment.layout import LOCAL
from example_project.workers import workers

from ...events import DAYS, REPLAYED, TOPIC
from ...hours import IN_ORDER
from ...publishing import start_run
from ..arguments import add_flights
from .publish_flights import publish

WORKERS, THREADS = 2, "32"


class Command(BaseCommand):
    help = (
        "Publish flights, aggregate and archive them, wait for their deletion, publish their totals by day, replay and"
        " consume them, backfill a new group, and report."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_flights(parser)
        parser.add_argument(
            "--place",
            type=Path,
            default=LOCAL / "pipeline",
            metavar="DIRECTORY",
            help="each run makes a folder in it, for archive, checkpoint and report; default: .local/pipeline",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        flights, begun = options["flights"], time.monotonic()
        if flights > IN_ORDER:
            raise CommandError(
                f"at most {IN_ORDER:,} flights, not {flights:,}: the file continues with February, which is too late"
                " for a watermark that has passed December"
            )
        try:
            check_pyspark()
            wrong = self._through(flights, options["place"])
        except KeyboardInterrupt:
            raise CommandError("interrupted: start the run again", returncode=130) from None
        except Exception as error:
            if (line := explained(error)) is None:
                raise
            raise CommandError(line) from error
        if wrong:
            raise CommandError(f"{wrong:,} answers differ from the file's")
        self._say(f"The same answers at each place. It took {time.monotonic() - begun:.0f} s.")

    def _through(self, flights: int, home: Path) -> int:
        """Run the pipeline and return the number of wrong answers."""
        from ...pipeline import Pipeline, register
        from ...streaming import CONFIG

        run = start_run(flights)
        register()
        publish(self, run)
        names = [f"pipeline-{run.token}-{number + 1}" for number in range(WORKERS)]
        # No retention: messages are deleted as soon as all groups are done with them.
        # No log of failures: some bulletins must fail, and the tables report them.
        variables = {"FLIGHTS_RETENTION": "0", "LOG_LEVEL": os.environ.get("LOG_LEVEL", "ERROR")}
        arguments = (TOPIC, REPLAYED, DAYS, "--threads", THREADS, "--verbosity", "0")
        with workers(names, *arguments, variables=variables) as started:
            spark = session("pipeline", master="local[2]", config=CONFIG)
            try:
                return Pipeline(spark, run, started, home / run.token, self._say).run_all()
            finally:
                spark.stop()

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
