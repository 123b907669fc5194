"""The admin's pages, each as one would ask for it, and as it costs most. Every new page is added here."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.urls import reverse

from tests.benchmarks.rows import ID, LETTER_OF
from tests.benchmarks.world import World

ORDERS = "orders"
BUSY, QUIET = "customer-00000", "customer-{:05d}"
"""The partition with the most messages; the last one has the fewest."""


@dataclass(frozen=True)
class View:
    """A page's address; ``data``: what is posted to it, if it is."""

    url: str
    query: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] | None = None


def views(world: World) -> dict[str, View]:
    """By name."""
    return {**lists(world), **rows(world)}


def lists(world: World) -> dict[str, View]:
    """Lists of the five tables, and what they can be narrowed to."""
    found: dict[str, View] = {}

    def add(model: str, name: str, **query: str) -> None:
        found[f"{model}: {name}"] = View(reverse(f"admin:django_mqueue_{model}_changelist"), query)

    middle = str(world.at(0.5))
    quiet = QUIET.format(world.size.partitions - 1)
    some_id = ID + f"{world.at(0.5) // 10 * 10:012d}"
    letter = world.at(0.9) // 100 * 100 + 99
    add("message", "all")
    add("message", "all from the middle", start=f'["newest of all",{middle}]')
    add("message", "topic", topic=ORDERS)
    add("message", "topic, oldest first", topic=ORDERS, order="oldest")
    add("message", "topic with few", topic="archive")
    add("message", "topic from the middle", topic=ORDERS, start=f'["newest",{middle}]')
    add("message", "busy key", topic=ORDERS, key=BUSY)
    add("message", "quiet key", topic=ORDERS, key=quiet)
    add("message", "id", topic=ORDERS, id=some_id)
    add("message", "id that is not there", topic=ORDERS, id="nowhere")
    add("message", "id and key", topic=ORDERS, key=BUSY, id=some_id)
    add("message", "kind that is not there", topic=ORDERS, kind="nothing")
    add("message", "payload that is not there", topic=ORDERS, path="nothing", value="1")
    for status in ("pending", "in_flight", "waiting", "done", "dead", "scheduled"):
        add("message", f"{status} of a group", topic=ORDERS, group="billing", status=status)
    add("message", "dead letters", topic="orders_dlq")
    add(
        "message", "dead letter by its original id",
        topic=ORDERS, status="dead", group="billing", id=f"{ID}{letter - LETTER_OF:012d}",
    )  # fmt: skip
    for model in ("deliverystate", "partitionlease", "offset", "subscriberheartbeat"):
        add(model, "all")
        add(model, "last page", p="5" if model != "subscriberheartbeat" else "2")
        add(model, "group", consumer_group="billing")
        add(model, "group and topic", consumer_group="billing", topic=ORDERS)
        if model != "subscriberheartbeat":
            add(model, "key", consumer_group="billing", topic=ORDERS, partition_key=BUSY)
    add("offset", "topics", whose="topics")
    add(
        "deliverystate", "key from the middle",
        consumer_group="billing", topic=ORDERS, partition_key=BUSY, message_offset__gte=str(world.at(0.9)),
    )  # fmt: skip
    return found


def rows(world: World) -> dict[str, View]:
    """One row of the log."""
    url = "admin:django_mqueue_message_change"
    numbers = {"message": world.at(0.9) // 100 * 100, "dead letter": world.at(0.9) // 100 * 100 + 99}
    return {f"one {what}": View(reverse(url, args=[world.row(n)])) for what, n in numbers.items()}
