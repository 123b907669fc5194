"""SIGKILL of the example's streaming job while flights are published: driver and workers die at once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from django.db import connection

from tests.spark.commands import command
from tests.spark.jobs import defaults
from tests.spark.streams import committed, newest, stands_at
from tests.support.processes import Worker, database_url, wait_until
from tests.support.waiting import SPARK_PATIENCE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("flights"),
]

EACH = 1500
"""Number of flights before the first kill, and during each kill."""


def job(place: Path, checkpoint: str, *arguments: str) -> AbstractContextManager[Worker]:
    """Run ``manage.py stream_carriers``. A ``SPARK_CONF_DIR`` makes its JVM fast."""
    environment = {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "SPARK_CONF_DIR": str(defaults(place)),
    }
    return command(("django",), ("stream_carriers", "--checkpoint", checkpoint, *arguments), environment)


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
            goal = committed(checkpoint) + 1
            with job(tmp_path, checkpoint) as worker:
                wait_until(
                    partial(_has, goal, checkpoint, worker), "a batch is durable", seconds=SPARK_PATIENCE
                )
                assert worker.running, "it ended before it could be killed"
                os.killpg(worker.pid, signal.SIGKILL)
            killed.release()
    finally:
        killed.release(kills)
        publisher.join()
    assert done.is_set()
    assert stands_at("carriers", "flights") < newest("flights"), "nothing was left to do: this proves little"
    with job(tmp_path, checkpoint, "--drain") as worker:
        assert worker.wait(200) == 0, worker.output()
    assert kept_hours(run) == expected_hours(run.flights)
    assert stands_at("carriers", "flights") == newest("flights")


def _has(batch: int, checkpoint: str, worker: Worker) -> bool:
    """Return True if the batch is durable, or the job has ended."""
    return committed(checkpoint) >= batch or not worker.running
