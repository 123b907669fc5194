"""SIGKILL of archive runs while garbage collection follows. The long version is test_archive_kills_at_length."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import publish_many
from django_mqueue.models import Message
from tests.support.subscribers import collect

from .archive_crashing import (
    GROUP,
    TOPIC,
    batches,
    is_ahead_of_its_group,
    is_being_written,
    named,
    numbers,
    spark_writes,
    verb,
    written,
)
from .crashing import Processes, collecting, crash, finish
from .streams import stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS, BATCH = 2000, "400"


@override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})
@pytest.mark.parametrize("hadoop", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.exhaustive
def test_a_killed_run_is_gone_on_with_and_each_message_counts_once(
    options: dict[str, str], tmp_path: Path, spark: SparkSession, hadoop: bool
) -> None:
    from django_mqueue.spark import verify

    place = tmp_path / "archive"
    published = 0

    def run() -> AbstractContextManager[Processes]:
        """Publish more messages, because the run before may have archived all of them, and start a run."""
        nonlocal published
        publish_many(TOPIC, range(published, published + ROWS))
        published += ROWS
        return verb("archive", options, place, "--batch-rows", BATCH, hadoop=hadoop)

    def while_spark_writes(running: Processes) -> None:
        running.kill_when(partial(spark_writes, place), "Spark writes")

    def in_the_midst(running: Processes) -> None:
        running.until(lambda: batches(place) >= 1, "a batch is there")
        running.kill_when(partial(is_being_written, place), "files are there, and no manifest")

    def before_the_move(running: Processes) -> None:
        ahead = partial(is_ahead_of_its_group, place)
        running.kill_when(ahead, "a manifest is there, and the group behind", locked=TOPIC)

    with collecting(TOPIC):
        if hadoop:
            crash(run, while_spark_writes)
            assert spark_writes(place)
        crash(run, in_the_midst)
        assert set(named(place)) < written(place)
        assert not is_ahead_of_its_group(place)
        collect(TOPIC)
        held = Message.objects.filter(topic=TOPIC).count()
        assert 0 < held < published, "nothing was deleted behind it"
        crash(run, before_the_move)
        assert is_ahead_of_its_group(place)
        finish(run)
    assert numbers(place) == list(range(published))
    assert not is_ahead_of_its_group(place)
    collect(TOPIC)
    assert not Message.objects.filter(topic=TOPIC).exists()
    assert stands_at(GROUP) > 0
    useless = written(place) - set(named(place))
    assert useless, "nothing was left by the kills: this proves nothing about cleaning"
    for path in place.rglob("*.*"):
        os.utime(path, (0, 0))  # Old files: no process uses them.
    (cleaned,) = verify(spark, str(place), clean=True)
    assert cleaned.problems == []
    assert written(place) == set(named(place))
    assert not spark_writes(place)
    assert numbers(place) == list(range(published))
