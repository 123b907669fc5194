"""The checks that let an archive run continue, and the offset up to which it allows deletion.

Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, reset, subscribe, unsubscribe
from django_mqueue.exceptions import GroupTaken, LogGap
from django_mqueue.models import Message, SubscriberHeartbeat
from django_mqueue.spark.archives.topic_state import (
    TopicState,
    catch_up_group,
    check,
    check_group_unchanged,
    move,
)
from django_mqueue.spark.database import following, heartbeating
from django_mqueue.spark.database.finished import finished_upto
from tests.support.subscribers import QUICK, collect, in_log, poll_until
from tests.support.subscribers import settle as settle_workers

from . import streams
from .streams import reads_log, stands_at, subscribe_again

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"
HOUR = 3_600_000


@pytest.fixture
def standing() -> TopicState:
    """Return the state after one batch of three messages, with two more messages in the log."""
    publish_many("orders", range(3))
    third = in_log("orders")[-1]
    publish_many("orders", range(2))
    found = catch_up_group(of(0, begun=False), "default")
    assert streams.settle("orders") == in_log("orders")[-1]
    moved = TopicState("orders", GROUP, {"messages": third}, third, True, found.generation)
    move(moved, "default")
    return moved


def of(position: int, life: int = 1, *, begun: bool = True) -> TopicState:
    return TopicState("orders", GROUP, {"messages": position}, position, begun, life)


def place() -> following.ReaderPosition | None:
    return following.position("orders", GROUP, using="default")


def follow_again() -> None:
    unsubscribe("orders", GROUP)
    following.follow("orders", GROUP, 0, 0, using="default")


def read_on() -> None:
    found = place()
    assert found is not None
    following.move("orders", GROUP, found.generation, in_log("orders")[-1], using="default")


CHANGES = {
    "reset": lambda: reset("orders", GROUP, "earliest"),
    "subscribed again": subscribe_again,
    "followed again": follow_again,
    "unsubscribed": lambda: unsubscribe("orders", GROUP),
    "read on": read_on,
}


def test_a_run_goes_on_where_the_last_one_ended(standing: TopicState) -> None:
    check(standing, "default")
    check_group_unchanged(standing, "default")
    assert stands_at(GROUP) == standing.position
    assert reads_log(GROUP)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_group_that_does_not_fit_the_archive_is_a_gap(
    standing: TopicState, change: Callable[[], Any]
) -> None:
    change()
    with pytest.raises(LogGap, match=r"may be deleted. .* set fail_on_data_loss=False"):
        check(standing, "default")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_group_that_was_changed_meanwhile_has_held_back_nothing(
    standing: TopicState, change: Callable[[], Any]
) -> None:
    change()
    with pytest.raises(LogGap, match="This batch added nothing"):
        check_group_unchanged(standing, "default")


def test_an_archive_without_a_batch_is_of_a_group_that_has_read_nothing(standing: TopicState) -> None:
    with pytest.raises(LogGap, match="the group wrote another archive"):
        check(of(0, begun=False), "default")
    unsubscribe("orders", GROUP)
    check(of(0, begun=False), "default")


def test_a_group_that_a_killed_run_has_not_moved_is_moved(standing: TopicState) -> None:
    """The killed run has committed the batch, so its messages are in the archive."""
    last = in_log("orders")[-1]
    told = of(last, standing.generation)
    check(told, "default")
    settled = catch_up_group(told, "default")
    assert (settled.position, stands_at(GROUP)) == (last, last)
    with override_settings(MQUEUE=QUICK):
        collect("orders")
    assert in_log("orders") == []


def test_what_was_moved_is_deleted_and_nothing_else(standing: TopicState) -> None:
    rest = in_log("orders")[3:]
    with override_settings(MQUEUE=QUICK):
        collect("orders")
    assert in_log("orders") == rest


def test_a_group_that_is_not_registered_any_more_is_not_moved(standing: TopicState) -> None:
    subscribe_again()
    with pytest.raises(LogGap, match="The batch itself is complete"):
        move(of(in_log("orders")[-1], standing.generation), "default")
    assert stands_at(GROUP) == 0


def test_one_reader_at_a_time(quick_hearts: None) -> None:
    publish("orders", 1)
    with streams.reading(GROUP):  # noqa: SIM117
        with pytest.raises(GroupTaken, match="is alive"), streams.reading(GROUP):
            pass
    with streams.reading(GROUP):
        pass


def test_a_run_that_was_silent_and_replaced_lets_nothing_be_deleted(
    standing: TopicState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up when another run is active, whose archive may hold fewer messages."""
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 3600)
    with streams.reading(GROUP) as me:
        SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
        with streams.reading(GROUP) as other:
            reached = replace(standing, position=in_log("orders")[-1])
            with pytest.raises(GroupTaken, match="another reader replaced it"):
                move(reached, "default", me)
            assert stands_at(GROUP) == standing.position
            move(reached, "default", other)
    assert stands_at(GROUP) == reached.position


def finished(above: int = 0, age_ms: int = HOUR) -> int:
    return finished_upto("default", "orders", above, in_log("orders")[-1], age_ms)


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_history_is_finished_when_all_groups_are_done() -> None:
    first, second, third = (publish("orders", n, key=f"k{n}").offset for n in range(3))
    assert finished() == third, "nothing is delivered to nobody"
    subscribe("orders", "billing")
    following.follow("orders", GROUP, 0, 0, using="default")
    assert finished() == first - 1
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 3):
            if delivery.offset != second:
                delivery.ack()
        settle_workers(subscription)
        assert finished() == first
        subscribe("orders", "late", start=third)
        assert finished(first) == first
        Message.objects.filter(offset__lte=second).update(published_at=1_700_000_000_000)
        assert finished() == second, "the late group is not done with the third"
        assert finished(age_ms=0) == third
    unsubscribe("orders", "late")
    assert finished() == third


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_what_is_for_another_group_holds_up_no_history() -> None:
    subscribe("orders", "billing")
    subscribe("orders", "audit")
    publish("orders", 1, group="billing")
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 1):
            delivery.ack()
        settle_workers(subscription)
    assert finished() == in_log("orders")[-1]
