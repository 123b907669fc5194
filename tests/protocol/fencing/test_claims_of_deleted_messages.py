"""A claim of a message that another worker has done long ago, and that is deleted at that moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.service.collecting import Collector
from tests.support.subscribers import QUICK, consume, engine_of, in_log, settle, with_state
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with override_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600, "LEASE_DURATION": 600}):
        yield


def test_it_leaves_no_state_behind() -> None:
    """A (collection): deletes state and message. B (a new owner, to whom it is news): claims it, and waits for A.
    A: commits. B: its INSERT saw the message still, and finds no state any more; it must not leave one of its own.
    """
    offset = publish("orders", "done", key="k").offset
    with Subscription("orders", "g") as subscription:
        consume(subscription, 1)
        settle(subscription)

        def claim() -> int:
            engine = engine_of(subscription)
            partition = engine.context.partitions["k"]
            partition.fresh.append(
                offset
            )  # as the tail of the log tells it to an owner whose look lags behind
            engine.context.touch(partition)
            return len(engine.claiming.crowd(10, 10))

        with HeldTransaction(lambda: Collector("default", "orders").page(0)) as collection:
            claiming = Background(claim).start()
            wait_for_lock_wait(claiming)
            collection.commit()
            assert claiming.result() == 0
            claiming.join()
    assert in_log("orders") == []
    assert with_state("orders", "g") == []
