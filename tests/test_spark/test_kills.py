"""SIGKILL of a streaming job, all its processes at once, while garbage collection deletes behind its group."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from django.db import connection
from django.test import override_settings

import django_mqueue
from django_mqueue import publish_many
from django_mqueue.models import Message
from django_mqueue.service.collecting import Collector
from tests.support.processes import Worker, wait_until

from .streams import committed, newest, stands_at

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ROWS, BATCH = 800, 100
SOURCE = Path(django_mqueue.__file__).parent / "spark" / "default_source.py"


@contextmanager
def job(options: dict[str, str], checkpoint: str, target: Path) -> Iterator[Worker]:
    """The job and all that it starts: a process group, killed at the end."""
    # As the wheel has it.
    modules = target / "modules"
    modules.mkdir(exist_ok=True)
    shutil.copy(SOURCE, modules / "pyspark_mqueue.py")
    worker = Worker(
        (json.dumps(options), checkpoint, str(target)),
        {"MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"]), "PYTHONPATH": str(modules)},
        program=("tests.test_spark.driver",),
    )
    try:
        yield worker
    except BaseException as error:
        error.add_note(worker.output()[-6000:])
        raise
    finally:
        kill(worker)
        worker.close()


def kill(worker: Worker) -> None:
    if worker.running:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextmanager
def collecting(topic: str) -> Iterator[None]:
    """Delete whatever may be deleted, all the time, as workers would."""
    stop = threading.Event()

    def work() -> None:
        collector = Collector("default", topic)
        while not stop.wait(0.02):
            collector.page()
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})
def test_a_killed_job_goes_on_and_each_message_is_in_one_batch(
    options: dict[str, str], checkpoint: str, tmp_path: Path
) -> None:
    publish_many("orders", range(ROWS))
    asked = {**options, "topic": "orders", "group": "archive", "maxOffsetsPerTrigger": str(BATCH)}
    with collecting("orders"):
        with job(asked, checkpoint, tmp_path) as worker:
            wait_until(partial(_is_beyond, 2, worker, checkpoint), "batches are durable", timeout=120)
            assert worker.running, "it ended before it could be killed"
            kill(worker)
        assert stands_at("archive") < newest()
        assert Message.objects.filter(topic="orders").count() < ROWS, "nothing was deleted behind the group"
        with job(asked, checkpoint, tmp_path) as worker:
            assert worker.wait(200) == 0
    found = [number for path in tmp_path.glob("*.json") for number in json.loads(path.read_text())]
    assert sorted(found) == list(range(ROWS))
    assert committed(checkpoint) == len(list(tmp_path.glob("*.json"))) - 1
    wait_until(lambda: not _left(), "all is deleted at last")


def _left() -> bool:
    Collector("default", "orders").page()
    return Message.objects.filter(topic="orders").exists()


def _is_beyond(batch: int, worker: Worker, checkpoint: str) -> bool:
    """Whether the batch is durable, or never will be."""
    return committed(checkpoint) >= batch or not worker.running
