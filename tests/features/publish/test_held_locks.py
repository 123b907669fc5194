"""A publish that stores nothing locks nothing that others need, even if its transaction stays open for long."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from django.db import transaction

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    Published,
    Subscription,
    publish,
    publish_many,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import Message
from tests.support.subscribers import consume
from tests.support.transactions import Background, HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)

ID, KEY = "id-5", "key-5"

AGAIN: dict[str, Callable[[str], Published]] = {
    "publish": lambda topic: publish(topic, 2, key=KEY, id=ID),
    "replace": lambda topic: publish(topic, 2, key=KEY, id=ID, on_duplicate="replace"),
    "publish later": lambda topic: publish(topic, 2, key=KEY, id=ID, delay=60),
    "publish_many": lambda topic: publish_many(topic, [OutgoingMessage(2, key=KEY, id=ID)])[0],
    "publish_many later": lambda topic: publish_many(topic, [OutgoingMessage(2, key=KEY, id=ID, delay=60)])[
        0
    ],
}

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """Return a topic that no other test uses. Tests derive the names of their other topics from it.

    An INSERT of an id that was just deleted waits for a lock on the next entry in the index of ids. The wait ends
    when the server has purged the deleted entry.
    """
    return f"m-{next(_numbers)}"


@pytest.fixture(params=["READ COMMITTED", "REPEATABLE READ"], autouse=True)
def isolation(request: pytest.FixtureRequest) -> None:
    if request.param == "REPEATABLE READ":
        request.getfixturevalue("repeatable_read")


def publish_around(topic: str) -> None:
    """Publish directly before and behind the id, in its topic and in others."""
    with transaction.atomic():
        for other in (f"a{topic}", topic, f"{topic}z", f"z{topic}"):
            for key, message_id in itertools.product(("key-4", KEY, "key-6"), ("id-4", "id-6")):
                for delay in (None, 60):
                    assert publish(other, 1, key=key, id=f"{message_id}-{delay}", delay=delay).created
            publish(other, 1)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ"], indirect=True)
class TestDuplicates:
    """At READ COMMITTED the gap before the stored id stays locked (``docs/explanation/limits.md``)."""

    @pytest.mark.parametrize("again", AGAIN)
    def test_of_a_message_from_before(self, topic: str, again: str) -> None:
        first = publish(topic, 1, key=KEY, id=ID)
        with HeldTransaction(lambda: AGAIN[again](topic)) as held:
            held.assert_blocks_nothing(lambda: publish_around(topic))
            assert held.commit() == Published(first.offset, ID, topic, KEY, False)

    @pytest.mark.parametrize(
        ("again", "delay"),
        [*((again, None) for again in AGAIN), ("publish later", 60), ("publish_many later", 60)],
    )
    def test_of_a_message_since_the_snapshot(self, topic: str, again: str, delay: int | None) -> None:
        def work() -> tuple[Published, Published]:
            assert not Message.objects.exists()
            with Background(lambda: publish(topic, 1, key=KEY, id=ID, delay=delay)) as other:
                first = other.result()
            return first, AGAIN[again](topic)

        with HeldTransaction(work) as held:
            held.assert_blocks_nothing(lambda: publish_around(topic))
            first, second = held.commit()
        assert (second.created, second.offset) == (False, first.offset)
        assert Message.objects.filter(message_id=ID).count() == 1

    @pytest.mark.parametrize("again", AGAIN)
    def test_of_a_message_of_the_transaction_itself(self, topic: str, again: str) -> None:
        def work() -> tuple[Published, Published]:
            return publish(topic, 1, key=KEY, id=ID), AGAIN[again](topic)

        with HeldTransaction(work) as held:
            held.assert_blocks_nothing(lambda: publish_around(topic))
            first, second = held.commit()
        assert (second.created, second.offset) == (False, first.offset)


class TestUnknownGroups:
    """The groups g-4 and g-6 are registered, and g-5 is not."""

    VERBS: dict[str, Callable[[str], object]] = {
        "publish": lambda topic: publish(topic, 1, key=KEY, group="g-5"),
        "with an id": lambda topic: publish(topic, 1, key=KEY, id=ID, group="g-5"),
        "publish later": lambda topic: publish(topic, 1, key=KEY, group="g-5", delay=60),
        "later with an id": lambda topic: publish(topic, 1, key=KEY, id=ID, group="g-5", delay=60),
        "replace": lambda topic: publish(topic, 1, key=KEY, id=ID, group="g-5", on_duplicate="replace"),
        "publish_many": lambda topic: publish_many(topic, [OutgoingMessage(1, key=KEY, group="g-5")]),
    }

    @pytest.mark.parametrize("verb", VERBS)
    def test_hold_up_no_other_group(self, topic: str, verb: str) -> None:
        for group in ("g-4", "g-6"):
            subscribe(topic, group)

        def work() -> None:
            publish(f"before-{topic}", 1)
            with pytest.raises(NotRegistered, match="g-5"):
                self.VERBS[verb](topic)

        def use_others() -> None:
            publish(topic, 1, key=KEY)
            for other in (f"a{topic}", f"z{topic}"):
                assert subscribe(other, "g-5")
            for group in ("g-4", "g-6"):
                with Subscription(topic, group) as subscription:
                    consume(subscription, 1)
            assert subscribe(topic, "g-5")

        with HeldTransaction(work) as held:
            held.assert_blocks_nothing(use_others)
            held.commit()
        assert Message.objects.filter(topic=f"before-{topic}").count() == 1

    @pytest.mark.parametrize("verb", VERBS)
    def test_are_known_once_they_are_registered(self, topic: str, verb: str) -> None:
        """Another transaction registers the group after the snapshot."""
        with transaction.atomic():
            assert not Message.objects.exists()
            with Background(lambda: subscribe(topic, "g-5")) as other:
                assert other.result()
            self.VERBS[verb](topic)
        assert Message.objects.filter(consumer_group="g-5").count() == 1

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("by", ["this transaction", "another one"])
    def test_are_unknown_once_they_are_unsubscribed(self, topic: str, by: str, verb: str) -> None:
        """The snapshot, or another connection, still shows the registration."""
        subscribe(topic, "g-5")
        with transaction.atomic():
            assert not Message.objects.filter(topic=topic).exists()
            if by == "this transaction":
                assert unsubscribe(topic, "g-5")
            else:
                with Background(lambda: unsubscribe(topic, "g-5")) as other:
                    assert other.result()
            with pytest.raises(NotRegistered, match="g-5"), transaction.atomic():
                self.VERBS[verb](topic)
        assert not Message.objects.filter(consumer_group="g-5").exists()
