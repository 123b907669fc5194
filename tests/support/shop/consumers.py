"""The handlers of the tests' worker processes. A message's payload controls its handler.

``{"n": 3}``: record the steps and return. ``do`` names one of the functions below, and the payload also contains its
parameters.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_mqueue import (
    Delivery,
    ExponentialBackoff,
    Message,
    OutgoingMessage,
    Postpone,
    Reject,
    Retry,
    consumer,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState
from django_mqueue.workers.sharing import Sharing
from tests.support.shop.models import Door, Sale, Step
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:  # The tests of upgrades also use this module with an earlier version of the package.
    from django_mqueue.workers.handler_calls import HandlerCall

if call_seconds := float(os.environ.get("TEST_CALL_SECONDS", "0")):
    # Report this time for each call, so that the worker claims ahead on a slow machine, too.
    def end(sharing: Sharing, call: HandlerCall) -> None:
        sharing._turns.ended(sharing.subscriber_of(call.deliveries[0]), call_seconds)

    Sharing.ended = end  # type: ignore[assignment,method-assign]

has_locked = threading.Event()
if os.environ.get("TEST_LIMIT_FROM_LOCK"):
    # Give up no call before a handler has locked its delivery, however slow the machine is.
    from django_mqueue.workers import pool

    limit = pool._limit
    pool._limit = lambda call: limit(call) if has_locked.is_set() else math.inf

if lock_wait := int(os.environ.get("TEST_LOCK_WAIT", "0")):
    from django_mqueue.store.connection import session_variables

    session_variables.LOCK_WAIT = lock_wait

QUICK = ExponentialBackoff(first=0.05, factor=1, max=0.05, jitter=0)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def note(what: str, message: Message) -> None:
    """Record a step with the database's time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop_step (what, topic, consumer_group, `key`, number, message_offset, attempt, pid,"
            " connection_id, at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, CONNECTION_ID(),"
            " TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))",
            [
                what, message.topic, message.group, message.key or "", message.payload["n"], message.offset,
                message.attempt, os.getpid(),
            ],
        )  # fmt: skip


def at_door(name: str) -> None:
    """Print a line, and wait until a test opens the door."""
    print(f"at door {name}", flush=True)
    for _ in range(int(PATIENCE / 0.02)):
        if Door.objects.filter(name=name).exists():
            return
        pause(0.02)
    raise TimeoutError(f"nobody opened {name}")


def wait_for_file(name: str) -> None:
    """Wait until a test creates a file, and then print a line."""
    wait_until(Path(name).exists, f"{name} is made")
    print("the file is there", flush=True)


def fail(message: Message) -> None:
    if message.attempt <= message.payload.get("times", 1_000):
        raise ValueError(f"number {message.payload['n']} fails, attempt {message.attempt}")


def fail_until_mended(message: Message) -> None:
    """Fail as a faulty handler does, until a test opens the door "mended"."""
    if not Door.objects.filter(name="mended").exists():
        raise LookupError(f"order {message.payload['n']} has no price")


def fail_after(message: Message) -> None:
    """Wait until a test opens the door, and then fail."""
    at_door(message.payload["door"])
    fail(message)


def die(message: Message) -> None:
    """Kill the whole process, as a crash in native code or the kernel's out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)
    pause(PATIENCE)


def die_last(message: Message) -> None:
    """Die once ``others`` other handlers have started in this process; at once after a test opened the door."""

    def is_time() -> bool:
        begun = Step.objects.filter(pid=os.getpid(), what="start").count()
        return begun > message.payload["others"] or Door.objects.filter(name=message.payload["door"]).exists()

    wait_until(is_time, "the others have started")
    die(message)


def retry(message: Message) -> None:
    if message.attempt <= message.payload["times"]:
        raise Retry("later", delay=message.payload["delay"])


def reject(message: Message) -> None:
    raise Reject("never")


def postpone(message: Message) -> None:
    starts = Step.objects.filter(what="start", message_offset=message.offset, consumer_group=message.group)
    if starts.count() <= message.payload["times"]:
        raise Postpone(message.payload["delay"])


def sell(message: Message) -> None:
    """Write in a transaction, and wait at the door before it ends."""
    with transaction.atomic():
        Sale.objects.create(number=message.payload["n"])
        at_door(message.payload["door"])


def lock_and_sleep(message: Any) -> None:
    """Lock the handler's own delivery, in an atomic handler, and print a line."""
    mine = {"topic": message.topic, "partition_key": message.key, "message_offset": message.offset}
    locked = DeliveryState.objects.select_for_update().filter(consumer_group=message.group, **mine)
    assert locked.values_list("in_flight").get() == (True,)
    has_locked.set()
    print("has locked its delivery", flush=True)
    pause(message.payload["seconds"])


