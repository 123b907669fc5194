"""A batch ends just before the messages of an open transaction, and warns about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction

from django_mqueue import OutgoingMessage, publish, publish_many, subscribe
from django_mqueue.models import Message
from django_mqueue.protocol.settling import Settler
from django_mqueue.spark.reader import settling
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.reader.planning import batch
from django_mqueue.spark.streams.query import Query
from django_mqueue.store import log
from django_mqueue.store.connection import session
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., list[int]]


@pytest.fixture
def read(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that lists the offsets that a batch of topic ``orders`` would read."""
    monkeypatch.setattr(settling, "SETTLE_FOR", 0)
    monkeypatch.setattr(settling, "CHECK_EVERY", 0.001)

    def planned(**more: str) -> list[int]:
        found = batch("default", read_options({**options, "topic": "orders", **more}))
        stretches = [(each.above, each.upto) for each in found]
        rows = Message.objects.filter(topic="orders").order_by("offset")
        return [row.offset for row in rows if any(above < row.offset <= upto for above, upto in stretches)]

    return planned


@pytest.fixture(params=["nobody reads it", "a group is registered"])
def first(request: pytest.FixtureRequest, options: dict[str, str]) -> list[int]:
    """Return the offsets of ten messages. No worker runs, so nothing is settled."""
    if request.param == "a group is registered":
        subscribe("orders", "billing")
    return [each.offset for each in publish_many("orders", range(10))]


def newest_of_all() -> int:
    """Return the newest offset, also of a message that is not committed."""

    def read(cursor: Any) -> int:
        cursor.execute("SELECT MAX(`offset`) FROM queue_messages FORCE INDEX (PRIMARY)")
        return int(cursor.fetchone()[0])

    return session.run("default", read, level="READ UNCOMMITTED")


def test_a_batch_ends_before_a_transaction_that_published_and_is_open(read: Read, first: list[int]) -> None:
    id = f"late-{first[0]}"  # An INSERT of an id that was just deleted locks the gap next to it until purge is done.
    with HeldTransaction(lambda: publish("orders", "late", id=id).offset) as late:
        publish("orders", "overtakes it")
        with pytest.warns(
            UserWarning, match=rf"published offset {late.result()} \(id '{id}'\) at .* is still open"
        ):
            assert read() == first
        with pytest.warns(UserWarning, match="is still open"):
            assert read(settle="false") == first
        late.commit()
    assert read() == [*first, late.result(), late.result() + 1]


@pytest.mark.filterwarnings("error")
def test_nothing_is_left_out_above_which_a_transaction_publishes(read: Read, first: list[int]) -> None:
    with HeldTransaction(lambda: publish("orders", "late")):
        assert read() == first
        assert read(settle="false") == first


@pytest.mark.filterwarnings("error")
def test_another_topics_transaction_leaves_nothing_out(read: Read, first: list[int]) -> None:
    """The other topic uses the same gate."""
    with HeldTransaction(lambda: log_row("orders", topic="elsewhere")):
        publish("orders", "overtakes it")
        assert len(read()) == len(first) + 1


def log_row(gate: str, *, topic: str) -> None:
    with connection.cursor() as cursor:
        offset = log.insert(cursor, gate, [log.NewRow("k", "moved", log_content())])
        cursor.execute("UPDATE queue_messages SET topic = %s WHERE `offset` = %s", [topic, offset])


def log_content() -> Any:
    from django_mqueue.policy.encoding import encode

    return encode(1, "", None, 100)


@pytest.mark.filterwarnings("error")
def test_what_was_rolled_back_to_a_savepoint_leaves_nothing_out(read: Read, first: list[int]) -> None:
    """The transaction still holds its slot of the gate."""

    def undone() -> None:
        publish("other", 1)
        savepoint = transaction.savepoint()
        publish("orders", "undone")
        transaction.savepoint_rollback(savepoint)

    with HeldTransaction(undone):
        after = publish("orders", "after").offset
        assert read() == [*first, after]


def test_the_oldest_transaction_that_is_open_counts(read: Read, first: list[int]) -> None:
    with HeldTransaction(lambda: publish("orders", "first").offset) as oldest:
        publish("orders", "between")
        with HeldTransaction(lambda: publish("orders", "second")):
            publish("orders", "after")
            with pytest.warns(UserWarning, match=f"published offset {oldest.result()} "):
                assert read() == first


@pytest.mark.parametrize("rows", [1, 3])
def test_what_waits_for_a_duplicate_id_is_not_passed(read: Read, first: list[int], rows: int) -> None:
    """The server has given out all offsets of the statement. The index of topics has none of its rows yet."""

    def again() -> int:
        messages = [OutgoingMessage(number, key="k", id=f"id-{number}") for number in range(rows)]
        return publish_many("orders", messages)[0].offset

    held = HeldTransaction(lambda: publish("orders", 0, key="k", id="id-0"))
    with held, Background(again) as waiting:
        wait_for_lock_wait(waiting)
        overtaking = publish("orders", "overtakes both", key="other").offset
        with pytest.warns(UserWarning, match="is still open"):
            assert read() == first
        held.rollback()
        stored = waiting.result()
    found = read()
    assert stored in found
    assert found[-1] == overtaking or stored > overtaking


