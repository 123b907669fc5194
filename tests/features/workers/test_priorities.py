"""Messages with a higher priority are claimed first, and an order by key is never broken for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from django_mqueue import (
    Message,
    OutgoingMessage,
    Subscription,
    cancel,
    publish,
    publish_many,
    redrive,
    reschedule,
    scheduled,
)
from django_mqueue.testing import published
from tests.support.running import Seen, registered, run
from tests.support.subscribers import poll_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_the_highest_priority_comes_first() -> None:
    for priority in (0, -100, 1, 100, -1):
        publish_many("t", [OutgoingMessage(n, priority=priority) for n in range(20)])
    with registered("t", seen := Seen()):
        run(threads=1)
    assert [message.priority for message in seen.messages] == [
        priority for priority in (100, 1, 0, -1, -100) for _ in range(20)
    ]


def test_a_backlog_of_a_lower_priority_does_not_hold_up_a_higher_one() -> None:
    """The worker has claimed some of the backlog when the other message arrives. This one is in its next claim."""
    publish_many("t", range(5_000))
    with Subscription("t", "g", batch_size=1000) as subscription:
        first = poll_until(subscription, 10, max_messages=10)
        subscription.ack(first)
        publish("t", "urgent", priority=1)
        got = poll_until(subscription, lambda got: any(d.priority for d in got), max_messages=10)
    # Until the new partition has an owner, each poll takes ten of the backlog.
    assert [d.payload for d in got if d.priority] == ["urgent"]
    assert got[-10:][0].payload == "urgent"
    assert len(got) < 1_000


def test_a_share_of_the_messages_is_claimed_from_the_lowest_priority() -> None:
    for priority in (5, 0, -5):
        publish_many("t", [OutgoingMessage(n, priority=priority) for n in range(200)])
    with registered("t", seen := Seen(), low_priority_share=0.25):
        run(threads=1, max_messages=100)
    counts = Counter(message.priority for message in seen.messages)
    assert counts.keys() == {5, -5}
    assert 20 <= counts[-5] <= 25


def test_the_priority_belongs_to_the_message() -> None:
    publish("t", "now", priority=7)
    publish_many("t", [OutgoingMessage("later", priority=-7, id="mine", delay=60), OutgoingMessage("plain")])
    assert {m.payload: (m.priority, m.key) for m in published("t")} == {"now": (7, None), "plain": (0, None)}
    (waiting,) = scheduled("t", id="mine", priority=-7)
    assert (waiting.payload, waiting.priority) == ("later", -7)
    assert reschedule("t", "mine", delay=0, priority=-7)
    with registered("t", seen := Seen()):
        run(threads=1)
    assert sorted((m.payload, m.priority) for m in seen.messages) == [("later", -7), ("now", 7), ("plain", 0)]


def test_a_redriven_message_keeps_its_priority() -> None:
    publish("t", 1, priority=3)
    seen: list[tuple[int, int]] = []

    def fail_once(message: Message) -> None:
        seen.append((message.attempt, message.priority))
        if len(seen) == 1:
            raise ValueError

    with registered("t", fail_once, max_attempts=1):
        run()
        assert redrive("t") == 1
        run()
    assert seen == [(1, 3), (1, 3)]


def test_an_id_is_unique_within_its_priority() -> None:
    assert publish("t", 1, id="a", priority=1).created
    assert not publish("t", 2, id="a", priority=1).created
    assert publish("t", 3, id="a").created
    publish("t", 4, id="b", priority=1, delay=60)
    assert not cancel("t", "b")
    assert cancel("t", "b", priority=1)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"priority": 101}, ValueError, "priority must be from -100 to 100, not 101"),
        ({"priority": -101}, ValueError, "priority must be from -100 to 100, not -101"),
        ({"priority": 1.0}, TypeError, "priority must be an int, not float"),
        ({"priority": True}, TypeError, "priority must be an int, not bool"),
        ({"priority": 1, "key": "k"}, ValueError, "priority and key exclude each other"),
    ],
)
def test_impossible_priorities_are_errors(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        publish("t", 1, **arguments)
    with pytest.raises(error, match=f"message 1: {text}"):
        publish_many("t", [0, OutgoingMessage(1, **arguments)])
    assert published("t") == []


@pytest.mark.parametrize("share", [-0.1, 1, "0.5"])
def test_an_impossible_share_is_an_error(share: Any) -> None:
    with (
        pytest.raises(ValueError, match="low_priority_share must be a number from 0 to below 1"),
        registered("t", Seen(), low_priority_share=share),
    ):
        pass
