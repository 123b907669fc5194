"""``manage.py stream_carriers``: keep flights per carrier and hour in a table, until a signal stops it."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_mqueue.spark import explained, session
from django_mqueue.spark.errors import NoSpark
from django_mqueue.spark.launching import check_pyspark
from example_project.environment.layout import LOCAL

from ...models import Run

LOOK_EVERY = 0.5


class Command(BaseCommand):
    help = "Keep the newest run's flights per carrier and hour in a table, with a Spark streaming query."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--checkpoint",
            type=Path,
            metavar="DIRECTORY",
            help="the query's checkpoint; default: one for each run, in .local/streams",
        )
        parser.add_argument(
            "--drain", action="store_true", help="end when nothing is left, instead of waiting for more"
        )
        parser.add_argument("--master", default="local[2]", help="Spark's master; default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        run = Run.objects.order_by("pk").last()
        if run is None:
            raise CommandError("no flights were published yet: manage.py publish_flights")
        try:
            check_pyspark()
            from ...streaming import CONFIG, start

            spark = session("carriers", master=options["master"], config=CONFIG)
        except NoSpark as error:
            raise CommandError(str(error)) from error
        stopping = threading.Event()
        # After Spark, which sets its own handler for SIGINT.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stopping.set())
        query = start(spark, run.pk, options["checkpoint"] or default_checkpoint(run), drain=options["drain"])
        while query.isActive and not stopping.wait(LOOK_EVERY):
            pass
        problem = query.exception()
        query.stop()
        spark.stop()
        if problem is not None:
            raise CommandError(explained(problem) or str(problem))


def default_checkpoint(run: Run) -> Path:
    return LOCAL / "streams" / f"carriers-{run.token}"
