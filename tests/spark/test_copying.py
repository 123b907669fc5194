"""Copies are stored once, even if a run is repeated or the copies were deleted. Nothing here needs Spark."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe, unsubscribe
from django_mqueue.exceptions import NotRegistered, Superseded
from django_mqueue.models import Message
from django_mqueue.spark.database import copying
from django_mqueue.spark.database.copied_content import HEADER, Original, copied, copy_id
from django_mqueue.spark.database.copying import CopyRun
from django_mqueue.spark.sql import copies
from django_mqueue.spark.sql.copies import Copy
from django_mqueue.store.connection import session
from django_mqueue.store.log import NewRow
from tests.support.subscribers import QUICK, consume, in_log, payloads_in_log, settle_and_collect
from tests.support.transactions import (
    PATIENCE,
    Background,
    HeldTransaction,
    is_waiting_for_lock,
    wait,
    wait_for_lock_wait,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)

RUN = CopyRun("replay", "spring", "orders", 2)
ONE = Original(7, "ada", "id-7", "placed", "json", {"by": "web"}, b'{"order":1.50}', 1_700_000_000_123)


@pytest.fixture
def begun() -> CopyRun:
    return begin(RUN)


def begin(run: CopyRun) -> CopyRun:
    session.run("default", lambda cursor: copying.begin(cursor, run, 1000, 5))
    return run


def made(run: CopyRun, *offsets: int, key: str = "ada") -> list[Copy]:
    found = []
    for offset in offsets:
        one = Original(offset, key, f"id-{offset}", "", "json", {}, str(offset).encode(), 0)
        row = NewRow(key, copy_id(run.name, offset), copied(one, "orders", run.name), run.group)
        found.append(Copy(offset, row))
    return found


def payloads(topic: str = "orders") -> list[int]:
    return [int(payload) for payload in payloads_in_log(topic)]


def test_each_is_stored_once(begun: CopyRun) -> None:
    assert copying.append("default", begun, 0, made(begun, 3, 5)) == 2
    assert copying.append("default", begun, 0, made(begun, 3, 5)) == 0
    assert copying.append("default", begun, 0, made(begun, 5, 8, 9)) == 2
    assert copying.append("default", begun, 1, made(begun, 4, key="bob")) == 1
    assert payloads() == [3, 5, 8, 9, 4]
    assert copying.copied("default", begun) == 5
    assert copying.not_stored("default", begun, 0, made(begun, 9, 10)) == made(begun, 10)


@override_settings(MQUEUE=QUICK)
def test_what_was_eaten_and_deleted_is_not_stored_again(begun: CopyRun) -> None:
    """This holds for copies to all groups, and for copies to one group.

    No other group holds back deletion of the latter.
    """
    alone = begin(CopyRun("replay", "alone", "orders", 1, "billing"))
    with Subscription("orders", "billing") as worker:
        assert copying.append("default", begun, 0, made(begun, 3)) == 1
        assert copying.append("default", alone, 0, made(alone, 4)) == 1
        consume(worker, 2)
        settle_and_collect(worker)
        assert in_log("orders") == []
        assert copying.append("default", begun, 0, made(begun, 3)) == 0
        assert copying.append("default", alone, 0, made(alone, 4)) == 0
        assert in_log("orders") == []


def test_an_id_that_is_there_already_is_left_alone(begun: CopyRun) -> None:
    publish("orders", 4, key="ada", id=copy_id("spring", 4))
    assert copying.append("default", begun, 0, made(begun, 3, 4, 5)) == 2
    assert payloads() == [4, 3, 5]
    assert copying.append("default", begun, 0, made(begun, 4, 5)) == 0


def test_of_two_at_once_the_second_waits_and_stores_the_rest(begun: CopyRun) -> None:
    with (
        HeldTransaction(lambda: copying.append("default", begun, 0, made(begun, 1, 2))) as first,
        Background(lambda: copying.append("default", begun, 0, made(begun, 1, 2, 3))) as second,
    ):
        wait_for_lock_wait(second)
        first.commit()
        assert second.result() == 1
    assert payloads() == [1, 2, 3]


def test_of_two_at_once_the_second_believes_the_first_whose_copies_are_gone(
    begun: CopyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first's copies are consumed and deleted before the second stores its own.

    Their ids are no longer in the log.
    """
    insert, reached, go = copies.insert, threading.Event(), threading.Event()

    def slow(cursor: CursorWrapper, topic: str, some: Sequence[Copy]) -> int:
        reached.set()
        assert go.wait(PATIENCE)
        return insert(cursor, topic, some)

    with HeldTransaction(lambda: copying.append("default", begun, 0, made(begun, 1, 2))) as first:
        monkeypatch.setattr(copies, "insert", slow)
        with Background(lambda: copying.append("default", begun, 0, made(begun, 1, 2))) as second:
            wait_until(
                lambda: reached.is_set() or is_waiting_for_lock(second.connection_id),
                "the second is on its way",
                every=0.25,  # The server refreshes only after a pause in reads.
            )
            first.commit()
            Message.objects.all().delete()
            go.set()
            assert second.result() == 0
    assert payloads() == []


