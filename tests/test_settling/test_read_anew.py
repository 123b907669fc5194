"""What happens while a worker reads all anew, as it does for each new connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.service.settling import Settler
from tests.support.subscribers import CALM, consume, engine_of, settle
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@dataclass
class Witness:
    """Hears of a topic besides its subscriber, after that one."""

    seen: Callable[[], object] = lambda: None
    strict: bool = False
    times: int = 0

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None:
        pass

    def read_anew(self, position: int) -> None:
        self.times += 1
        self.seen()


@override_settings(MQUEUE=CALM)
def test_what_commits_while_all_is_read_anew_comes_before_what_is_sent_then() -> None:
    """In strict order, though others have settled it by the time that this worker goes on."""
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        publish(TOPIC, 0, key="k")
        consume(subscription, 1)
        settle(subscription)
        with HeldTransaction(lambda: publish(TOPIC, 1, key="k")) as late:
            newest = publish(TOPIC, "another", key="other").offset
            consume(subscription, 1)

            def go_on() -> None:
                late.commit()
                settler = Settler("default", TOPIC)
                wait_until(lambda: settler.advance() >= newest, "it is settled")
                publish(TOPIC, 2, key="k")

            witness = Witness(go_on)
            engine_of(subscription).feed.join(TOPIC, witness)
            connection.close()
            assert [delivery.payload for delivery in consume(subscription, 2)] == [1, 2]
            assert witness.times == 1
