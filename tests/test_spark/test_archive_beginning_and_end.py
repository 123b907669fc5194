"""What an archive run refuses before it changes anything, and when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.exceptions import GroupTaken
from django_mqueue.service.registration import is_registered
from tests.support.subscribers import QUICK, consume

from .archive_runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

GROUP = "archive"


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Runs:
    return Runs(spark, options, tmp_path / "archive")


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
