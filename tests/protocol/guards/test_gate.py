"""Both sides of the gate name the index of its locks. Dead letters pass through the gate in both directions."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_mqueue import Subscription, publish, publish_many, redrive
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import gates
from tests.support.subscribers import poll_until
from tests.support.transactions import Background, statements

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = "FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE"


def test_publishing_names_the_index_of_its_lock() -> None:
    """Today's servers choose this index by themselves, but only by a tie. Other statistics may change the choice."""
    with statements() as seen:
        publish("t", 1)
        publish("t", 1, id="given")
        publish_many("t", [1, 2])
    inserts = [sql for sql in seen if "INSERT INTO queue_messages" in sql]
    assert len(inserts) == 3
    for sql in inserts:
        assert INDEX in sql


def test_settling_names_the_index_of_the_locks_that_it_looks_for() -> None:
    publish("t", 1)
    with statements() as seen:
        Settler("default", "t").advance()
    looks = [sql for sql in seen if "topic = '' AND partition_key IN" in sql]
    assert looks
    for sql in looks:
        assert INDEX in sql


def test_a_dead_letter_holds_a_slot_until_its_transaction_ends() -> None:
    """A dead letter is a row of the log like any other: groups may read it, and it may commit late."""
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        with transaction.atomic():
            delivery.reject("no")
            with Background(lambda: held("t_dlq")) as meanwhile:
                assert meanwhile.result() == 1
        assert held("t_dlq") == 0


def test_what_is_redriven_holds_a_slot_until_its_transaction_ends() -> None:
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        poll_until(subscription, 1)[0].reject("no")
    with transaction.atomic():
        assert redrive("t") == 1
        with Background(lambda: held("t")) as meanwhile:
            assert meanwhile.result() == 1
    assert held("t") == 0


def held(topic: str) -> int:
    """Return how many slots of the topic's gate are locked."""
    names = gates.slots(gates.gate_of(topic))
    with transaction.atomic(), connection.cursor() as cursor:
        return len(names - gates.free_slots(cursor, names))
