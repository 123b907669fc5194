"""SQL conditions that fail on a message are reported, and leave nothing behind.

Conditions of the docs work on any message.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import publish, publish_many
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message, Offset
from django_mqueue.spark import archive, replay
from django_mqueue.spark.database import following
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.replays.preview import Preview

from .test_replay import done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/replay-from-an-archive.md").read_text()
ASKED = re.compile(r"[`\"]((?:try_|get_json_|parse_json)\w*\([^`\"]+)[`\"]")
ODD: tuple[Any, ...] = (
    {"total": {"amount": 250}, "country": "DE", "grams": 700},
    {"total": {"amount": "312.50"}, "country": "DE", "grams": "7.5e2"},
    {"total": {"amount": 99.999}, "country": None, "grams": None},
    {"total": {"amount": "n/a"}, "country": 7, "grams": "heavy"},
    {"total": {"amount": 10**30}, "country": "AT", "grams": 10**30},
    {"total": {"amount": None}, "country": [], "grams": []},
    {"total": 7},
    {},
    [],
    "text",
    17,
    None,
)
BAD = "get_json_object(value, '$.amount') > 100"
BETTER = "try_cast(get_json_object(value, '$.amount') AS DOUBLE) > 100"


def conditions() -> list[str]:
    return sorted(set(ASKED.findall(PAGE)))


def test_the_how_to_has_conditions() -> None:
    assert len(conditions()) >= 3
    assert PAGE.count("get_json_object(") + PAGE.count("parse_json(") == len(ASKED.findall(PAGE))


@pytest.mark.parametrize("condition", conditions())
def test_each_condition_of_the_how_to_is_answered_by_any_message(
    spark: SparkSession, options: dict[str, str], condition: str
) -> None:
    publish_many("orders", [OutgoingMessage(payload, kind="order.placed") for payload in ODD])
    publish("orders", b"\0\xff")
    found = replay(spark, "orders", "spring", where=condition, options=options)
    assert isinstance(found, Preview)
    assert 0 < found.total < len(ODD), "it chooses none, or all of them"


@pytest.mark.parametrize("kept", [False, True], ids=["live", "archived"])
def test_a_condition_that_a_message_cannot_answer_leaves_nothing(
    spark: SparkSession, options: dict[str, str], place: str, kept: bool
) -> None:
    """The name can be used again with a better condition, and deletion is not held back."""
    publish_many("orders", [OutgoingMessage({"amount": f"{n}.50"}, key=f"k{n}") for n in (12, 120, 130)])
    ways: dict[str, Any] = {"to": "again", "options": options}
    if kept:
        archive(spark, "orders", place, options=options)
        ways["source"] = place
    told = r"where is .*, which fails for one of the messages: \[CAST_INVALID_INPUT\].*'1\d+.50'"
    for dry_run in (True, False):
        with pytest.raises(OptionError, match=told):
            replay(spark, "orders", "spring", where=BAD, **ways, dry_run=dry_run)
    assert following.position("orders", "replay-spring-into-again", using="default") is None
    assert not Offset.objects.filter(partition_key__startswith="replay-").exists()
    found = done(replay(spark, "orders", "spring", where=BETTER, **ways, dry_run=False))
    assert found.total == Message.objects.filter(topic="again").count() == 2