def tell_time(message: Message) -> None:
    print(f"the time is {time.time()}", flush=True)


_kept: list[bytearray] = []


def keep(message: Message) -> None:
    """Keep memory, as a leak does."""
    _kept.append(bytearray(b"x") * (message.payload["mib"] * 2**20))


ACTIONS: dict[str, Callable[[Message], None]] = {
    "wait": lambda message: at_door(message.payload["door"]),
    "sleep": lambda message: pause(message.payload["seconds"]),
    "fail": fail,
    "fail_until_mended": fail_until_mended,
    "fail_after": fail_after,
    "die": die,
    "die_last": die_last,
    "retry": retry,
    "reject": reject,
    "postpone": postpone,
    "sell": sell,
    "tell_time": tell_time,
    "lock_and_sleep": lock_and_sleep,
    "keep": keep,
}


def act(message: Message) -> None:
    """Do what the payload requests. Record the start, and then the end or the failure."""
    if message.payload.get("do") == "wait_for_file":
        return wait_for_file(message.payload["file"])  # This handler does not use the database.
    note("start", message)
    try:
        if action := message.payload.get("do"):
            ACTIONS[action](message)
    except Exception:
        note("fail", message)
        raise
    note("end", message)


@consumer("orders", group="billing", retry=QUICK, batch_size=50)
def bill(message: Message) -> None:
    act(message)


@consumer("orders", group="audit", retry=QUICK, batch_size=50)
def audit(message: Message) -> None:
    act(message)


@consumer("ledger", group="books", strict=True, retry=QUICK)
def keep_books(message: Message) -> None:
    act(message)


@consumer("parcels", group="depot", visibility_timeout=1, retry=QUICK)
def send(message: Message) -> None:
    """This handler runs longer than its visibility timeout if the payload requests it."""
    act(message)


@consumer("sales", group="till", atomic=True, retry=QUICK, batch_size=50)
def take_money(message: Message) -> None:
    """Record a sale, and publish a receipt for it."""
    Sale.objects.create(number=message.payload["n"])
    publish("receipts", message.payload["n"], key=message.key)


@consumer("tolls", group="bridge", atomic=True, retry=QUICK)
def take_toll(message: Message) -> None:
    act(message)


@consumer("quotes", group="pricing", retry=QUICK)
def quote(message: Delivery) -> None:
    act(message)
    message.reply({"n": message.payload["n"], "price": 2 * message.payload["n"]})


@consumer("letters", group="post", retry=QUICK)
async def write(message: Message) -> Any:
    await asyncio.sleep(0)
    await sync_to_async(act, thread_sensitive=False)(message)


@consumer("pallets", group="depot", batch=True, retry=QUICK, max_attempts=2)
def unload(messages: list[Message]) -> None:
    """Process the messages one after another, as their payloads request."""
    for message in messages:
        note("start", message)
    for message in messages:
        if action := message.payload["do"]:
            ACTIONS[action](message)
        note("end", message)


@consumer("crates", group="till", batch=True, atomic=True, retry=QUICK, batch_size=20)
def take_money_for_crates(messages: list[Message]) -> None:
    """Record sales, and publish a receipt for each."""
    Sale.objects.bulk_create([Sale(number=message.payload["n"]) for message in messages])
    publish_many("receipts", [OutgoingMessage(m.payload["n"], key=m.key) for m in messages])


@consumer("errands", group="boy", max_runtime=1, retry=[600])
def run_an_errand(message: Message) -> None:
    act(message)


@consumer("calls", group="boy", max_runtime=1, retry=[600])
async def call(message: Message) -> None:
    """This handler cannot be cancelled, because it awaits a thread."""
    await sync_to_async(act, thread_sensitive=False)(message)


@consumer("sums", group="clerk", max_runtime=1, atomic=True, retry=[600])
def add_up(message: Message) -> None:
    act(message)
