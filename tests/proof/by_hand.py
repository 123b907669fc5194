"""A process of a run that consumes by hand: ``python -m tests.proof.by_hand SUBSCRIBER``."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress

import django
from django.db import DatabaseError, InterfaceError, connection

django.setup()

from django_mqueue import (  # noqa: E402
    Delivery,
    Postpone,
    Reject,
    StaleDelivery,
    Subscription,
    conf,
)
from tests.proof.history import Fault, now  # noqa: E402
from tests.proof.plan import HAND, MAX_ATTEMPTS, VISIBILITY, my_name  # noqa: E402
from tests.proof.plant.acting import act, given, history  # noqa: E402

ATONCE = 100


def answer(delivery: Delivery) -> bool:
    """Act on it, and answer unless it is to be acked with the others."""
    try:
        act(delivery)
    except Reject as signal:
        delivery.reject(str(signal))
    except Postpone as signal:
        delivery.postpone(signal.delay)
    except ValueError as error:
        delivery.nack(delay=0.1, error=str(error))
    else:
        return True
    return False


def round_of(subscription: Subscription) -> int:
    """Poll once, handle what came, ack it together."""
    deliveries = subscription.poll(ATONCE)
    for delivery in deliveries:
        given(delivery)
    done = []
    for delivery in deliveries:
        try:
            if answer(delivery):
                done.append(delivery)
        except StaleDelivery:
            continue
    with suppress(StaleDelivery):  # Those that were not stale are acked; the others come again, to somebody.
        subscription.ack(done)
    return len(deliveries)


def pay_attention(polled: int) -> int:
    """Say so if the last poll was so long ago that the leases may have run out: the moment of this one."""
    moment = now()
    if moment - polled > float(conf.get("LEASE_DURATION", HAND.topic)) * 1e9 / 2:
        history().write(Fault(polled, "silent", my_name()), Fault(moment, "heard", my_name()))
    return moment


def main(name: str) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while not ending.is_set():
        polled = now()
        try:
            with Subscription(
                HAND.topic, HAND.name, name, max_attempts=MAX_ATTEMPTS, visibility_timeout=2 * VISIBILITY
            ) as subscription:
                polled = now()
                while not ending.is_set():
                    if not round_of(subscription):
                        ending.wait(0.05)
                    polled = pay_attention(polled)
        except (DatabaseError, InterfaceError) as error:
            # What it had in hand it will not answer any more; it may have lost it before.
            pay_attention(polled)
            history().write(Fault(now(), "abandoned", my_name()))
            print(f"starting again: {error}", flush=True)
            connection.close()
            ending.wait(0.3)


if __name__ == "__main__":
    main(sys.argv[1])