def test_of_two_at_once_the_second_stores_all_if_the_first_rolls_back(begun: CopyRun) -> None:
    with (
        HeldTransaction(lambda: copying.append("default", begun, 0, made(begun, 1, 2))) as first,
        Background(lambda: copying.append("default", begun, 0, made(begun, 1, 2, 3))) as second,
    ):
        wait_for_lock_wait(second)
        first.rollback()
        assert second.result() == 3
    assert payloads() == [1, 2, 3]


def test_a_group_that_is_not_registered_is_given_nothing() -> None:
    run = begin(CopyRun("replay", "alone", "orders", 1, "billing"))
    with pytest.raises(NotRegistered):
        copying.append("default", run, 0, made(run, 1))
    subscribe("orders", "billing")
    assert copying.append("default", run, 0, made(run, 1)) == 1
    unsubscribe("orders", "billing")
    with pytest.raises(NotRegistered):
        copying.append("default", run, 0, made(run, 2))


def test_who_comes_after_the_end_stores_nothing(begun: CopyRun) -> None:
    copying.append("default", begun, 0, made(begun, 1))

    session.run("default", lambda cursor: copying.finish(cursor, begun))
    with pytest.raises(Superseded, match="replay 'spring' has ended"):
        copying.append("default", begun, 0, made(begun, 2))
    assert copying.wait_us("default", begun, 50, 1000.0) == 0
    head = copying.head("default", begun)
    assert head is not None
    assert (head.finished, head.number) == (True, 5)
    assert copying.lanes_of("default", begun) == 0


def test_a_run_that_has_stored_nothing_can_be_given_up(begun: CopyRun) -> None:
    assert session.run("default", lambda cursor: copying.give_up(cursor, begun))
    assert copying.head("default", begun) is None
    with pytest.raises(Superseded, match="replay 'spring' has ended, or was given up"):
        copying.append("default", begun, 0, made(begun, 1))


def test_a_run_that_has_stored_something_is_not_given_up(begun: CopyRun) -> None:
    """A run that stores its first copies at this moment is not given up either."""
    with (
        HeldTransaction(lambda: copying.append("default", begun, 1, made(begun, 1))) as first,
        Background(lambda: session.run("default", lambda cursor: copying.give_up(cursor, begun))) as second,
    ):
        wait_for_lock_wait(second)
        first.commit()
        assert not second.result()
    assert copying.copied("default", begun) == 1
    assert copying.head("default", begun) is not None


def test_beginning_again_changes_nothing(begun: CopyRun) -> None:
    copying.append("default", begun, 0, made(begun, 1))
    begin(begun)
    assert copying.append("default", begun, 0, made(begun, 1)) == 0
    assert copying.lanes_of("default", begun) == 2


def test_runs_of_other_names_and_topics_are_others(begun: CopyRun) -> None:
    copying.append("default", begun, 0, made(begun, 1))
    for other in (CopyRun("replay", "autumn", "orders", 2), CopyRun("replay", "spring", "mail", 2)):
        assert copying.append("default", begin(other), 0, made(other, 1)) == 1


def test_turns_are_handed_out_by_the_rate(begun: CopyRun) -> None:
    """All callers together get the rate's number of messages in each tenth of a second."""
    copying.wait_us(
        "default", begun, 3_600_000, 1000.0
    )  # An hour ahead: no turn below can start when it is requested.
    ends = []
    for _ in range(20):
        assert copying.wait_us("default", begun, 50, 1000.0) > 0
        mark = copies.mark("default", "orders", begun.mark("turn"))
        assert mark is not None
        ends.append(mark.position)
    assert [later - before for before, later in pairwise(ends)] == [50_000] * 19
    buckets = Counter((end - ends[0]) // 100_000 for end in ends)
    assert {count * 50 for count in buckets.values()} == {100}


def test_turns_that_nobody_took_are_gone(begun: CopyRun) -> None:
    copying.wait_us("default", begun, 1, 1000.0)
    wait(0.05)
    assert copying.wait_us("default", begun, 1, 1000.0) == 0


def test_a_copy_tells_its_origin() -> None:
    content = copied(ONE, "orders", "spring")
    assert content.body == ONE.body
    assert json.loads(content.metadata) == {
        "kind": "placed",
        "encoding": "json",
        "headers": {
            "by": "web",
            HEADER: "spring",
            f"{HEADER}-topic": "orders",
            f"{HEADER}-offset": 7,
            f"{HEADER}-id": "id-7",
            f"{HEADER}-published-at": "2023-11-14T22:13:20.123+00:00",
        },
    }


def test_headers_without_room_for_the_origin_stay_as_they_are() -> None:
    full = {"x": "y" * 65_400}
    content = copied(Original(7, "ada", "i", "", "bytes", full, b"\0", 0), "orders", "spring")
    assert HEADER not in content.metadata
    assert '"bytes"' in content.metadata


def test_copies_go_through_the_gate(begun: CopyRun) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT partition_key FROM queue_offsets WHERE consumer_group = '' AND topic = '' LIMIT 1"
        )
        assert cursor.fetchone()
        cursor.execute("DELETE FROM queue_offsets WHERE consumer_group = '' AND topic = ''")
    with pytest.raises(Exception, match="topic"):
        copying.append("default", begun, 0, made(begun, 1))
    assert payloads() == []
