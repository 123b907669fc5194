"""Both sides of the gate say which index they mean: on the server's choice nothing may depend."""

from __future__ import annotations

import pytest

from django_mqueue import publish, publish_many
from django_mqueue.service.settling import Settler
from tests.support.transactions import statements

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = "FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE"


def test_publishing_names_the_index_of_its_lock() -> None:
    """Today's servers choose it by themselves, by the luck of a tie; another's statistics may lead elsewhere."""
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
