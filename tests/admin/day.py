"""A made-up day of a shop's messages and deliveries: the same rows for the same seed.

Four topics: ``orders`` with three groups (one is behind, one is paused); ``payments``, with dead letters; ``mail``,
with scheduled messages; ``clicks``, without a consumer group.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import models

from django_mqueue import subscribe
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.service.group_positions import pause

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
FAR = 1 << 45

CHARGE = ("shop/payments.py", "charge", "answer = bank.charge(order, card)")
ERRORS = (
    ("CardDeclined", "the bank declines the card ending in {}", *CHARGE),
    ("BankTimeout", "no answer from the bank within 30 s (request {})", *CHARGE),
    ("KeyError", "'iban'", "shop/ledger.py", "account_of", 'return accounts[customer["iban"]]'),
    ("DoesNotExist", "no order has the number {}", "shop/ledger.py", "book", "order = orders.find(number)"),
)
"""For each error: its class and text, and the file, the function and the line of code that raise it."""

Row = TypeVar("Row", bound=models.Model)


@dataclass
class Kept:
    """Collected rows, before they are stored."""

    states: list[DeliveryState] = field(default_factory=list)
    letters: list[Message] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """A consumer group and its behaviour.

    ``waits`` returns the seconds from publish to delivery, for the message's age in milliseconds. ``works`` returns the
    seconds from delivery to ack. ``until``: the group has handled no message younger than this, in milliseconds.
    """

    topic: str
    name: str
    workers: tuple[str, ...]
    waits: Callable[[random.Random, float], float]
    works: Callable[[random.Random], float]
    until: int = 400
    fails: float = 0.0
    paused: bool = False


def hour_of(age: float) -> float:
    """Return the hour of the made-up day, which ends at 16:00, for an age in milliseconds."""
    return (16 - age / MINUTE / 60) % 24


def quick(chance: random.Random, age: float) -> float:
    return chance.lognormvariate(-2.2, 0.5)


def slow_at_noon(chance: random.Random, age: float) -> float:
    return chance.lognormvariate(-1.5, 0.6) * (1 + 30 * math.exp(-(((hour_of(age) - 15) / 2) ** 2)))


GROUPS = (
    Group("orders", "billing", ("shop-1", "shop-2", "shop-3"), quick, lambda c: c.lognormvariate(-3, 0.4)),
    Group(
        "orders",
        "shipping",
        ("depot-1", "depot-2"),
        slow_at_noon,
        lambda c: c.lognormvariate(-1, 0.5),
        11 * MINUTE,
    ),
    Group("orders", "audit", (), quick, lambda c: c.lognormvariate(-3, 0.4), 95 * MINUTE, paused=True),
    Group(
        "payments",
        "ledger",
        ("ledger-1", "ledger-2"),
        quick,
        lambda c: c.lognormvariate(-1.2, 0.7),
        fails=0.012,
    ),
    Group("mail", "mailer", ("mailer-1",), quick, lambda c: c.lognormvariate(-0.5, 0.4)),
)
PER_MINUTE = {"orders": 9.0, "payments": 7.0, "mail": 6.0, "clicks": 3.0}


def make(hours: int = 24, seed: int = 20_261_121) -> None:
    """Fill the five tables with the last hours."""
    chance, now = random.Random(seed), int(time.time() * 1000)
    for group in GROUPS:
        subscribe(group.topic, group.name)
    rows = list(_published(chance, now, hours))
    Message.objects.bulk_create(rows, batch_size=1_000)
    stored: dict[str, list[Message]] = defaultdict(list)
    for row in Message.objects.filter(consumer_group="", failed_group=None).order_by("offset"):
        stored[row.topic].append(row)
    kept = Kept()
    for group in GROUPS:
        _handle(chance, now, group, stored[group.topic], kept)
    Message.objects.bulk_create(kept.letters, batch_size=500)
    DeliveryState.objects.bulk_create(kept.states, batch_size=1_000)
    _schedule(chance, now)
    newest = Message.objects.order_by("-offset")[0].offset
    Offset.objects.filter(consumer_group="", topic__gt="", partition_key="").update(offset_acked=newest)
    for group in GROUPS:
        if group.paused:
            pause(group.topic, group.name, by="ada", why="the audit service is moving")


def alive() -> None:
    """Renew the heartbeats and leases of all workers except ``depot-2``."""
    now = int(time.time() * 1000)
    SubscriberHeartbeat.objects.filter(deregistered_at=None).exclude(subscriber_name="depot-2").update(
        heartbeat_at=now
    )
    PartitionLease.objects.filter(holder__gt="").exclude(leased_by="depot-2").update(lease_renewed_at=now)


def _published(chance: random.Random, now: int, hours: int) -> Iterable[Message]:
    """Yield the messages in the order of their time: few at night, most in the afternoon."""
    number = 0
    for minute in range(hours * 60, 0, -1):
        swell = 0.25 + 1.5 * math.exp(-(((hour_of(minute * MINUTE) - 15) / 4.5) ** 2))
        for topic, rate in PER_MINUTE.items():
            for _ in range(round(rate * swell * chance.uniform(0.6, 1.4))):
                number += 1
                at = now - minute * MINUTE + chance.randrange(MINUTE)
                yield _message(chance, topic, number, at)


def _message(chance: random.Random, topic: str, number: int, at: int, **more: Any) -> Message:
    customer = f"customer-{chance.randrange(180):03d}"
    amount = f"{chance.lognormvariate(3.4, 0.7):.2f}"
    bodies: dict[str, dict[str, Any]] = {
        "orders": {"order": number, "customer": customer, "amount": amount, "lines": [
            {"article": chance.choice(("tea", "coffee", "cocoa", "honey")), "count": chance.randint(1, 5)}]},
        "payments": {"order": number, "amount": amount, "card": f"**** {chance.randrange(10_000):04d}"},
        "mail": {"to": f"{customer}@example.org", "template": chance.choice(("thanks", "shipped", "reminder"))},
        "clicks": {"page": chance.choice(("/", "/tea", "/coffee", "/cart")), "session": number},
    }  # fmt: skip
    of = topic.removesuffix("_scheduled")
    kinds = {"orders": "order.placed", "payments": "payment.due", "mail": "mail", "clicks": "click"}
    headers = {"trace": f"{chance.getrandbits(64):016x}"}
    return Message(**{
        "topic": topic,
        "partition_key": customer if of in ("orders", "payments") else f" {chance.randrange(16):04d}",
        "message_id": f"{of.rstrip('s')}-{number}",
        "consumer_group": "",
        "payload": json.dumps(bodies[of]).encode(),
        "metadata": {"kind": kinds[of], "headers": headers, "encoding": "json"},
        "available_at": at, "created_at": at, "published_at": at, **more,
    })  # fmt: skip


def _handle(chance: random.Random, now: int, group: Group, messages: list[Message], kept: Kept) -> None:
    """Create what the group leaves for these messages: delivery states, dead letters, watermarks and leases."""
    done: dict[str, int] = {}
    owners = _owners(group, messages)
    for message in messages:
        age = now - message.published_at
        delivered = message.published_at + round(group.waits(chance, age) * 1000)
        acked = delivered + round(group.works(chance) * 1000)
        if age < group.until or delivered > now:
            continue
        worker = owners.get(message.partition_key, "auditor-1")
        common = {
            "consumer_group": group.name, "topic": group.topic, "partition_key": message.partition_key,
            "message_offset": message.offset, "delivery_token": chance.getrandbits(62), "delivered_to": worker,
            "delivered_at": delivered, "handed": True,
        }  # fmt: skip
        if age > MINUTE and chance.random() < group.fails:
            errors = _errors(chance, worker, delivered)
            if age < 20 * MINUTE and chance.random() < 0.5:
                kept.states.append(DeliveryState(
                    **common, invisible_until=now + chance.randrange(MINUTE, 5 * MINUTE), retry_count=2,
                    failure_count=2, errors=errors[:2]))  # fmt: skip
                continue
            failed = errors[-1]["at"]
            kept.letters.append(_letter(message, group, failed, errors))
            kept.states.append(DeliveryState(
                **common, acked=True, acked_at=failed, invisible_until=0, retry_count=2, failure_count=3,
                errors=errors))  # fmt: skip
        elif acked > now or (group.name == "ledger" and age < 2 * MINUTE and chance.random() < 0.3):
            kept.states.append(DeliveryState(**common, in_flight=True, invisible_until=now + MINUTE))
        else:
            kept.states.append(DeliveryState(**common, acked=True, acked_at=acked, invisible_until=0))
        done[message.partition_key] = message.offset
    _places(chance, now, group, messages, done)


def _owners(group: Group, messages: list[Message]) -> dict[str, str]:
    """Return the worker of each partition. All workers get equal shares."""
    keys = sorted({message.partition_key for message in messages})
    workers = group.workers
    return {key: workers[number % len(workers)] for number, key in enumerate(keys)} if workers else {}


def _errors(chance: random.Random, worker: str, at: int) -> list[dict[str, Any]]:
    name, text, file, function, code = chance.choices(ERRORS, (8, 5, 3, 1))[0]
    line = f"{name}: {text.format(chance.randrange(1000, 10_000))}"
    trace = (
        f"{line}\n\nTraceback (most recent call last):\n"
        '  File "/srv/venv/lib/python3.13/site-packages/django_mqueue/workers/executor.py", line 107, in _handle\n'
        "    result = job.handler.function(argument)\n"
        f'  File "/srv/{file}", line {chance.randrange(20, 90)}, in {function}\n'
        f"    {code}\n"
        f"{line}\n"
    )
    return [
        {"at": at + number * 1000, "attempt": number + 1, "by": worker, "error": trace} for number in range(3)
    ]


def _letter(message: Message, group: Group, at: int, errors: list[dict[str, Any]]) -> Message:
    metadata = {**message.metadata, "failed": {"attempts": 3, "errors": errors}}
    return Message(
        topic=f"{group.topic}_dlq", partition_key=message.partition_key, message_id=f"{message.offset}:{group.name}",
        consumer_group="", payload=message.payload, metadata=metadata, available_at=at, created_at=at,
        published_at=at, failed_at=at, failure_count=3, last_error=errors[-1]["error"], original_topic=group.topic,
        failed_group=group.name, original_id=message.message_id,
    )  # fmt: skip


def _places(
    chance: random.Random, now: int, group: Group, messages: list[Message], done: dict[str, int]
) -> None:
    """Store the group's watermarks, leases and heartbeats."""
    holders = {worker: f"{chance.getrandbits(64):016x}" for worker in group.workers}
    keys = sorted({message.partition_key for message in messages})
    Offset.objects.bulk_create(
        Offset(
            consumer_group=group.name, topic=group.topic, partition_key=key, offset_acked=done[key],
            scan_offset=done[key], updated_at=now - chance.randrange(60_000),
        )
        for key in keys if key in done
    )  # fmt: skip
    if not group.workers:
        return
    for key, owner in _owners(group, messages).items():
        silent = owner == "depot-2"
        PartitionLease.objects.create(
            consumer_group=group.name, topic=group.topic, partition_key=key, leased_by=owner,
            holder=holders[owner], leased_at=now - chance.randrange(MINUTE, 300 * MINUTE),
            lease_renewed_at=now - 12 * MINUTE if silent else now,
        )  # fmt: skip
    for worker in group.workers:
        silent = worker == "depot-2"
        SubscriberHeartbeat.objects.create(
            consumer_group=group.name, topic=group.topic, subscriber_name=worker, incarnation=holders[worker],
            heartbeat_at=now - 12 * MINUTE if silent else now,
        )  # fmt: skip


def _schedule(chance: random.Random, now: int) -> None:
    Message.objects.bulk_create(
        _message(chance, "mail_scheduled", 900_000 + number, now, available_at=now + chance.randrange(DAY))
        for number in range(14)
    )
