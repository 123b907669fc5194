"""A worker claims a message that another worker finished long ago, at the moment when it is deleted."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.protocol.retention.garbage_collection import Collector
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, engine_of, in_log, settle, with_state
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600, "LEASE_DURATION": 600})


def test_it_leaves_no_state_behind() -> None:
    """Collection A deletes state and message. New owner B reads the message as new, claims it and waits for A.

    A commits. The INSERT of B has still seen the message, but finds no state. B must not leave state of its own.
    """
    offset = publish("orders", "done", key="k").offset
    with Subscription("orders", "g") as subscription:
        consume(subscription, 1)
        settle(subscription)

        def claim() -> int:
            engine = engine_of(subscription)
            partition = engine.state.partitions["k"]
            partition.fresh.append(
                offset
            )  # the tail of the log reports it as new to an owner that has not read it yet
            engine.state.mark_ready(partition)
            return len(engine.claimer.claim(10, 10))

        with HeldTransaction(lambda: Collector("default", "orders").collect_page(0)) as collection:
            claiming = Background(claim).start()
            wait_for_lock_wait(claiming)
            collection.commit()
            assert claiming.result() == 0
            claiming.join()
    assert in_log("orders") == []
    assert with_state("orders", "g") == []
