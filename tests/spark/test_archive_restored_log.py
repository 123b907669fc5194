"""A restored log reuses offsets that its archive already has. Nothing here needs Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_mqueue import publish, publish_many
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message, Offset
from django_mqueue.spark.archives.topic_state import (
    TopicState,
    catch_up_group,
    check,
    check_last,
    move,
)
from django_mqueue.spark.database import following
from django_mqueue.spark.sql.bulk import Last
from django_mqueue.store import offsets
from tests.support.subscribers import in_log

from . import streams

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"


@pytest.fixture
def standing() -> TopicState:
    """Return the state after two batches of three messages each."""
    publish_many("orders", range(3))
    third = in_log("orders")[-1]
    publish_many("orders", range(3))
    begun = catch_up_group(TopicState("orders", GROUP, {"messages": 0}), "default")
    assert streams.settle("orders") == in_log("orders")[-1]
    row = Message.objects.get(offset=in_log("orders")[-1])
    found = TopicState(
        "orders",
        GROUP,
        {"messages": row.offset},
        row.offset,
        True,
        begun.generation,
        third,
        Last(row.offset, row.message_id),
    )
    move(found, "default")
    return found


def look(standing: TopicState) -> None:
    check(standing, "default")


def set_back(standing: TopicState, group: int, settled: int) -> None:
    """Restore the log to the state without the last batch's messages."""
    Message.objects.filter(offset__gt=standing.lowest).delete()
    Offset.objects.filter(topic="orders", consumer_group=GROUP).update(offset_acked=group)
    Offset.objects.filter(topic="orders", consumer_group="").update(offset_acked=settled)


def test_what_is_not_settled_any_more_is_not_settled_by_its_archive(standing: TopicState) -> None:
    """Such a run may be allowed to pass a gap.

    Offsets are reused, and the offset before the last one is not committed yet.
    """
    set_back(standing, standing.lowest, standing.lowest)
    publish_at(standing.position)
    place = following.position("orders", GROUP, using="default")
    catch_up_group(standing, "default")
    assert following.position("orders", GROUP, using="default") == place
    with pytest.raises(LogGap, match="it was restored to an earlier state"):
        move(standing, "default")
    assert offsets.settled("default", "orders") == standing.lowest


def publish_at(offset: int, topic: str = "orders") -> None:
    new = publish(topic, "new", id="new").offset
    Message.objects.filter(offset=new).update(offset=offset)


def test_a_log_that_went_on_is_the_one_that_was_archived(standing: TopicState) -> None:
    look(standing)
    publish_many("orders", range(3))
    look(standing)


def test_messages_that_are_deleted_tell_nothing(standing: TopicState) -> None:
    Message.objects.filter(topic="orders").delete()
    look(standing)


def test_a_run_that_was_killed_before_it_moved_its_group_is_no_sign(standing: TopicState) -> None:
    Offset.objects.filter(topic="orders", consumer_group=GROUP).update(offset_acked=standing.lowest)
    look(standing)


def test_an_archive_whose_messages_were_erased_has_no_last_message(standing: TopicState) -> None:
    look(replace(standing, last=None))


def test_what_was_settled_once_is_not_any_more(standing: TopicState) -> None:
    set_back(standing, standing.lowest, standing.lowest)
    with pytest.raises(LogGap, match=f"this database has never settled an offset above {standing.lowest}"):
        look(standing)


@pytest.mark.parametrize("topic", ["orders", "parcels"])
def test_the_last_archived_message_s_offset_is_another_one_s(standing: TopicState, topic: str) -> None:
    """The other message may be in the same topic or another one, because all topics share the offsets."""
    set_back(standing, standing.lowest, standing.position + 1)
    publish_at(standing.position, topic)
    with pytest.raises(LogGap, match=f"now belongs to id 'new' in topic '{topic}'"):
        look(standing)


def test_a_group_is_where_it_was_before(standing: TopicState) -> None:
    """This is found even if no message has the last archived offset, as after a rolled back transaction."""
    set_back(standing, standing.lowest - 1, standing.position + 1)
    with pytest.raises(
        LogGap, match=f"is at offset {standing.lowest - 1}, but was at {standing.lowest} before"
    ):
        look(standing)


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_database_that_is_set_back_while_it_is_archived_adds_nothing(
    standing: TopicState, how: str
) -> None:
    check_last(standing, "default")
    set_back(standing, standing.lowest, standing.lowest)
    if how == "another":
        publish_at(standing.position)
    with pytest.raises(LogGap, match="This batch added nothing"):
        check_last(standing, "default")
