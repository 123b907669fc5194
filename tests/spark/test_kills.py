"""SIGKILL of a streaming job while garbage collection follows its group. The long version is test_kills_at_length."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.test import override_settings

from django_mqueue import publish_many
from django_mqueue.models import Message
from tests.support.processes import wait_until

from .crashing import TASKS, Job, Running, collecting, crash, is_empty
from .streams import committed, newest, stands_at

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ROWS, BATCH = 3000, 300
TOPIC, GROUP = "orders", "archive"


@override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})
@pytest.mark.exhaustive
def test_a_killed_job_goes_on_and_each_message_is_in_one_batch(
    options: dict[str, str], checkpoint: str, tmp_path: Path
) -> None:
    asked = {**options, "topic": TOPIC, "group": GROUP, "maxOffsetsPerTrigger": str(BATCH)}
    job = Job({**asked, "minPartitions": "2"}, checkpoint, tmp_path)
    published = 0

    def publish_more() -> None:
        """Publish more messages, because the job may have read all of them."""
        nonlocal published
        publish_many(TOPIC, range(published, published + ROWS))
        published += ROWS

    def stay_ahead() -> None:
        if published - stands_at(GROUP, TOPIC) < ROWS:
            publish_more()

    def run() -> AbstractContextManager[Running]:
        publish_more()
        return job.run(every="50 milliseconds")

    def at_work(running: Running) -> None:
        running.has_committed(2)
        assert running.kill(TASKS), "there was no task to be killed"
        publish_more()
        running.has_committed(1)
        running.kill_between_sink_and_group(TOPIC, GROUP, prepare=stay_ahead)

    with collecting(TOPIC):
        crash(run, at_work)
        assert stands_at(GROUP) < newest()
        assert Message.objects.filter(topic=TOPIC).count() < published, "nothing was deleted behind the group"
        job.finish()
    assert job.numbers() == list(range(published))
    assert committed(checkpoint) == len(list(tmp_path.glob("*.json"))) - 1
    wait_until(lambda: is_empty(TOPIC), "all is deleted at last")
