"""Spark's server is lost while it evaluates a condition. The replay stays started, and its messages are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from django_mqueue import publish, publish_many
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Offset
from django_mqueue.spark import replay
from django_mqueue.spark.database import following
from django_mqueue.spark.errors import OptionError

from .test_replay import done

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

POSITIVE = "offset > 0"


def losing(
    spark: SparkSession, patch: pytest.MonkeyPatch, error: Exception, when: Callable[[], bool]
) -> None:
    """Raise an error when Spark is asked to evaluate the condition and ``when`` is true."""
    frame = type(spark.range(1))
    real = frame.where

    def where(self: DataFrame, condition: Any) -> DataFrame:
        if isinstance(condition, str) and condition == POSITIVE and when():
            raise error
        return real(self, condition)

    patch.setattr(frame, "where", where)


@pytest.mark.parametrize("met", [PySparkException, AnalysisException], ids=["server", "source"])
def test_a_server_that_is_lost_gives_no_replay_up(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, met: type[PySparkException]
) -> None:
    """A Spark Connect server may disappear, or its data source may fail, at the second evaluation of the condition."""
    publish_many("orders", [OutgoingMessage({"n": n}, key=f"k{n}") for n in range(3)])
    ways: dict[str, Any] = {"to": "again", "where": POSITIVE, "options": options, "dry_run": False}

    def is_held() -> bool:
        return following.position("orders", "replay-spring-into-again", using="default") is not None

    with monkeypatch.context() as patch:
        losing(spark, patch, met("the server is away"), is_held)
        with pytest.raises((PySparkException, OptionError), match="the server is away"):
            replay(spark, "orders", "spring", **ways)
    assert is_held(), "what is to be read may be deleted"
    assert Offset.objects.filter(partition_key__startswith="replay-").exists(), "it was forgotten"
    assert done(replay(spark, "orders", "spring", **ways)).total == 3


def test_a_server_that_is_lost_is_not_called_a_wrong_condition(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong message makes the user change a correct condition.

    The replay is then refused, because it was started with another one.
    """
    publish("orders", {})
    losing(spark, monkeypatch, PySparkException("the server is away"), lambda: True)
    with pytest.raises(PySparkException, match=r"^the server is away$"):
        replay(spark, "orders", "spring", where=POSITIVE, options=options)
