"""A streaming query's group: deletion waits for it, and no worker consumes for it.

Its offset only moves with durable batches. The tests call the planner as Spark calls it. Nothing here needs Spark.
"""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.exceptions import GroupReadsLog, GroupTaken, LogGap
from django_mqueue.models import Message, PartitionLease, SubscriberHeartbeat
from django_mqueue.policy.encoding import encode
from django_mqueue.protocol.retention.garbage_collection import Collector
from django_mqueue.spark.database import following, heartbeating
from django_mqueue.spark.errors import NoSuchTopic
from django_mqueue.spark.reader.ranges import Range
from django_mqueue.spark.streams.checkpoint import Offsets
from django_mqueue.spark.streams.query import Query
from django_mqueue.store import log
from django_mqueue.store.leases import Holder
from tests.support.subscribers import QUICK, consume
from tests.support.transactions import HeldTransaction

from .conftest import Make
from .streams import change_by_hand, newest, reads_log, settle, stands_at

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"


@pytest.fixture
def query(make: Make) -> Query:
    return make()


def rows(ranges: list[Range]) -> int:
    return sum(each.rows for each in ranges)


def forward(query: Query, begun: Offsets) -> Offsets:
    """Plan one batch and make it durable. Return its end."""
    ended = query.latest(begun, None)
    query.ranges(begun, ended)
    query.done(ended)
    return ended


def test_deletion_waits_for_what_is_not_durably_done(query: Query) -> None:
    publish_many("orders", range(10))
    begun = query.initial()
    first = query.latest(begun, 4)
    assert rows(query.ranges(begun, first)) == 4
    with override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01}):
        Collector("default", "orders").collect_page()
        assert Message.objects.filter(topic="orders").count() == 10
        query.done(first)
        Collector("default", "orders").collect_page()
        assert Message.objects.filter(topic="orders").count() == 6
        forward(query, first)
        Collector("default", "orders").collect_page()
        assert not Message.objects.filter(topic="orders").exists()


def test_a_batch_does_not_pass_what_may_still_commit(query: Query) -> None:
    publish("orders", 0)
    begun = forward(query, query.initial())
    assert begun.above("orders") == newest()
    late = connection.copy()
    try:
        late.set_autocommit(False)
        with late.cursor() as cursor:
            log.insert(cursor, "orders", [log.NewRow("late", "late", encode(1, "", None, 100))])
        publish("orders", 2)
        first = query.latest(begun, None)
        assert rows(query.ranges(begun, first)) == 0
        late.commit()
    finally:
        late.close()
    assert rows(query.ranges(first, query.latest(first, None))) == 2


def test_a_start_moves_forward_alone(query: Query) -> None:
    publish_many("orders", range(10))
    begun = query.initial()
    first = query.latest(begun, 4)
    last = query.latest(first, None)
    query.done(last)
    place = following.position("orders", GROUP, using="default")
    assert place is not None
    following.move("orders", GROUP, place.generation, first.above("orders"), using="default")
    assert stands_at(GROUP) == last.above("orders") == newest()


def test_what_a_batch_begins_with_is_done(query: Query) -> None:
    """Spark calls ``commit`` one batch late, and never for the last batch.

    The start of the next batch shows that the last one is durable.
    """
    publish_many("orders", range(3))
    first = query.latest(query.initial(), None)
    assert stands_at(GROUP) == 0
    query.latest(first, None)
    assert stands_at(GROUP) == newest()


def test_no_start_lies_above_what_is_settled() -> None:
    """A start above the settled offset would skip messages that commit late, even if the caller gives that start."""
    publish("orders", 0)
    known = settle("orders")
    with HeldTransaction(lambda: publish("orders", "late")) as publisher:
        above = publish("orders", 1).offset
        assert above is not None
        assert following.follow("orders", GROUP, above, known, using="default").above == known
        publisher.commit()
    with override_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01}):
        settle("orders")
        Collector("default", "orders").collect_page()
    assert Message.objects.filter(topic="orders").count() == 2


def test_who_leaves_does_not_take_another_along(query: Query) -> None:
    """A reader with an expired heartbeat ends while another reader is active."""
    publish("orders", 0)
    query.initial()
    slow, other = (Holder(GROUP, "orders", "spark-1", name) for name in ("slow", "other"))
    following.join_all([slow], using="default")
    SubscriberHeartbeat.objects.update(heartbeat_at=0)
    following.join_all([other], using="default")
    following.leave(slow, using="default")
    assert SubscriberHeartbeat.objects.get().deregistered_at is None


def test_workers_cannot_consume_for_it(query: Query) -> None:
    publish("orders", 1)
    query.initial()
    query.stop()
    with Subscription("orders", GROUP) as worker, pytest.raises(GroupReadsLog, match="another group"):
        worker.poll()
    assert reads_log(GROUP)


@override_settings(MQUEUE=QUICK)
def test_a_group_of_workers_is_refused(query: Query) -> None:
    publish("orders", 1)
    with Subscription("orders", GROUP) as worker:
        consume(worker, 1)
    with pytest.raises(GroupTaken, match="workers consume for it, or have done so"):
        query.initial()
    assert not reads_log(GROUP)


