"""Kill streams many times, in whole or in part, at random and at the worst moments, during 300,000 messages.

Publishing and garbage collection continue at the same time. Each message must be stored once.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import override_settings

from django_mqueue.models import Message
from tests.support.processes import wait_until

from .crashing import (
    DRIVER,
    JAVA,
    PLANNER,
    TASKS,
    Job,
    Running,
    collecting,
    crash,
    finish,
    is_empty,
    publishing,
)
from .driver import COPIES
from .streams import newest, stands_at

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3000)]

ROWS, BATCH = 300_000, 10_000
TOPIC, GROUP = "orders", "archive"


def everything(running: Running) -> None:
    running.kill()


def its_own_process(running: Running) -> None:
    running.kill(DRIVER)


def the_jvm(running: Running) -> None:
    running.kill(JAVA)
    wait_until(lambda: not running.pids(PLANNER), "the planning process has followed the JVM")


def what_plans(running: Running) -> None:
    running.kill(PLANNER)
    running.worker.wait()


def tasks(running: Running) -> None:
    """Kill all tasks, four times.

    Spark retries a task three times: the query survives one or two kills, and fails in the end.
    """
    for _ in range(4):
        running.kill(TASKS)
        if not running.worker.running:
            return
        threading.Event().wait(0.3)


def after_the_sink(running: Running) -> None:
    running.kill_between_sink_and_group(TOPIC, GROUP)


Way = Callable[[Running], object]
WAYS: list[Way] = [
    everything, tasks, after_the_sink, the_jvm, what_plans,
    tasks, everything, its_own_process, after_the_sink, everything,
]  # fmt: skip


@pytest.mark.parametrize("sink", ["files", "parquet", "topic"])
@override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})
def test_each_message_is_stored_once(
    options: dict[str, str], checkpoint: str, tmp_path: Path, sink: str
) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    print(f"seed {seed}")
    asked = {**options, "topic": TOPIC, "group": GROUP, "maxOffsetsPerTrigger": str(BATCH)}
    job = Job({**asked, "minPartitions": "3", "checkpointLocation": checkpoint}, checkpoint, tmp_path, sink)
    with publishing(TOPIC, ROWS), collecting(TOPIC):
        for way in WAYS:

            def at_work(running: Running, way: Way = way) -> None:
                running.has_committed(chance.randint(1, 2))
                threading.Event().wait(chance.random())
                way(running)

            crash(lambda: job.run(every="20 milliseconds"), at_work)
            print(f"{way.__name__}: {Message.objects.filter(topic=TOPIC).count()} in the log")
    assert stands_at(GROUP) <= newest()
    with collecting(TOPIC):
        job.finish()
    if sink == "parquet":
        finish(lambda: job.run(sink="read"))
    assert (copies() if sink == "topic" else job.numbers()) == list(range(ROWS))
    wait_until(lambda: is_empty(TOPIC), "all is deleted at last")


def copies() -> list[int]:
    payloads = Message.objects.filter(topic=COPIES).values_list("payload", flat=True).iterator()
    return sorted(json.loads(bytes(payload)) for payload in payloads)
