"""SIGKILL of archive runs while garbage collection follows. The long version is test_archive_kills_at_length."""

from __future__ import annotations

import json
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
    is_ahead_of_its_group,
    is_between_its_tables,
    kill_at_pause,
    numbers,
    unused,
    verb,
    version,
)
from .crashing import Processes, collecting, crash, finish
from .streams import stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ROWS, BATCH = 2000, "400"


@override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})
@pytest.mark.exhaustive
def test_a_killed_run_is_gone_on_with_and_each_message_counts_once(
    options: dict[str, str], tmp_path: Path, spark: SparkSession
) -> None:
    from django_mqueue.spark import verify

    place = tmp_path / "archive"
    published = 0

    def run(pause_before: str = "") -> AbstractContextManager[Processes]:
        """Publish more messages, because the run before may have archived all of them, and start a run."""
        nonlocal published
        publish_many(TOPIC, range(published, published + ROWS))
        published += ROWS
        return verb("archive", options, place, "--batch-rows", BATCH, pause_before=pause_before)

    def before_the_commits(running: Processes) -> None:
        kill_at_pause(
            running, lambda: version(place) >= 1 and bool(unused(place)), "a file belongs to no table"
        )

    def before_the_messages(running: Processes) -> None:
        kill_at_pause(
            running, partial(is_between_its_tables, place), "deliveries are committed, and messages not"
        )

    def before_the_move(running: Processes) -> None:
        ahead = partial(is_ahead_of_its_group, place)
        kill_at_pause(running, ahead, "messages are committed, and the group is behind")

    def check_nothing_is_lost() -> None:
        """Each message is in the archive or in the log."""
        archived = numbers(place)
        assert len(set(archived)) == len(archived)
        payloads = Message.objects.filter(topic=TOPIC).values_list("payload", flat=True)
        assert {*archived, *(json.loads(bytes(payload)) for payload in payloads)} == set(range(published))

    with collecting(TOPIC):
        crash(lambda: run("deliveries 1"), before_the_commits)
        assert unused(place)
        assert not is_between_its_tables(place)
        assert not is_ahead_of_its_group(place)
        collect(TOPIC)
        held = Message.objects.filter(topic=TOPIC).count()
        assert 0 < held < published, "nothing was deleted behind it"
        check_nothing_is_lost()
        crash(lambda: run("messages"), before_the_messages)
        assert is_between_its_tables(place)
        assert not is_ahead_of_its_group(place)
        check_nothing_is_lost()
        crash(lambda: run("group"), before_the_move)
        assert not is_between_its_tables(place)
        assert is_ahead_of_its_group(place)
        check_nothing_is_lost()
        finish(run)
    assert numbers(place) == list(range(published))
    assert not is_ahead_of_its_group(place)
    collect(TOPIC)
    assert not Message.objects.filter(topic=TOPIC).exists()
    assert stands_at(GROUP) > 0
    assert unused(place), "nothing was left by the kills: this proves nothing about cleaning"
    for path in place.rglob("*.*"):
        os.utime(path, (0, 0))  # Old files: no process uses them.
    (cleaned,) = verify(spark, str(place), clean=True)
    assert cleaned.problems == []
    assert unused(place) == set()
    assert numbers(place) == list(range(published))
