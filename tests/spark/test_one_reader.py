"""A group has one reader at a time, which reads everything: repeated batches, readers that return late, and starts.

The tests call the planner as Spark calls it. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import F
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.exceptions import GroupTaken, LogGap
from django_mqueue.models import Message, Offset, SubscriberHeartbeat
from django_mqueue.spark.database import following, heartbeating
from django_mqueue.spark.reader import planning, settling
from django_mqueue.spark.streams import incarnations
from django_mqueue.spark.streams.checkpoint import Offsets
from django_mqueue.spark.streams.query import Query
from django_mqueue.store import offsets
from django_mqueue.store.leases import Holder
from tests.support.subscribers import QUICK, collect, consume, in_log, lock_topic, settle_and_collect
from tests.support.transactions import Background, HeldTransaction, wait_until

from .conftest import Make
from .streams import newest, stands_at

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"


def two(make: Make) -> tuple[Query, Query]:
    """Return two queries that were created at once, so that neither is certainly the later one."""
    now = incarnations.clock()
    return make(created=now), make(created=now)


@pytest.fixture
def beats_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests move heartbeats back by 60 seconds."""
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 3600)
    monkeypatch.setattr(following, "ALIVE_MS", 59_000)


def rows(query: Query, begun: Offsets, ended: Offsets) -> int:
    return sum(each.rows for each in query.ranges(begun, ended))


def cut_off(query: Query) -> tuple[Offsets, Offsets]:
    """Stop a query after four of ten messages are done and the rest is planned. Return that second batch."""
    publish_many("orders", range(10))
    first = query.latest(query.initial(), 4)
    query.done(first)
    ended = query.latest(first, None)
    query.stop()
    return first, ended


def forget(offset: int) -> None:
    """Run garbage collection. All messages up to ``offset`` were done."""
    with override_settings(MQUEUE=QUICK):
        collect("orders")
    assert in_log("orders")[0] > offset


def read_on(make: Make) -> None:
    """Another query reads three messages for the group and stops. Garbage collection deletes them."""
    newer = make()
    half = newer.latest(newer.initial(), 3)
    newer.done(half)
    newer.stop()
    forget(half.above("orders"))


def register_anew(make: Make) -> None:
    unsubscribe("orders", GROUP)
    place = following.follow("orders", GROUP, 0, 0, using="default")
    assert place.above == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [(read_on, "another query has read for the group"), (register_anew, "registered again")],
    ids=["read on", "registered anew"],
)
def test_a_batch_that_is_run_again_is_whole(make: Make, change: Callable[[Make], None], why: str) -> None:
    """Spark asks for the batch's ranges first."""
    first, ended = cut_off(make())
    again = make()
    assert rows(again, first, ended) == 6, "nobody has changed anything yet"
    again.stop()
    change(make)
    with pytest.raises(LogGap, match=why):
        make().ranges(first, ended)
    careless = make(failOnDataLoss="false")
    left = [offset for offset in in_log("orders") if offset > first.above("orders")]
    with pytest.warns(UserWarning, match=why):
        assert rows(careless, first, ended) == len(left)
    careless.done(ended)
    assert stands_at(GROUP) == ended.above("orders") == newest()


