"""Do what a message requests, and write its start and end to the history."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from functools import cache

from django.db import connection

from django_mqueue import BatchFailure, Delivery, Message, Postpone, Reject
from django_mqueue.workers.pool import SLOW
from tests.proof.history import Fault, Finished, Started, Writer, now
from tests.proof.plan import VISIBILITY, my_directory, my_name, my_writer

_pause = threading.Event()


@cache
def history() -> Writer:
    return my_writer()


@cache
def dice() -> random.Random:
    """Return the random choices of this process. The seed of the run determines them."""
    return random.Random(os.environ.get("PROOF_SEED"))


def given(*messages: Message) -> None:
    history().write(
        *(
            Started(
                now(), my_name(), message.group, message.topic, message.key, message.payload["m"], message.offset,
                message.attempt,
            )
            for message in messages
        )
    )  # fmt: skip


def ended(message: Message, outcome: str) -> Finished:
    return Finished(now(), my_name(), message.group, message.payload["m"], message.attempt, outcome)  # type: ignore[arg-type]


def act(message: Message) -> None:
    """Do what the message requests: return, or raise as handlers do. The history notes the end before the queue."""
    _noted(message, lambda: _act(message))


def act_and_take_effect(delivery: Delivery) -> None:
    """Do the same, and also write a row in the commit that acks, as an atomic handler does.

    The history notes the end after the commit. If the result of the commit is unknown, it notes a failure.
    """

    def work() -> None:
        with delivery.atomic():
            take_effect(delivery)

    _noted(delivery, work)


def take_effect(delivery: Delivery) -> None:
    """Write a row, and do what the message requests, in the transaction that also acks. Note no end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proof_effect VALUES (%s, %s, %s)",
            [delivery.group, delivery.payload["m"], delivery.offset],
        )
    _act(delivery)


def act_on_batch(batch: Sequence[Message]) -> None:
    """Do what each message of a batch requests. The history notes all ends together, just before the queue."""
    failures: dict[Message, BaseException] = {}
    for message in batch:
        try:
            _act(message)
        except (ValueError, Reject, Postpone) as error:
            failures[message] = error
    history().write(*(ended(message, _outcome(failures.get(message))) for message in batch))
    if failures:
        raise BatchFailure(failures)


def _outcome(error: BaseException | None) -> str:
    if isinstance(error, Reject):
        return "rejected"
    if isinstance(error, Postpone):
        return "postponed"
    return "failed" if error else "done"


def _noted(message: Message, work: Callable[[], None]) -> None:
    error: BaseException | None = None
    try:
        work()
    except BaseException as raised:
        error = raised
        raise
    finally:
        history().write(ended(message, _outcome(error)))


def _act(message: Message) -> None:
    asked = message.payload
    if asked.get("on") != message.group:
        return
    match asked["do"]:
        case "nap":
            _pause.wait(dice().random() * 0.03)
        case "dawdle":
            _pause.wait(3 * SLOW)
        case "fail" if message.attempt <= 1 + dice().randrange(2):
            raise ValueError("this time it fails")
        case "postpone" if dice().random() < 0.6:
            raise Postpone(0.2)
        case "always fail":
            raise ValueError("it always fails")
        case "reject":
            raise Reject("never")
        case "overstay":
            _pause.wait(VISIBILITY * 1.6)
        case "wait":
            while not (my_directory() / asked["for"]).exists():
                _pause.wait(0.02)
        case "die":
            history().write(Fault(now(), "killed", my_name()))
            os.kill(os.getpid(), signal.SIGKILL)
            _pause.wait()
