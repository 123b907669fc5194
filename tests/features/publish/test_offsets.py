"""``publish`` and ``publish_many`` return the true offsets of their messages."""

from __future__ import annotations

import threading

import pytest

from django_mqueue import OutgoingMessage, Published, publish, publish_many
from django_mqueue.models import Message
from tests.support.transactions import Background
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
PUBLISHERS, ROUNDS = 4, 12


def is_true(answers: list[Published]) -> None:
    """Assert that each result names the offset of the row with its id."""
    rows = {
        offset: (topic, key, id)
        for offset, topic, key, id in Message.objects.values_list(
            "offset", "topic", "partition_key", "message_id"
        )
    }
    for answer in answers:
        assert rows[answer.offset][0] == answer.topic == TOPIC
        assert rows[answer.offset][2] == answer.id
        if answer.key is not None:
            assert rows[answer.offset][1] == answer.key


@pytest.mark.parametrize("ids", ["given", "none", "some"])
def test_offsets_are_right_under_concurrent_publishers(ids: str) -> None:
    """Four publishers mix batches of different sizes with single publishes. Each result has the offset of its row."""
    barrier = threading.Barrier(PUBLISHERS)

    def run(number: int) -> list[list[Published]]:
        batches = []
        for turn in range(ROUNDS):
            barrier.wait(PATIENCE)
            size = (number * 7 + turn * 13) % 40 + 1
            batch = []
            for place in range(size):
                has_id = ids == "given" or (ids == "some" and place % 3 == 0)
                key = None if place % 2 else f"key-{number}"
                batch.append(
                    OutgoingMessage(place, key=key, id=f"{number}-{turn}-{place}" if has_id else None)
                )
            batches.append(publish_many(TOPIC, batch))
            batches.append(
                [publish(TOPIC, turn, key="single", id=f"s-{number}-{turn}" if ids != "none" else None)]
            )
        return batches

    def start(number: int) -> Background[list[list[Published]]]:
        return Background(lambda: run(number)).start()

    threads = [start(number) for number in range(PUBLISHERS)]
    batches = [batch for thread in threads for batch in thread.result()]
    for thread in threads:
        thread.join()
    answers = [answer for batch in batches for answer in batch]
    assert all(answer.created for answer in answers)
    assert len({answer.offset for answer in answers}) == len(answers) == Message.objects.count()
    is_true(answers)
    for batch in batches:
        offsets = [answer.offset for answer in batch]
        assert offsets == sorted(offsets)


def test_offsets_are_right_around_duplicates() -> None:
    """The batch has ids that are already stored, and takes several statements."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k", id=str(n)) for n in range(0, 1200, 3)])
    answers = publish_many(TOPIC, [OutgoingMessage(n, key="k", id=str(n)) for n in range(1200)])
    assert [answer.created for answer in answers] == [bool(n % 3) for n in range(1200)]
    is_true(answers)


def test_answers_come_in_the_order_of_the_input() -> None:
    """Offsets rise in the order of the input, also across statements."""
    answers = publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n % 3}") for n in range(1100)])
    assert [answer.key for answer in answers] == [f"key-{n % 3}" for n in range(1100)]
    assert [answer.offset for answer in answers] == sorted(answer.offset for answer in answers)
    is_true(answers)


def test_publish_many_takes_any_iterable() -> None:
    """A generator, a set, and any other iterable that can be read only once."""
    assert [one.key for one in publish_many(TOPIC, (OutgoingMessage(n, key="k") for n in range(3)))] == [
        "k"
    ] * 3
    assert len(publish_many(TOPIC, {1, 2})) == 2
    assert len(publish_many(TOPIC, iter([b"a", None, {"payload": 1}]))) == 3
