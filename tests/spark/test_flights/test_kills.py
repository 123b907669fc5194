"""SIGKILL of the example's streaming job while flights are published: driver and workers die at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from django.db import connection

from tests.spark.commands import command
from tests.spark.crashing import Processes, crash, finish
from tests.spark.jobs import defaults
from tests.spark.streams import committed, newest, stands_at
from tests.support.processes import database_url

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("flights"),
    pytest.mark.timeout(3000),
]

EACH = 1500
"""Number of flights before the first kill, and during each kill."""


@contextmanager
def job(place: Path, checkpoint: str, *arguments: str) -> Iterator[Processes]:
    """Run ``manage.py stream_carriers``. A ``SPARK_CONF_DIR`` makes its JVM fast."""
    environment = {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "SPARK_CONF_DIR": str(defaults(place)),
    }
    words = ("stream_carriers", "--checkpoint", checkpoint, *arguments)
    with command(("django",), words, environment) as worker:
        yield Processes(worker)


def kill_after_a_batch(checkpoint: str, running: Processes) -> None:
    goal = committed(checkpoint) + 1
    running.until(lambda: committed(checkpoint) >= goal, "a batch is durable")
    assert running.kill(), "it ended before it could be killed"


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.exhaustive
def test_a_job_that_is_killed_again_and_again_comes_to_what_the_file_says(
    options: dict[str, str], checkpoint: str, tmp_path: Path, kills: int
) -> None:
    from example_project.flights.hours import expected_hours, kept_hours
    from example_project.flights.publishing import publish_run, start_run

    run = start_run(EACH * (kills + 1))
    killed, done = threading.Semaphore(0), threading.Event()

    def publish() -> None:
        sent = 0

        def pause(count: int) -> None:
            nonlocal sent
            sent += count
            if sent % EACH == 0 and sent < run.flights:
                killed.acquire()

        publish_run(run, pause)
        done.set()
        connection.close()

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        for _ in range(kills):
            crash(partial(job, tmp_path, checkpoint), partial(kill_after_a_batch, checkpoint))
            killed.release()
    finally:
        killed.release(kills)
        publisher.join()
    assert done.is_set()
    assert stands_at("carriers", "flights") < newest("flights"), "nothing was left to do: this proves little"
    finish(partial(job, tmp_path, checkpoint, "--drain"))
    assert kept_hours(run) == expected_hours(run.flights)
    assert stands_at("carriers", "flights") == newest("flights")
