"""Messages that are deleted between planning and reading are an error if an incomplete result would be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_mqueue import publish_many
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message
from django_mqueue.spark import archive, replay, report
from django_mqueue.spark.replays.replay_run import Replayed

from . import hooks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GONE = r"of the 10 messages .* were deleted since the read was planned"


@pytest.fixture
def meanwhile(options: dict[str, str]) -> dict[str, str]:
    publish_many("orders", range(10))
    return {**options, "connectionHook": f"{hooks.__name__}:deleting"}


@pytest.mark.parametrize("targeted", ["false", "true"])
def test_a_batch_fails_rather_than_be_short(
    spark: SparkSession, meanwhile: dict[str, str], targeted: str
) -> None:
    reader = spark.read.format("mqueue").options(**meanwhile, topic="orders", includeTargeted=targeted)
    with pytest.raises(Exception, match=GONE):
        reader.load().count()
    left = Message.objects.count()
    assert 0 < left < 10
    assert reader.option("failOnDataLoss", "false").load().count() == left - hooks.TAKEN


def test_a_replay_that_misses_messages_is_not_finished(
    spark: SparkSession, options: dict[str, str], meanwhile: dict[str, str]
) -> None:
    """An operator may unsubscribe the group that holds back deletion while the replay reads."""
    with pytest.raises(Exception, match=GONE):
        replay(spark, "orders", "spring", to="again", targeted=True, options=meanwhile, dry_run=False)
    found = replay(spark, "orders", "spring", to="again", targeted=True, options=options, dry_run=False)
    assert isinstance(found, Replayed)
    assert (found.before, found.total) == (False, Message.objects.filter(topic="orders").count())


def test_a_report_tells_what_is_there(spark: SparkSession, meanwhile: dict[str, str]) -> None:
    """Deletion does not wait for a report."""
    (found,) = report(spark, "orders", options=meanwhile).topics
    assert found.published == 10 - hooks.TAKEN


def test_an_archive_run_says_whose_messages_these_were(
    spark: SparkSession, meanwhile: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(LogGap, match="although the archive's group was not done with them"):
        archive(spark, "orders", str(tmp_path / "archive"), options=meanwhile)