def test_what_is_deleted_while_a_batch_is_planned_is_told(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deleted messages are missing in the count of rows, so no task can notice the loss."""
    query = make()
    publish_many("orders", range(10))
    begun = query.initial()
    ended = query.latest(begun, None)
    ranges = planning.ranges

    def late(*given: Any) -> Any:
        third, life = in_log("orders")[2], ended.generations["orders"]
        following.move("orders", GROUP, life, third, using="default")
        forget(third)
        return ranges(*given)

    monkeypatch.setattr("django_mqueue.spark.streams.query.ranges", late)
    with pytest.raises(LogGap, match="another query has read for the group"):
        query.ranges(begun, ended)


def test_who_runs_a_batch_again_is_the_reader(make: Make, quick_hearts: None) -> None:
    """The batch may take hours before Spark asks for the next one."""
    first, ended = cut_off(make())
    make().ranges(first, ended)
    other = make()
    with pytest.raises(GroupTaken, match="is alive"):
        other.done(other.initial())


@pytest.mark.usefixtures("beats_never")
def test_a_reader_that_was_replaced_moves_nothing(make: Make) -> None:
    """The first reader had no connection, and its heartbeat expired. Then it returns."""
    publish_many("orders", range(10))
    first, second = two(make)
    begun = first.initial()
    ended = first.latest(begun, None)
    SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
    anew = second.initial()
    planned = second.latest(anew, 3)
    with pytest.raises(GroupTaken, match="another reader replaced it") as caught:
        first.done(ended)
    assert caught.value.subscribers == [f"spark-{anew.query[:12]}"]
    assert stands_at(GROUP) == 0
    assert rows(second, anew, planned) == 3
    second.done(planned)
    assert stands_at(GROUP) == planned.above("orders")


@pytest.mark.usefixtures("beats_never")
def test_a_reader_that_was_replaced_reads_nothing(make: Make) -> None:
    publish_many("orders", range(10))
    first, second = two(make)
    begun = first.initial()
    ended = first.latest(begun, None)
    SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
    second.done(second.initial())
    with pytest.raises(GroupTaken, match="another reader replaced it"):
        first.ranges(begun, ended)
    first.stop()
    assert SubscriberHeartbeat.objects.get().deregistered_at is None, "the other one is at work"


@pytest.mark.usefixtures("beats_never")
def test_a_process_that_ends_leaves_its_successor_alone(make: Make) -> None:
    """The process ended slowly or was paused, while its checkpoint was started again."""
    publish_many("orders", range(10))
    query, again = two(make)
    ended = query.latest(query.initial(), 4)
    query.done(ended)
    again.done(ended)
    later = again.latest(ended, None)
    query.stop()
    again.done(later)
    assert stands_at(GROUP) == later.above("orders") == newest()
    third = Holder(GROUP, "orders", "spark-third", "third")
    with Background(lambda: following.join_all([third], using="default")) as joining:

        def told() -> bool:
            SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") + 1)  # Like a heartbeat.
            return joining.is_done

        wait_until(told, "the third one is told")
        with pytest.raises(GroupTaken, match="is alive"):
            joining.result()


@pytest.mark.usefixtures("beats_never")
def test_a_process_whose_successor_reads_moves_nothing(make: Make) -> None:
    publish_many("orders", range(10))
    query, again = two(make)
    ended = query.latest(query.initial(), 4)
    query.done(ended)
    later = query.latest(ended, None)
    again.done(ended)
    with pytest.raises(GroupTaken, match="was started again in another process"):
        query.ranges(ended, later)
    with pytest.raises(GroupTaken, match="was started again in another process"):
        query.done(later)
    assert rows(again, ended, later) == 6
    again.done(later)
    assert stands_at(GROUP) == newest()


@pytest.mark.usefixtures("beats_never")
def test_a_process_that_is_back_joins_no_new_topic_in_place_of_its_successor(make: Make) -> None:
    """The process was paused after a batch whose end has a new topic. Meanwhile its checkpoint was started again."""
    publish_many("orders-1", range(10))
    old, again = (make(subscribePattern="orders-.*") for _ in range(2))
    begun = old.latest(old.initial(), 4)
    old.done(begun)
    publish_many("orders-2", range(10))
    wait_until(lambda: len(old.latest(begun, 4).next) == 2, "the new topic is seen")
    ended = old.latest(begun, 4)
    later = again.latest(ended, None)
    with pytest.raises(GroupTaken, match="was started again in another process"):
        old.latest(ended, None)
    old.stop()
    left = [offset for topic in later.next for offset in in_log(topic) if offset > ended.above(topic)]
    assert rows(again, ended, later) == len(left) > 10
    again.done(later)


@pytest.mark.usefixtures("beats_never")
def test_a_process_that_is_back_behind_its_successor_leaves_it_alone(make: Make) -> None:
    """The process was paused before it joined the group. Its successor has continued from the same checkpoint."""
    first, ended = cut_off(make())
    old, again = two(make)
    again.done(ended)
    with pytest.raises(LogGap, match="another query has read for the group since"):
        old.done(first)
    old.stop()
    publish("orders", 11)
    later = again.latest(ended, None)
    assert rows(again, ended, later) == 1
    again.done(later)
    assert stands_at(GROUP) == newest()


@pytest.mark.usefixtures("beats_never")
@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_process_that_is_back_in_its_successor_s_first_batch_leaves_it_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    """The process was paused before it joined the group.

    The group's offset equals its checkpoint until that batch is done; then it is higher.
    """
    first, ended = cut_off(make())
    old = make(failOnDataLoss=strict)
    clock = incarnations.clock
    monkeypatch.setattr(incarnations, "clock", lambda: clock() + 60)
    again = make(failOnDataLoss=strict)
    assert rows(again, first, ended) == 6
    with pytest.raises(GroupTaken, match="was started again in another process"):
        old.done(first)
    again.done(ended)
    with pytest.raises(GroupTaken, match="was started again in another process"):
        old.done(first)
    old.stop()
    assert stands_at(GROUP) == ended.above("orders")
    third = make(failOnDataLoss=strict)
    third.done(ended)
    with pytest.raises(GroupTaken, match="was started again in another process"):
        again.ranges(ended, ended)
    publish("orders", 11)
    assert rows(third, ended, third.latest(ended, None)) == 1


@pytest.mark.usefixtures("beats_never")
def test_a_process_takes_the_place_of_a_later_one_that_is_dead_or_has_left(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ended = cut_off(make())
    old, other = two(make)
    clock = incarnations.clock
    monkeypatch.setattr(incarnations, "clock", lambda: clock() + 60)
    left, dead = two(make)
    left.ranges(first, ended)
    left.stop()
    assert rows(old, first, ended) == 6
    dead.ranges(first, ended)
    SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
    assert rows(other, first, ended) == 6
    other.done(ended)


def test_a_reader_that_was_silent_and_not_replaced_goes_on(make: Make) -> None:
    publish_many("orders", range(10))
    query = make()
    begun = query.initial()
    ended = query.latest(begun, 4)
    SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
    assert rows(query, begun, ended) == 4
    query.done(ended)
    assert stands_at(GROUP) == ended.above("orders")


def registered() -> list[tuple[Any, ...]]:
    """Return the registrations and positions of all groups."""
    rows = Offset.objects.exclude(consumer_group="").order_by("id")
    return list(
        rows.values_list("id", "consumer_group", "topic", "partition_key", "offset_acked", "scan_offset")
    )


@pytest.mark.parametrize("is_registered", [True, False], ids=["registered", "new"])
def test_a_start_that_is_refused_for_one_topic_changes_none(make: Make, *, is_registered: bool) -> None:
    """Workers consume one of the two topics, and are about to consume the other one."""
    publish("orders", 1)
    publish("payments", 1)
    if is_registered:
        subscribe("orders", GROUP)
    with override_settings(MQUEUE=QUICK):
        with Subscription("payments", GROUP) as worker:
            consume(worker, 1)
        before = registered()
        with pytest.raises(GroupTaken, match="workers consume for it"):
            make(subscribe="orders,payments").initial()
        assert registered() == before
        if is_registered:
            with Subscription("orders", GROUP) as worker:
                consume(worker, 1)


def test_a_start_beside_a_living_reader_of_one_topic_changes_none(make: Make, quick_hearts: None) -> None:
    publish("orders", 1)
    publish("payments", 1)
    payments = make(subscribe="payments")
    payments.done(payments.initial())
    before = registered()
    both = make(subscribe="orders,payments")
    with pytest.raises(GroupTaken, match="is alive"):
        both.initial()
    assert registered() == before
    payments.stop()
    both.done(both.initial())


def test_new_topics_of_which_one_is_refused_change_none(make: Make) -> None:
    """The new topics match the pattern of a running query."""
    publish("orders-1", 1)
    query = make(subscribePattern="orders-.*")
    begun = query.initial()
    publish("orders-2", 1)
    publish("orders-3", 1)
    with override_settings(MQUEUE=QUICK), Subscription("orders-3", GROUP) as worker:
        consume(worker, 1)
    before = registered()
    with pytest.raises(GroupTaken, match="workers consume for it"):
        query.latest(begun, None)
    assert registered() == before


def test_a_connection_that_is_lost_at_the_beginning_is_opened_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restarted query has become the reader, and is about to read the group's offset."""
    _, ended = cut_off(make())
    position, killed = following.position, list[str]()

    def cut(*given: Any, using: str) -> following.ReaderPosition | None:
        if not killed:
            killed.append(using)
            with connection.cursor() as cursor:
                cursor.execute(f"KILL {connections[using].connection.thread_id()}")
        return position(*given, using=using)

    monkeypatch.setattr(following, "position", cut)
    again = make()
    again.done(ended)
    assert killed, "nobody asked: this proves nothing"
    assert stands_at(GROUP) == ended.above("orders") == newest()


def was_set_back(make: Make) -> tuple[Offsets, int]:
    """Return the checkpoint of a batch whose messages were lost in a restore, and the last offset now.

    The batch was the second half of ten messages. Another group reads the messages after the first half.
    """
    publish_many("orders", range(5))
    subscribe("orders", "billing", "latest")
    first = make()
    early = first.latest(first.initial(), None)
    first.done(early)
    rows = list(Offset.objects.values())
    publish_many("orders", range(5))
    ended = first.latest(early, None)
    first.done(ended)
    first.stop()
    fifth, tenth = in_log("orders")[4], in_log("orders")[-1]
    assert tenth == ended.above("orders")
    set_back(fifth, rows)
    return ended, fifth


def go_on(make: Make, ended: Offsets, fifth: int, *, careless: bool) -> None:
    if careless:
        again = make(failOnDataLoss="false")
        with pytest.warns(UserWarning, match="it was restored to an earlier state"):
            again.done(ended)
    else:
        with pytest.raises(
            LogGap, match=f"this database has never settled anything above {fifth}: it was restored"
        ):
            make().done(ended)
    assert stands_at(GROUP) == fifth


@pytest.mark.parametrize("careless", [False, True])
def test_a_query_of_a_database_that_was_set_back_settles_nothing(make: Make, careless: bool) -> None:
    """The checkpoint has offsets that new messages reuse. Every group must receive those messages."""
    ended, fifth = was_set_back(make)
    go_on(make, ended, fifth, careless=careless)
    reused = ended.above("orders") - fifth
    publish_many("orders", range(reused))
    assert in_log("orders")[-1] == ended.above("orders")
    with override_settings(MQUEUE=QUICK), Subscription("orders", "billing") as subscription:
        consume(subscription, reused)


@pytest.mark.parametrize("careless", [False, True])
def test_what_commits_late_in_a_database_that_was_set_back_comes_to_every_group(
    make: Make, careless: bool
) -> None:
    """New messages reuse all offsets up to the checkpoint's. One of them is not committed when the query reads."""
    ended, fifth = was_set_back(make)
    before = ended.above("orders") - fifth - 2
    publish_many("orders", range(before))
    with (
        HeldTransaction(lambda: publish("orders", "late", key="k")) as late,
        override_settings(MQUEUE=QUICK),
        Subscription("orders", "billing") as subscription,
    ):
        assert publish("orders", "overtakes it", key="k").offset == ended.above("orders")
        go_on(make, ended, fifth, careless=careless)
        consume(subscription, before + 1)
        settle_and_collect(subscription)
        late.commit()
        assert [one.payload for one in consume(subscription, 1)] == ["late"]


@pytest.mark.filterwarnings("ignore:topic 'orders' is read up to offset")
@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_a_batch_ends_at_what_all_know_to_be_settled(
    make: Make, monkeypatch: pytest.MonkeyPatch, ends_by_itself: bool
) -> None:
    """The batch's end, in a checkpoint, shows later whether the database was restored.

    It is limited to the stored settled offset, which is written when the topic's row is free.
    """
    monkeypatch.setattr(settling, "SETTLE_FOR", 0.2)
    query = make()
    publish("orders", 1)
    begun = query.latest(query.initial(), None)
    query.done(begun)
    publish("orders", 2)
    with HeldTransaction(lambda: lock_topic("orders")):
        for _ in range(3):
            if ends_by_itself:
                query.set_goal()
            assert query.latest(begun, None) == begun
    if ends_by_itself:
        query.set_goal()
    ended = query.latest(begun, None)
    assert ended.above("orders") == newest() == offsets.settled("default", "orders")


def test_a_goal_is_found_for_a_topic_that_has_no_group_yet(make: Make) -> None:
    publish("orders", 1)
    query = make()
    query.set_goal()
    ended = query.latest(query.initial(), None)
    assert ended.above("orders") == newest()
    query.done(ended)
    assert stands_at(GROUP) == newest()


def set_back(offset: int, rows: Iterable[Mapping[str, Any]]) -> None:
    Message.objects.filter(offset__gt=offset).delete()
    for row in rows:
        Offset.objects.filter(pk=row["id"]).update(**row)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {offset + 1:d}")
