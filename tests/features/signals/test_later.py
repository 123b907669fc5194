"""Signals of scheduled messages, and of long waits."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, scheduled
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, poll_until

from .listening import listening

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


def test_scheduled_messages_are_told_when_they_are_published_and_when_they_are_delivered() -> None:
    with listening() as heard, Subscription("t", "g") as subscription:
        publish("t", 1, id="one", key="k", delay=0.1)
        publish_many(
            "t", [OutgoingMessage(2, id="two", key="k", delay=3600), OutgoingMessage(3, id="three", key="k")]
        )
        published = [(told["id"], told["scheduled"], told["replaced"]) for told in heard.of("published")]
        assert published == [("one", True, False), ("two", True, False), ("three", False, False)]
        poll_until(subscription, 2)
    assert sorted(told["id"] for told in heard.of("delivered")) == ["one", "three"]


def test_a_message_that_takes_the_place_of_a_scheduled_one_is_told_so() -> None:
    publish("t", 1, id="one", key="k", delay=3600)
    with listening() as heard:
        publish("t", 2, id="one", key="k", delay=7200)
        assert heard.calls == []
        publish("t", 2, id="one", key="k", delay=7200, on_duplicate="replace")
        with transaction.atomic():
            publish("t", 3, id="one", key="k", on_duplicate="replace")
            assert len(heard.calls) == 1
    assert [(told["scheduled"], told["replaced"]) for told in heard.of("published")] == [
        (True, True),
        (False, True),
    ]


@pytest.mark.parametrize("verb", ["nack", "postpone"])
def test_a_wait_of_many_hours_is_told_as_what_it_is(verb: str) -> None:
    """The signal is ``failed`` or ``postponed``, although the message moves from the log to the schedule."""
    publish("t", 1, id="one")
    with listening() as heard, Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        if verb == "nack":
            delivery.nack(delay=86_400, error="no")
        else:
            delivery.postpone(86_400)
    assert list(scheduled("t"))
    name = {"nack": "failed", "postpone": "postponed"}[verb]
    assert heard.names[-1] == name
    assert heard.names.count("acked") == heard.names.count("dead_lettered") == 0
    assert heard.of(name)[0]["retry_in"] == 86_400
