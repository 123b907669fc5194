"""At REPEATABLE READ: a search for an id that is not scheduled takes no lock that other publishers wait for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from django.db import transaction

from django_mqueue import OutgoingMessage, cancel, publish, publish_many, reschedule, subscribe
from django_mqueue.models import Message
from tests.support.subscribers import in_log
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("repeatable_read")]

ID, KEY = "id-5", "key-5"

VERBS: dict[str, Callable[[str], object]] = {
    "cancel": lambda topic: cancel(topic, ID, key=KEY),
    "reschedule": lambda topic: reschedule(topic, ID, key=KEY, delay=9),
    "replace": lambda topic: publish(topic, 1, key=KEY, id=ID, on_duplicate="replace"),
    "replace later": lambda topic: publish(topic, 1, key=KEY, id=ID, delay=60, on_duplicate="replace"),
    "publish later": lambda topic: publish(topic, 1, key=KEY, id=ID, delay=60),
}


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """Return a topic name that only this test uses. The names of its other topics contain it.

    Until InnoDB's purge is done, an INSERT of a deleted id waits for locks on the next entry in the index of ids.
    """
    return f"s-{next(_numbers)}"


def publish_around(topic: str) -> None:
    """Publish ids and keys around the id, in its topic and in other topics."""
    with transaction.atomic():
        for other in (f"a{topic}", f"l{topic}", topic, f"{topic}z", f"z{topic}"):
            for key, message_id in ((KEY, "id-4"), (KEY, "id-6"), ("key-4", ID), ("key-6", ID)):
                for delay in (None, 60):
                    assert publish(other, 1, key=key, id=f"{message_id}-{delay}", delay=delay).created
            publish(other, 1)


@pytest.mark.parametrize("before", [0, 1], ids=["empty", "with neighbours"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_id_holds_up_nobody(topic: str, verb: str, before: int) -> None:
    for number in (4, 6) * before:
        for other in (f"l{topic}", topic, f"t{topic}"):
            publish(other, 1, key=f"key-{number}", id=ID)
            publish(other, 1, key=f"key-{number}", id=ID, delay=60)
    with HeldTransaction(lambda: VERBS[verb](topic)) as held:
        held.assert_blocks_nothing(lambda: publish_around(topic))
        held.commit()


@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_what_was_cancelled_since_the_snapshot_holds_up_nobody(topic: str, verb: str) -> None:
    """The row is the last of the table. A lock on the gap after it would stop every publisher."""
    publish(topic, 1, key=KEY, id=ID, delay=60)

    def work() -> object:
        assert Message.objects.count() == 1
        with Background(lambda: cancel(topic, ID, key=KEY)) as other:
            assert other.result()
        return VERBS[verb](topic)

    with HeldTransaction(work) as held:
        held.assert_blocks_nothing(lambda: publish_around(topic))
        assert held.commit() is False


@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_what_was_scheduled_since_the_snapshot_is_found(topic: str, verb: str) -> None:
    with transaction.atomic():
        assert not Message.objects.exists()
        with Background(lambda: publish(topic, 1, key=KEY, id=ID, delay=60)) as other:
            other.result()
        assert VERBS[verb](topic)
    assert cancel(topic, ID, key=KEY) is (verb == "reschedule")


@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_what_the_transaction_scheduled_itself_is_found(topic: str, verb: str) -> None:
    with transaction.atomic():
        publish(topic, 1, key=KEY, id=ID, delay=60)
        assert VERBS[verb](topic)
        assert cancel(topic, ID, key=KEY) is (verb == "reschedule")
        assert not VERBS[verb](topic)
    assert not Message.objects.exists()


def test_what_the_transaction_scheduled_itself_is_replaced(topic: str) -> None:
    with transaction.atomic():
        publish(topic, 1, key=KEY, id=ID, delay=60)
        assert publish(topic, 2, key=KEY, id=ID, on_duplicate="replace").replaced
    assert [bytes(row.payload) for row in Message.objects.all()] == [b"2"]


@pytest.mark.parametrize("own", [False, True])
def test_an_id_that_came_into_the_log_since_the_snapshot_is_not_scheduled(topic: str, own: bool) -> None:
    """Another transaction publishes the id, or this transaction does."""
    subscribe(topic, "billing")

    def first() -> int:
        return publish(topic, 1, key=KEY, id=ID).offset

    with transaction.atomic():
        assert not in_log(topic)
        offset = first() if own else Background(first).start().result()
        again = publish(topic, 2, key=KEY, id=ID, delay=60)
        assert (again.created, again.offset) == (False, offset)
    assert in_log(topic) == [offset]
    assert not in_log(f"{topic}_scheduled")


@pytest.mark.parametrize("verb", ["publish", "publish_many"])
@pytest.mark.parametrize("by", ["this transaction", "another one"])
def test_an_id_that_was_cancelled_can_be_scheduled_again(topic: str, by: str, verb: str) -> None:
    """The snapshot may still show it, and so may another connection. If one of them counted, both would be lost."""
    publish(topic, 1, key=KEY, id=ID, delay=60)
    with transaction.atomic():
        assert Message.objects.filter(topic=f"{topic}_scheduled").count() == 1
        if by == "this transaction":
            assert cancel(topic, ID, key=KEY)
        else:
            with Background(lambda: cancel(topic, ID, key=KEY)) as other:
                assert other.result()
        if verb == "publish":
            found = publish(topic, 2, key=KEY, id=ID, delay=60)
        else:
            (found,) = publish_many(topic, [OutgoingMessage(2, key=KEY, id=ID, delay=60)])
        assert found.created
    (left,) = Message.objects.filter(topic=f"{topic}_scheduled")
    assert bytes(left.payload) == b"2"


def test_an_id_that_an_open_transaction_schedules_again_is_not_there_yet(topic: str) -> None:
    """The snapshot still shows the row that was cancelled since. If it counted, both would be lost."""
    publish(topic, 1, key=KEY, id=ID, delay=60)
    ready, go = threading.Event(), threading.Event()

    def work() -> bool:
        with transaction.atomic():
            assert Message.objects.filter(topic=f"{topic}_scheduled").count() == 1
            ready.set()
            assert go.wait(PATIENCE)
            return publish(topic, 2, key=KEY, id=ID, delay=60).created

    with Background(work) as one:
        assert ready.wait(PATIENCE)
        assert cancel(topic, ID, key=KEY)
        with HeldTransaction(lambda: publish(topic, 3, key=KEY, id=ID, delay=60)) as held:
            go.set()
            wait_for_lock_wait(one)
            held.rollback()
        assert one.result()
    (left,) = Message.objects.filter(topic=f"{topic}_scheduled")
    assert bytes(left.payload) == b"2"
