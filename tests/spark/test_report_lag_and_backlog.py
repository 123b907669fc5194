"""Lag and backlog. Lag comes from the log; backlog is known as far as archive and log together know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, reset, subscribe
from django_mqueue.models import Message, Offset
from django_mqueue.spark import archive
from django_mqueue.spark.database import following
from django_mqueue.spark.reports import Report, report
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, collect, consume, in_log, poll_until, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

UNKNOWN = "messages were archived with incomplete history and then deleted"


_kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


def handle(number: int, group: str = "billing") -> None:
    with Subscription("orders", group) as subscription:
        consume(subscription, number)
        settle(subscription)


def forget() -> None:
    with override_settings(MQUEUE={**QUICK, "RETENTION": 0}):
        collect("orders")


def told(found: Report, group: str) -> tuple[int | None, int | None]:
    """Return the lag, and the backlog at the end of the last step."""
    (one,) = [one for one in found.groups if one.group == group]
    return one.lag, [step for step in found.steps if step.group == group][-1].backlog


def unknown(found: Report) -> list[str]:
    """Return the number of messages in each note about an unknown end."""
    return [note.split()[0] for note in found.notes if UNKNOWN in note]


def test_a_group_is_not_behind_by_what_was_deleted_before_it_came(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    subscribe("orders", "billing")
    for n in range(3):
        publish("orders", n, key="ada")
    handle(3)
    archive(spark, "orders", place, options=options)
    forget()
    assert in_log("orders") == []
    subscribe("orders", "new")
    publish("orders", 3, key="ada")
    found = report(spark, "orders", archive=place, options=options)
    assert told(found, "new") == (1, None)
    assert told(found, "billing") == (1, 1), "the archive knows when it was done with the others"
    assert unknown(found) == ["3"]


@pytest.mark.exhaustive
def test_a_group_that_was_done_after_its_history_was_archived_is_not_behind(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    subscribe("orders", "billing")
    publish("orders", 0, key="ada")
    handle(1)
    for n in range(1, 4):
        publish("orders", n, key="ada")
    archive(spark, "orders", place, options=options, history_after=0)
    handle(3)
    publish("orders", 4, key="ada")
    found = report(spark, "orders", archive=place, options=options)
    assert (told(found, "billing"), unknown(found)) == ((1, 1), []), "the log still knows"
    assert (found.groups[1].finished, found.groups[1].ack.of) == (4, 4)
    forget()
    found = report(spark, "orders", archive=place, options=options)
    assert (told(found, "billing"), unknown(found)) == ((1, None), ["3"])
    assert found.groups[1].finished == 1, "as it was archived"


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600, "LEASE_DURATION": 600})
@pytest.mark.exhaustive
def test_archive_and_log_together_say_what_the_log_says_as_long_as_it_knows(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    """Some deliveries ended before their history was archived, some were in flight, and some began later."""
    subscribe("orders", "billing")
    for n in range(4):
        publish("orders", n, key=f"k{n}")
    with Subscription("orders", "billing", visibility_timeout=600) as subscription:
        first, bad, *rest = poll_until(subscription, 4)
        first.ack()
        settle(subscription)
        for n in range(4, 6):
            publish("orders", n, key=f"k{n}")
        archive(spark, "orders", place, options=options, history_after=0)
        bad.reject("NoSuchCustomer: bob")
        rest[0].ack()
        publish("orders", 6, key="k6")
        consume(subscription, 3)
        settle(subscription)
        found = report(spark, "orders", archive=place, options=options)
        alone = report(spark, "orders", options=options)
    assert [one for one in found.groups if one.group == "billing"] == [
        one for one in alone.groups if one.group == "billing"
    ]
    assert (found.steps, found.errors) == (alone.steps, alone.errors)
    billing = next(one for one in found.groups if one.group == "billing")
    assert (billing.finished, billing.dead, billing.in_flight, billing.lag) == (5, 1, 1, 1)
    assert billing.ack.of == 5


def test_what_was_done_and_archived_stays_so_when_its_group_is_reset(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    subscribe("orders", "billing")
    for n in range(3):
        publish("orders", n, key="ada")
    handle(3)
    archive(spark, "orders", place, options=options)
    reset("orders", "billing", "earliest")
    with Subscription("orders", "billing", visibility_timeout=600) as subscription:
        (again,) = poll_until(subscription, 1, max_messages=1)
        again.ack()
        settle(subscription)
    found = report(spark, "orders", archive=place, options=options)
    (billing,) = [one for one in found.groups if one.group == "billing"]
    assert (billing.finished, billing.lag) == (3, 2)


def test_what_a_reset_group_is_given_again_it_is_behind_by(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    subscribe("orders", "billing")
    for n in range(3):
        publish("orders", n, key="ada")
    handle(3)
    archive(spark, "orders", place, options=options)
    reset("orders", "billing", "earliest")
    found = report(spark, "orders", archive=place, options=options)
    assert (told(found, "billing"), unknown(found)) == ((3, 3), [])


def test_who_reads_the_log_is_behind_by_what_is_for_one_group_alone_too(
    spark: SparkSession, options: dict[str, str]
) -> None:
    """These messages are not deleted before the stream has passed them."""
    for group in ("billing", "other"):
        subscribe("orders", group)
    following.follow("orders", "stream", 0, 0, using="default")
    for n in range(3):
        publish("orders", n, group="billing")
    publish("orders", 3)
    found = {one.group: one for one in report(spark, "orders", options=options).groups}
    assert {name: (one.published, one.targeted, one.lag) for name, one in found.items()} == {
        "billing": (4, 3, 4),
        "other": (1, 0, 1),
        "stream": (4, 3, 4),
    }


def test_an_archive_that_reaches_further_than_the_log_is_told(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    """A restored database reuses offsets that the archive already has."""
    publish_many("orders", range(6))
    archive(spark, "orders", place, options=options)
    *_, third, fourth, _, last = in_log("orders")
    subscribe("orders", "billing")

    def notes() -> list[str]:
        found = report(spark, "orders", archive=place, options=options)
        assert found.topics[0].published == 6
        return [note for note in found.notes if "the archive reaches" in note]

    assert notes() == []
    Message.objects.filter(offset__gt=third).delete()
    Offset.objects.filter(topic="orders", consumer_group__in=["", "archive"], partition_key="").update(
        offset_acked=third
    )
    new = publish("orders", "new").offset
    Message.objects.filter(offset=new).update(offset=fourth)
    (note,) = notes()
    assert note == (
        f"topic 'orders': the archive reaches offset {last}, but this database has settled nothing above {fourth}: it"
        f" was restored to an earlier state, or is a replica that is behind. At offsets up to {last}, only messages of"
        " the archive are counted."
    )
