"""What an archive run refuses before it changes anything, and when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import GroupTaken
from django_mqueue.models import Message
from django_mqueue.service.registration import is_registered
from tests.support.subscribers import QUICK, consume, in_log

from .archive_runs import Runs
from .streams import stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

GROUP = "archive"


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Runs:
    return Runs(spark, options, tmp_path / "archive")


def test_a_run_ends_though_history_goes_on(run: Runs) -> None:
    """A group that stands still, and traffic: with each look one more message is old enough."""
    subscribe("orders", "idle")
    publish_many("orders", range(20))
    wanted = in_log("orders")

    def grow_older(*_: int) -> None:
        young = Message.objects.filter(topic="orders", published_at__gt=1_700_000_000_000)
        if first := young.order_by("offset").first():
            Message.objects.filter(offset=first.offset).update(published_at=1_600_000_000_000)

    (done,) = run(progress=grow_older)
    assert done.rows["messages"] == 20
    assert done.batches <= 2
    assert wanted[0] <= done.upto["deliveries"] < wanted[5]
    Message.objects.filter(topic="orders").update(published_at=1_600_000_000_000)
    (done,) = run()
    assert (done.batches, done.upto["deliveries"], stands_at(GROUP)) == (1, wanted[-1], wanted[-1])


@override_settings(MQUEUE=QUICK)
def test_a_run_that_is_refused_for_one_topic_holds_no_other(run: Runs) -> None:
    publish("a", 1)
    with Subscription("b", GROUP) as subscription:
        publish("b", 1)
        consume(subscription, 1)
    with pytest.raises(GroupTaken, match="workers consume for it, or have done so"):
        run(["a", "b"])
    assert not is_registered("a", GROUP, "default")
    assert not any(run.place.iterdir()) if run.place.exists() else True
    run("a")
    assert len(run.offsets("a")) == 1
