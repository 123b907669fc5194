"""Do what a message requests, and write its start and end to the history."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from functools import cache

from django.db import connection

from django_mqueue import Delivery, Message, Postpone, Reject
from tests.proof.history import Fault, Finished, Started, Writer, now
from tests.proof.plan import VISIBILITY, my_name, my_writer

_pause = threading.Event()


@cache
def history() -> Writer:
    return my_writer()


def given(message: Message) -> None:
    history().write(
        Started(
            now(), my_name(), message.group, message.topic, message.key, message.payload["m"], message.offset,
            message.attempt,
        )
    )  # fmt: skip


def act(message: Message) -> None:
    """Do what the message requests: return, or raise as handlers do. The history notes the end before the queue."""
    _noted(message, lambda: _act(message))


def act_and_take_effect(delivery: Delivery) -> None:
    """Do the same, and also write a row in the commit that acks, as an atomic handler does.

    The history notes the end after the commit. If the result of the commit is unknown, it notes a failure.
    """

    def work() -> None:
        with delivery.atomic():
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO proof_effect VALUES (%s, %s)", [delivery.payload["m"], delivery.offset]
                )
            _act(delivery)

    _noted(delivery, work)


def _noted(message: Message, work: Callable[[], None]) -> None:
    outcome = "failed"
    try:
        work()
        outcome = "done"
    except Reject:
        outcome = "rejected"
        raise
    except Postpone:
        outcome = "postponed"
        raise
    finally:
        end = Finished(now(), my_name(), message.group, message.payload["m"], message.attempt, outcome)  # type: ignore[arg-type]
        history().write(end)


def _act(message: Message) -> None:
    asked = message.payload
    if asked.get("on") != message.group:
        return
    match asked["do"]:
        case "nap":
            _pause.wait(random.random() * 0.03)
        case "fail" if message.attempt <= 1 + random.randrange(2):
            raise ValueError("this time it fails")
        case "postpone" if random.random() < 0.6:
            raise Postpone(0.2)
        case "always fail":
            raise ValueError("it always fails")
        case "reject":
            raise Reject("never")
        case "overstay":
            _pause.wait(VISIBILITY * 1.6)
        case "die":
            history().write(Fault(now(), "killed", my_name()))
            os.kill(os.getpid(), signal.SIGKILL)
            _pause.wait()