def test_a_group_that_was_only_registered_keeps_its_place(query: Query) -> None:
    first = publish("orders", 1)
    settle("orders")
    subscribe("orders", GROUP, start=first.offset + 1)
    publish("orders", 2)
    begun = query.initial()
    assert begun.above("orders") == first.offset
    assert reads_log(GROUP)
    assert rows(query.ranges(begun, query.latest(begun, None))) == 1


@override_settings(MQUEUE={**QUICK, "DISCOVERY_INTERVAL": 60})
def test_a_worker_that_has_just_joined_claims_nothing_any_more(query: Query) -> None:
    """The worker checks its group once a minute. Its lease belongs to an earlier registration of the group."""
    with Subscription("orders", GROUP) as worker:
        worker.poll()
        SubscriberHeartbeat.objects.all().delete()  # Before its first heartbeat.
        place = following.follow("orders", GROUP, 0, 0, using="default")
        publish("orders", 1)
        assert worker.poll() == worker.poll() == []
        assert PartitionLease.objects.exists(), "it took no lease: this proves nothing"
        assert following.position("orders", GROUP, using="default") == place


@override_settings(MQUEUE=QUICK)
def test_a_worker_that_waits_for_its_first_message_is_left_alone(query: Query) -> None:
    publish("orders", 1)
    subscribe("orders", GROUP, start="latest")
    with Subscription("orders", GROUP) as worker:
        with pytest.raises(GroupTaken) as caught:
            query.initial()
        assert caught.value.subscribers == [worker.name]
        publish("orders", 2)
        consume(worker, 1)


@pytest.mark.usefixtures("quick_hearts")
def test_a_second_query_is_refused_while_the_first_lives(query: Query, make: Make) -> None:
    publish("orders", 1)
    query.done(query.initial())
    second = make()
    begun = second.initial()
    with pytest.raises(GroupTaken, match="each query needs its own group"):
        second.done(begun)
    query.stop()
    make().done(begun)


@pytest.mark.usefixtures("quick_hearts")
def test_the_place_of_a_dead_query_is_taken_when_its_time_is_up(
    query: Query, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 3600)
    monkeypatch.setattr(following, "ALIVE_MS", 1500)
    publish("orders", 1)
    query.done(query.initial())
    second = make()
    second.done(second.initial())


def test_the_first_batch_may_come_again(query: Query, make: Make) -> None:
    """Spark then asks again where the query begins. The new query does not wait for the killed one."""
    publish_many("orders", range(3))
    begun = query.initial()
    query.done(begun)
    ended = query.latest(begun, None)
    again = make()
    anew = again.initial()
    assert anew.above("orders") == begun.above("orders")
    assert anew.query != begun.query
    assert rows(again.ranges(anew, ended)) == 3
    again.done(ended)
    assert stands_at(GROUP) == newest()


def test_the_same_query_goes_on_at_once_after_it_was_killed(query: Query, make: Make) -> None:
    publish_many("orders", range(3))
    ended = forward(query, query.initial())
    publish("orders", 3)
    again = make()
    again.done(ended)
    assert rows(again.ranges(ended, again.latest(ended, None))) == 1


@pytest.mark.parametrize("how", ["unsubscribed", "reset", "subscribed again"])
def test_a_group_that_was_changed_by_hand_stops_its_query(query: Query, make: Make, how: str) -> None:
    publish_many("orders", range(3))
    begun = query.initial()
    query.done(begun)
    ended = query.latest(begun, None)
    change_by_hand(GROUP, how)
    with pytest.raises(LogGap, match="unsubscribed from topic 'orders', reset, or registered again"):
        query.done(ended)
    query.stop()
    again = make()
    with pytest.raises(LogGap, match="new checkpointLocation"):
        again.done(ended)
    again.stop()
    careless = make(failOnDataLoss="false")
    with pytest.warns(UserWarning, match="may be deleted"):
        careless.done(ended)
    assert careless.latest(ended, None).generations != ended.generations
    assert stands_at(GROUP) == newest()


def test_a_checkpoint_of_an_earlier_life_is_refused(query: Query, make: Make) -> None:
    """Another query has registered the group again and has read nothing.

    The group's offset does not show deletions since then.
    """
    publish_many("orders", range(3))
    ended = forward(query, query.initial())
    query.stop()
    unsubscribe("orders", GROUP)
    other = make()
    other.initial()
    other.stop()
    with pytest.raises(LogGap, match="registered again"):
        make().done(ended)


def test_a_query_that_fell_behind_its_group_stops(query: Query, make: Make) -> None:
    publish_many("orders", range(3))
    begun = query.initial()
    query.stop()
    newer = make()
    forward(newer, newer.initial())
    newer.stop()
    again = make()
    with pytest.raises(LogGap, match="another query has read for the group"):
        again.done(begun)


def test_messages_for_other_groups_are_not_read(query: Query) -> None:
    subscribe("orders", "billing")
    publish("orders", 0)
    begun = query.initial()
    publish("orders", 1, group="billing")
    publish("orders", 2, group=GROUP)
    assert rows(query.ranges(begun, query.latest(begun, None))) == 2


def test_a_topic_that_is_not_there_is_named(query: Query) -> None:
    publish("order", 1)
    with pytest.raises(NoSuchTopic, match=r"there is no topic 'orders'.*Did you mean 'order'"):
        query.initial()
    assert following.position("orders", GROUP, using="default") is None