def test_what_waits_for_a_gap_in_the_index_of_ids_is_not_passed(read: Read, first: list[int]) -> None:
    """The holder of the gap has published nothing. The row is in the primary key only."""

    def lock_gap() -> None:
        with connection.cursor() as cursor:
            log.existing(cursor, "orders", [("gap", "m", "")], locking=True)

    first += [publish("orders", "bounds the gap", key="gap", id=id).offset for id in ("a", "z")]
    held = HeldTransaction(lock_gap, isolation="REPEATABLE READ")
    with held, Background(lambda: publish("orders", "waits", key="gap", id="m").offset) as waiting:
        wait_for_lock_wait(waiting)
        offset = newest_of_all()
        assert offset == first[-1] + 1
        after = publish("orders", "overtakes it", key="zzz").offset
        with pytest.warns(UserWarning, match=f"published offset {offset} "):
            assert read() == first
        held.commit()
        assert waiting.result() == offset
    assert read() == [*first, offset, after]


def test_no_read_ends_below_an_earlier_one(read: Read, first: list[int]) -> None:
    assert read() == first
    with HeldTransaction(lambda: publish("orders", "late")):
        publish("orders", "overtakes it")
        with pytest.warns(UserWarning, match="is still open"):
            assert read() == first


@pytest.mark.filterwarnings("error")
def test_a_read_up_to_a_given_offset_leaves_nothing_out_below_it(read: Read, first: list[int]) -> None:
    with HeldTransaction(lambda: publish("orders", "late")):
        publish("orders", "overtakes it")
        assert read(endingOffsets=str(first[-1] + 1)) == first
        assert read(endingOffsets=f'{{"orders": {first[4]}}}') == first[:4]


@pytest.mark.filterwarnings("error")
def test_a_transaction_that_ends_in_time_is_waited_for(
    read: Read, first: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "SETTLE_FOR", 60)
    held = HeldTransaction(lambda: publish("orders", "late").offset)
    advance, looks = Settler.advance, []

    def advanced(settler: Settler, seen: int = 0) -> int:
        looks.append(advance(settler, seen))
        if len(looks) == 3:
            held.commit()
        return looks[-1]

    with held:
        monkeypatch.setattr(Settler, "advance", advanced)
        after = publish("orders", "after").offset
        assert read() == [*first, held.result(), after]
    assert len(looks) > 3


def test_what_lets_be_deleted_ends_at_what_is_settled(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams and archives read up to the settled offset, not up to the visible messages."""
    monkeypatch.setattr(settling, "SETTLE_FOR", 0)
    publish_many("orders", range(10))
    wanted = read_options({**options, "topic": "orders"})
    with HeldTransaction(lambda: publish("orders", "late").offset) as late:
        publish("orders", "overtakes it")
        for told in (False, True):
            with pytest.warns(
                UserWarning, match=f"read up to offset 0 only.* published offset {late.result()} "
            ):
                assert settling.settled("default", ["orders"], wanted, shared=told) == {"orders": 0}


def test_all_topics_are_waited_for_at_once(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch and a stream wait for several topics no longer than for one."""
    names = [f"orders-{number}" for number in range(3)]
    advance, asked = Settler.advance, list[str]()

    def noted(settler: Settler, seen: int = 0) -> int:
        asked.append(settler.topic)
        return advance(settler, seen)

    monkeypatch.setattr(settling, "SETTLE_FOR", 0)
    monkeypatch.setattr(settling, "CHECKS", 3)
    monkeypatch.setattr(Settler, "advance", noted)
    wanted = read_options({**options, "subscribe": ",".join(names)})
    with HeldTransaction(lambda: [publish(name, 1) for name in names]):
        ended = {name: publish(name, 2).offset - len(names) for name in names}
        with pytest.warns(UserWarning, match="is still open"):
            assert settling.readable("default", names, wanted) == {
                name: held - 1 for name, held in ended.items()
            }
        assert asked == names * 4
        asked.clear()
        with pytest.warns(UserWarning, match="is still open"):
            Query(wanted).set_goal()
        assert asked == names * 4


def test_spark_counts_what_is_committed(spark: SparkSession, options: dict[str, str]) -> None:
    publish_many("orders", range(10))
    with HeldTransaction(lambda: publish("orders", "late")):
        assert spark.read.format("mqueue").options(**options, topic="orders").load().count() == 10
        publish("orders", "overtakes it")
        assert spark.read.format("mqueue").options(**options, topic="orders").load().count() == 10
