"""A process of the proof that consumes by hand: ``python -m tests.proof.by_hand SUBSCRIBER``."""

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
from tests.proof.worker_app.acting import act, given, history  # noqa: E402

ATONCE = 100


def answer(delivery: Delivery) -> bool:
    """Process the message. Return True if ``round_of`` must ack it together with other deliveries."""
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
    """Poll once, process the deliveries, and ack them together."""
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
    with suppress(StaleDelivery):  # The fresh deliveries are acked. The queue delivers the stale ones again.
        subscription.ack(done)
    return len(deliveries)


def pay_attention(polled: int) -> int:
    """Write to the history if the process has not polled for half a lease: its leases may have expired.

    Return the time of this poll.
    """
    moment = now()
    if moment - polled > float(conf.get("LEASE_DURATION", HAND.topic)) * 1e9 / 2:
        history().write(Fault(polled, "silent", my_name()), Fault(moment, "heard", my_name()))
    return moment


def main(name: str) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    history().write(Fault(now(), "ready", my_name()))
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
            # The process never answers its open deliveries. It may have lost them before the error.
            pay_attention(polled)
            history().write(Fault(now(), "abandoned", my_name()))
            print(f"starting again: {error}", flush=True)
            connection.close()
            ending.wait(0.3)


if __name__ == "__main__":
    main(sys.argv[1])
