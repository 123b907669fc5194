"""Create small random topics as the protocol leaves them, and compute their true numbers from every row."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db.models import Max

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from tests.factories import (
    DeadLetterFactory,
    DeliveryStateFactory,
    HeartbeatFactory,
    LeaseFactory,
    MessageFactory,
    OffsetFactory,
)
from tests.support.processes import database_ms

TOPIC, GROUP = "world", "watched"
SPAN = 3_600_000

GAPS: tuple[Callable[[random.Random, int], int], ...] = (
    lambda chance, number: 1,
    lambda chance, number: 1 + int(chance.expovariate(0.5)),
    lambda chance, number: 1 if number % 20 else chance.randrange(1, 200),
)
"""Distances between offsets: of a topic alone in the log, of a topic among others, and of a topic with batches."""


@dataclass
class Truth:
    pending: int = 0
    in_flight: int = 0
    waiting: int = 0
    scheduled: int = 0
    dead: int = 0
    kept: int = 0
    oldest: int | None = None
    published: list[int] = field(default_factory=list)
    """Publication times of the messages for the group."""
    finished: list[tuple[int, int]] = field(default_factory=list)
    """The time of each ack, and the milliseconds from publication to ack."""
    given_up: list[int] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> int:
        return self.pending + self.in_flight + self.waiting


def make(seed: int, messages: int = 200, partitions: int = 6, *, even: bool = False) -> Truth:
    """Create a topic, and a group at some position in it. With ``even``, it has the same progress in each partition."""
    chance, now, truth = random.Random(seed), database_ms(), Truth()
    names = [f"key-{number:03d}" for number in range(partitions)]
    OffsetFactory.create(consumer_group=GROUP, topic=TOPIC, partition_key="", offset_acked=0, updated_at=1)
    OffsetFactory.create(
        consumer_group="", topic=TOPIC, partition_key="", offset_acked=1 << 40, updated_at=now
    )
    HeartbeatFactory.create(consumer_group=GROUP, topic=TOPIC, heartbeat_at=now + 3_600_000)
    offset = (Message.objects.aggregate(Max("offset"))["offset__max"] or 0) + chance.randrange(1, 100)
    rows, how = [], chance.choice(GAPS)
    for number in range(messages):
        offset += how(chance, number)
        at = now - SPAN + 1_000 + number * (SPAN - 60_000) // messages
        rows.append(
            Message(
                offset=offset, topic=TOPIC, partition_key=chance.choice(names), message_id=f"id-{number}",
                consumer_group=chance.choice(("", "", "", "", GROUP, "other")), payload=b"1", metadata={},
                available_at=at, created_at=at, published_at=at,
            )
        )  # fmt: skip
    Message.objects.bulk_create(rows)
    truth.kept = len(rows)
    border = chance.choice((0.0, 0.2, 0.5, 0.9, 1.0))
    borders = {
        name: border if even else min(1.0, max(0.0, border + chance.uniform(-0.3, 0.3))) for name in names
    }
    states = []
    for name in names:
        mine = [row for row in rows if row.partition_key == name]
        reached = round(len(mine) * borders[name])
        states += _deliver(chance, truth, mine, reached, now)
    DeliveryState.objects.bulk_create(states)
    _surround(chance, truth, now)
    return truth


def _deliver(
    chance: random.Random, truth: Truth, rows: list[Message], reached: int, now: int
) -> list[DeliveryState]:
    """Deliver the first ``reached`` messages of a partition, and finish most of them."""
    states, first_open = [], None
    for number, row in enumerate(rows):
        if row.consumer_group == "other":
            continue
        truth.published.append(row.published_at)
        if number >= reached:
            truth.pending += 1
        else:
            is_open = number > reached * 3 // 4 and chance.random() < 0.3
            in_flight = is_open and chance.random() < 0.4
            took = chance.randrange(10, 50_000)
            states.append(
                DeliveryState(
                    consumer_group=GROUP, topic=TOPIC, partition_key=row.partition_key, message_offset=row.offset,
                    acked=not is_open, in_flight=in_flight, delivered_at=row.published_at + took // 2,
                    acked_at=None if is_open else row.published_at + took, handed=True, delivered_to="worker-1",
                    delivery_token=1, invisible_until=now,
                )
            )  # fmt: skip
            truth.in_flight += in_flight
            truth.waiting += is_open and not in_flight
            if not is_open:
                truth.finished.append((row.published_at + took, took))
                continue
        truth.lags[row.partition_key] = truth.lags.get(row.partition_key, 0) + 1
        first_open = row.offset if first_open is None else first_open
        truth.oldest = row.offset if truth.oldest is None else min(truth.oldest, row.offset)
    if reached and rows:
        done = rows[-1].offset if first_open is None else first_open - 1
        name = rows[0].partition_key
        OffsetFactory.create(
            consumer_group=GROUP, topic=TOPIC, partition_key=name, offset_acked=done,
            scan_offset=max(done, rows[reached - 1].offset), updated_at=now,
        )  # fmt: skip
    if rows and (reached or chance.random() < 0.8):
        LeaseFactory.create(
            consumer_group=GROUP, topic=TOPIC, partition_key=rows[0].partition_key, leased_at=now, lease_renewed_at=now
        )  # fmt: skip
    return states


def _surround(chance: random.Random, truth: Truth, now: int) -> None:
    """Create scheduled messages, dead letters, and rows of another topic and another group."""
    later = [chance.choice(("", GROUP, "other")) for _ in range(chance.randrange(20))]
    Message.objects.bulk_create(
        MessageFactory.build(
            topic=f"{TOPIC}_scheduled", partition_key="k", consumer_group=target, payload=b"1"
        )
        for target in later
    )
    truth.scheduled = sum(target != "other" for target in later)
    letters = [
        (chance.choice((GROUP, "other")), now - chance.randrange(SPAN)) for _ in range(chance.randrange(20))
    ]
    Message.objects.bulk_create(
        DeadLetterFactory.build(
            topic=f"{TOPIC}_dlq",
            message_id=f"{number}:{group}",
            failed_group=group,
            payload=b"1",
            published_at=at,
        )
        for number, (group, at) in enumerate(sorted(letters, key=lambda letter: letter[1]))
    )
    truth.given_up = [at for group, at in letters if group == GROUP]
    truth.dead = len(truth.given_up)
    MessageFactory.create(topic="beside", payload=b"1")
    DeliveryStateFactory.create(
        consumer_group="other", topic=TOPIC, partition_key="key-000", message_offset=1
    )
    LeaseFactory.create(consumer_group="other", topic=TOPIC, partition_key="key-000")


def clear() -> None:
    for model in (Message, DeliveryState, PartitionLease, SubscriberHeartbeat):
        model._default_manager.all().delete()
    Offset.objects.exclude(topic="").delete()
