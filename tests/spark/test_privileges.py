"""Accounts with exactly the documented privileges can run the documented commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_mqueue import Subscription, pause, publish, publish_many
from django_mqueue.models import Message
from django_mqueue.spark.launching import settings_options
from django_mqueue.spark.replays.backfills import Backfilled
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.accounts import PASSWORD, acting_as
from tests.support.subscribers import QUICK, poll_until

from .jobs import start
from .streams import newest, settle, stands_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

KEPT = {**QUICK, "RETENTION": 3600}


@pytest.fixture
def password(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    return {"passwordFile": str(file)}


def some_messages() -> None:
    """Publish three messages: one is dead-lettered, one is acknowledged, and one is open."""
    publish_many("orders", range(3))
    with override_settings(MQUEUE=KEPT), Subscription("orders", "billing") as subscription:
        found = {delivery.payload: delivery for delivery in poll_until(subscription, 3)}
        found[0].reject("no")
        found[1].ack()


def count(spark: SparkSession, options: dict[str, str], **more: str) -> int:
    found: int = spark.read.format("mqueue").options(topic="orders", **options, **more).load().count()
    return found


def test_a_reader(spark: SparkSession, password: dict[str, str]) -> None:
    some_messages()
    settle("orders")
    with acting_as("spark_reader"):
        options = {**settings_options(), **password, "settle": "false"}
        assert count(spark, options) == 3
        assert count(spark, options, table="deliveries") == 3
        with pytest.raises(OperationalError, match="denied"):
            pause("orders", "billing")


def test_a_reader_that_settles(spark: SparkSession, password: dict[str, str]) -> None:
    some_messages()
    with acting_as("spark_settler"):
        options = {**settings_options(), **password}
        assert count(spark, options) == 3
        assert count(spark, options, table="dead_letters") == 1
        with pytest.raises(OperationalError, match="denied"):
            pause("orders", "billing")


def test_a_stream_with_a_group(spark: SparkSession, password: dict[str, str], checkpoint: str) -> None:
    some_messages()
    seen: list[int] = []

    def keep(frame: DataFrame, batch: int) -> None:
        seen.extend(json.loads(bytes(row.payload)) for row in frame.collect())

    for number in (3, 4):
        publish("orders", number)
        with acting_as("spark_group"):
            options = {**settings_options(), **password, "topic": "orders", "group": "totals"}
            start(spark, options, checkpoint, keep).awaitTermination(120)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert stands_at("totals") == newest()


def test_an_archive(spark: SparkSession, password: dict[str, str], tmp_path: Path) -> None:
    from django_mqueue.spark import Archive, archive

    some_messages()
    place = str(tmp_path / "archive")
    with acting_as("spark_group"):
        options = {**settings_options(), **password}
        for _ in range(2):
            archive(spark, "orders", to=place, options=options)
    assert sum(entry.rows for entry in Archive.open(place).entries("orders", "messages")) == 3


def test_a_writer(spark: SparkSession, password: dict[str, str]) -> None:
    with acting_as("spark_writer"):
        options = {**settings_options(), **password, "topic": "orders", "writeId": "once"}
        frame = spark.createDataFrame([(f"{n}",) for n in range(5)], "payload STRING")
        for _ in range(2):
            frame.write.format("mqueue").options(**options).mode("append").save()
    assert Message.objects.filter(topic="orders").count() == 5


def test_replays_and_backfills(spark: SparkSession, password: dict[str, str], tmp_path: Path) -> None:
    from django_mqueue.spark import archive, backfill, replay

    some_messages()
    place = str(tmp_path / "archive")
    archive(spark, "orders", to=place, options=settings_options())
    publish("orders", 3)
    with acting_as("spark_replayer"):
        ways: dict[str, Any] = {
            "options": {**settings_options(), **password},
            "source": place,
            "dry_run": False,
        }
        replayed = replay(spark, "orders", "once", to="copies", live=True, **ways)
        backfilled = backfill(spark, "orders", "stock", **ways)
    assert isinstance(replayed, Replayed)
    assert isinstance(backfilled, Backfilled)
    assert (replayed.stored, replayed.finished, backfilled.stored, backfilled.finished) == (4, True, 4, True)


def test_a_report(spark: SparkSession, password: dict[str, str]) -> None:
    from django_mqueue.spark import report

    some_messages()
    with acting_as("spark_reporter"):
        (found,) = report(spark, "orders", options={**settings_options(), **password}).groups
    assert (found.published, found.finished, found.dead) == (3, 1, 1)
