"""``verify`` compares an archive with the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import publish_many
from django_mqueue.models import Message, Offset
from django_mqueue.spark import erase, verify
from tests.support.subscribers import QUICK, in_log

from .archive_runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_what_the_log_holds_and_the_archive_does_not_have_is_found(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """A message is changed in the log after it was archived. One was erased from the archive, which is no problem.

    Nor are messages above the archive's end.
    """
    place = str(tmp_path / "archive")
    publish_many("orders", range(20))
    Runs(spark, options, tmp_path / "archive")()
    publish_many("orders", range(5))

    def problems() -> list[str]:
        (found,) = verify(spark, place, log=options)
        return found.problems

    assert problems() == []
    erase(spark, place, "orders", where="CAST(payload AS STRING) = '7'")
    assert problems() == []
    changed = in_log("orders")[3]
    Message.objects.filter(offset=changed).update(message_id="another")
    (problem,) = problems()
    assert "the log holds 2 messages up to offset" in problem
    assert problem.endswith(f"the first at offset {changed}; 1 were erased")
    Message.objects.all().delete()
    Offset.objects.all().delete()
    assert problems() == [], "the log knows no topic"
