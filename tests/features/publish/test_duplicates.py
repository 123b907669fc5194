"""An id is stored once for its topic and key. Every later ``publish`` returns ``created=False``."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from django.test import override_settings

from django_mqueue import (
    DuplicateMessage,
    MQueueError,
    OutgoingMessage,
    Published,
    Subscription,
    publish,
    publish_many,
)
from django_mqueue.models import Message
from tests.support.subscribers import QUICK, consume, in_log, settle_and_collect
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"


def test_a_repeated_id_stores_nothing_and_says_so() -> None:
    """``offset`` is the offset of the stored row, whose payload stays."""
    first = publish(TOPIC, "first", key="k", id="mine")
    publish(TOPIC, "between", key="k")
    second = publish(TOPIC, "second", key="k", id="mine")
    assert first == Published(first.offset, "mine", TOPIC, "k", True)
    assert second == Published(first.offset, "mine", TOPIC, "k", False)
    assert bytes(Message.objects.get(message_id="mine").payload) == b'"first"'


def test_on_duplicate_error_raises_what_is_stored() -> None:
    first = publish(TOPIC, "first", key="k", id="mine", on_duplicate="error")
    assert first.created
    with pytest.raises(DuplicateMessage, match="mine") as raised:
        publish(TOPIC, "second", key="k", id="mine", on_duplicate="error")
    assert raised.value.published == Published(first.offset, "mine", TOPIC, "k", False)
    assert isinstance(raised.value, MQueueError)
    assert in_log(TOPIC) == [first.offset]


def test_an_id_is_unique_within_topic_and_key_only() -> None:
    """The same id with another key or another topic is another message."""
    assert publish(TOPIC, 1, key="k", id="mine").created
    assert publish(TOPIC, 1, key="other", id="mine").created
    assert publish("payments", 1, key="k", id="mine").created
    assert publish(TOPIC, 1, id="mine").created


def test_a_repeated_id_of_a_keyless_message_meets_itself() -> None:
    """The id selects the partition of a keyless message, so a repetition uses the same partition."""
    for number in range(30):
        first, second = publish(TOPIC, 1, id=f"id-{number}"), publish(TOPIC, 2, id=f"id-{number}")
        assert (first.created, second.created) == (True, False)
        assert second.offset == first.offset
        assert second.key is None


def test_without_an_id_each_message_gets_one_of_its_own() -> None:
    """The id is a UUID of version 7."""
    ids = [publish(TOPIC, 1, key="k").id for _ in range(5)] + [
        one.id for one in publish_many(TOPIC, range(5))
    ]
    assert len(set(ids)) == 10
    assert all(len(one) == 36 and one[14] == "7" for one in ids)


def test_publish_many_tells_duplicates_of_the_log_and_of_the_batch() -> None:
    """The results have the order of the input.

    The first message of an id is stored, and its repetitions refer to it.
    """
    stored = publish(TOPIC, "stored", key="k", id="a")
    answers = publish_many(
        TOPIC,
        [
            OutgoingMessage("a again", key="k", id="a"),
            OutgoingMessage("b", key="k", id="b"),
            OutgoingMessage("free", key="k"),
            OutgoingMessage("b again", key="k", id="b"),
            OutgoingMessage("other key", key="other", id="b"),
            OutgoingMessage("a thrice", key="k", id="a"),
        ],
    )
    assert [one.created for one in answers] == [False, True, True, False, True, False]
    assert answers[0].offset == answers[5].offset == stored.offset
    assert answers[3].offset == answers[1].offset
    assert [one.id for one in answers[:2]] == ["a", "b"]
    payloads = [bytes(m.payload).decode().strip('"') for m in Message.objects.order_by("offset")]
    assert payloads == ["stored", "b", "free", "other key"]


def test_publish_many_tells_duplicates_across_its_statements() -> None:
    """Rows 0 and 600 are in different statements of 500 rows."""
    messages = [OutgoingMessage(n, key="k", id=str(n)) for n in range(600)] + [
        OutgoingMessage(0, key="k", id="0")
    ]
    answers = publish_many(TOPIC, messages)
    assert [one.created for one in answers] == [True] * 600 + [False]
    assert answers[-1].offset == answers[0].offset
    assert [one.created for one in publish_many(TOPIC, messages)] == [False] * 601


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("many", [False, True])
def test_a_publisher_of_the_same_id_is_waited_for(ending: str, many: bool) -> None:
    """The second publisher waits. The id is a duplicate only if the first publisher commits."""

    def second() -> Published:
        if many:
            before, one, after = publish_many(
                TOPIC, [OutgoingMessage(n, key="k", id=id) for n, id in enumerate(["x", "mine", "y"])]
            )
            assert before.created
            assert after.created
            return one
        return publish(TOPIC, 2, key="k", id="mine")

    with ExitStack() as stack:
        first = stack.enter_context(HeldTransaction(lambda: publish(TOPIC, 1, key="k", id="mine")))
        waiting = stack.enter_context(Background(second))
        wait_for_lock_wait(waiting)
        getattr(first, ending)()
        result = waiting.result()
    assert result.created is (ending == "rollback")
    row = Message.objects.get(message_id="mine")
    assert result.offset == row.offset
    assert (first.result().offset == row.offset) is (ending == "commit")


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_publish_many_believes_who_stored_an_id_after_it_looked(isolation: str) -> None:
    """The transaction's snapshot does not show the id.

    ``publish_many`` returns the stored offset, and stores the rest.
    """

    def looked_before() -> list[Published]:
        assert in_log(TOPIC) == []
        with Background(lambda: publish(TOPIC, 1, key="k", id="mine")) as other:
            other.result()
        return publish_many(
            TOPIC, [OutgoingMessage(n, key="k", id=id) for n, id in enumerate(["x", "mine", "y"])]
        )

    with HeldTransaction(looked_before, isolation=isolation) as held:
        answers = held.commit()
    assert [one.created for one in answers] == [True, False, True]
    stored = dict(Message.objects.values_list("message_id", "offset"))
    assert {one.id: one.offset for one in answers} == stored


def test_publishers_that_race_with_the_same_ids_store_each_once() -> None:
    """Four publishers use the ids in different orders.

    Each id is created once, and all results name the same offset.
    """
    ids = [f"id-{n}" for n in range(40)]

    def publisher(order: list[str]) -> Background[list[Published]]:
        batch = [OutgoingMessage(id, key="k", id=id) for id in order]
        return Background(lambda: publish_many(TOPIC, batch)).start()

    threads = [publisher(order) for order in (ids, ids[::-1], ids[20:] + ids[:20], ids[::2])]
    answers = [one for thread in threads for one in thread.result()]
    for thread in threads:
        thread.join()
    stored = dict(Message.objects.values_list("message_id", "offset"))
    assert set(stored) == set(ids)
    assert all(one.offset == stored[one.id] for one in answers)
    assert sorted(one.id for one in answers if one.created) == sorted(ids)


@override_settings(MQUEUE=QUICK)
def test_an_id_is_free_again_once_its_message_has_left_the_log() -> None:
    """Deduplication lasts as long as the message is in the log."""
    with Subscription(TOPIC, group="billing") as subscription:
        publish(TOPIC, 1, key="k", id="mine")
        consume(subscription, 1)
        assert not publish(TOPIC, 2, key="k", id="mine").created
        settle_and_collect(subscription)
        assert publish(TOPIC, 3, key="k", id="mine").created
        assert [d.payload for d in consume(subscription, 1)] == [3]
