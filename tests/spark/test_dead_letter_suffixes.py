"""The settings or an option name the suffix of dead letters: one for all topics, or others for some."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe
from django_mqueue.models import Offset
from django_mqueue.spark.archives.requests import archive_request
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.launching import settings_options
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.replays.message_filter import MessageFilter, check_backfill, check_replay
from django_mqueue.spark.reports.requests import report_request
from django_mqueue.spark.suffixes import Suffixes, suffixes_of
from django_mqueue.spark.writer.write_options import write_options
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, poll_until, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIXED = {"DLQ_SUFFIX": "_dead", "TOPICS": {"old": {"DLQ_SUFFIX": "_late"}, "plain": {"DLQ_SUFFIX": "_dlq"}}}
TOLD = '{"": "_dead", "old": "_late", "plain": "_dlq"}'
PLACES = {"orders": "orders_dead", "old": "old_late", "plain": "plain_dlq"}
mixed = with_settings(autouse=False, MQUEUE={**QUICK, **MIXED, "RETENTION": 3600})


def places(found: Suffixes) -> dict[str, str]:
    return {topic: found.dead_letter_topic(topic) for topic in PLACES}


def test_djangos_settings_say_it_where_they_say_where_the_database_is(mixed: None) -> None:
    assert places(read_options({"topic": "orders"}).suffixes) == PLACES
    assert places(read_options({"topic": "orders", "using": "default"}).suffixes) == PLACES
    assert (
        places(archive_request({}, "orders", None, "archive", 1, 0, strict=True).options.suffixes) == PLACES
    )
    assert places(write_options({}, streaming=False).suffixes) == PLACES
    report = report_request(None, ".*", None, True, None, None, "hour", 1, None)
    assert read_options({**report.options, "topic": "orders"}).suffixes.option() == TOLD
    elsewhere = read_options({"topic": "orders", "host": "db", "database": "shop"}).suffixes
    assert places(elsewhere) == {topic: f"{topic}_dlq" for topic in PLACES}


def test_the_option_says_it_for_all_topics_or_for_each(mixed: None) -> None:
    one = read_options({"topic": "orders", "DEADLETTERSUFFIX": "_gone"}).suffixes
    assert places(one) == {topic: f"{topic}_gone" for topic in PLACES}
    several = read_options({"topic": "orders", "deadLetterSuffix": '{"old": "_late"}'}).suffixes
    assert places(several) == {"orders": "orders_dlq", "old": "old_late", "plain": "plain_dlq"}
    assert settings_options()["deadLetterSuffix"] == TOLD
    assert suffixes_of({"deadLetterSuffix": TOLD}, read_options({"topic": "a"}).connecting).option() == TOLD
    with override_settings(MQUEUE={"DLQ_SUFFIX": "_dead"}):
        assert settings_options()["deadLetterSuffix"] == "_dead"
    with override_settings(MQUEUE={}):
        assert "deadLetterSuffix" not in settings_options()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "1 to 14 printable characters"),
        ("_of the dead", "without blanks"),
        ("_late_scheduled", "1 to 14"),
        ("{", "must be JSON such as"),
        ('{"old": 7}', "must be JSON such as"),
        ('{"old": ""}', "1 to 14"),
    ],
)
def test_what_no_suffix_can_be_is_refused(text: str, named: str) -> None:
    with pytest.raises(OptionError, match=f"option 'deadLetterSuffix' .*{named}"):
        read_options({"topic": "orders", "deadLetterSuffix": text})


def test_nobody_writes_to_dead_letters(mixed: None) -> None:
    """This includes a name that is another topic's place for dead letters, as with ``publish``."""
    for topic in (*PLACES.values(), "new_dead"):
        with pytest.raises(OptionError, match="reserved for dead letters"):
            write_options({"topic": topic}, streaming=False)
        with pytest.raises(ValueError, match="reserved for dead letters"):
            check_replay("orders", "again", MessageFilter(), None, topic, None, None, {})
        with pytest.raises(ValueError, match="reserved for dead letters"):
            check_backfill(topic, "reports", "/srv/archive", None, {})
    assert write_options({"topic": "orders_gone"}, streaming=False).topic == "orders_gone"


def reject_one(topic: str) -> None:
    subscribe(topic, "billing")
    publish(topic, topic)
    with Subscription(topic, "billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
        delivery.reject("no such customer")
        settle(subscription)


@pytest.mark.spark
@pytest.mark.parametrize(
    "which",
    [("--pattern", ".*"), ("--topic", "orders", "--topic", "old", "--topic", "plain")],
    ids=["by pattern", "by name"],
)
def test_topics_with_several_places_of_dead_letters_are_archived_with_these(
    mixed: None, options: dict[str, str], spark: SparkSession, tmp_path: Path, which: tuple[str, ...]
) -> None:
    """No topic of dead letters is archived as an ordinary topic."""
    from django_mqueue.spark import Archive

    for topic in PLACES:
        reject_one(topic)
    place, out = str(tmp_path / "archive"), io.StringIO()
    call_command("mqueue_spark", "archive", "--to", place, *which, stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.partition(" dead letters")[0] for line in lines] == [
        f"{topic}: 1 messages, 1" for topic in sorted(PLACES)
    ]
    rows = Archive.open(place).frame(spark, list(PLACES), "dead_letters").collect()
    assert {row["original_topic"]: row["topic"] for row in rows} == {topic: topic for topic in PLACES}
    registered = Offset.objects.filter(consumer_group="archive", partition_key="")
    assert sorted(registered.values_list("topic", flat=True)) == sorted(PLACES)


@pytest.mark.spark
@pytest.mark.exhaustive
def test_the_readers_and_the_report_find_them(
    mixed: None, options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    from django_mqueue.spark import archive, report

    for topic in PLACES:
        reject_one(topic)
    given = settings_options()
    for which in ({"subscribePattern": ".*"}, {"subscribe": ",".join(PLACES)}):
        letters = spark.read.format("mqueue").options(**given, **which, table="dead_letters")
        rows = letters.load().collect()
        assert {row["original_topic"]: row["topic"] for row in rows} == PLACES
    messages = spark.read.format("mqueue").options(**given, subscribePattern=".*").load()
    assert {row["topic"] for row in messages.collect()} == set(PLACES)
    place = str(tmp_path / "archive")
    assert [
        done.rows["dead_letters"] for done in archive(spark, None, place, pattern=".*", options=given)
    ] == [1] * 3
    for live, source in ((True, None), (True, place), (False, place)):
        found = report(spark, pattern=".*", archive=source, live=live, options=given)
        assert {one.topic: one.dead for one in found.groups if one.group == "billing"} == dict.fromkeys(
            PLACES, 1
        )
