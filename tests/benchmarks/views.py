"""The admin's pages, with their usual and their most expensive requests. Add every new page here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.urls import reverse

from tests.benchmarks.rows import ID, LETTER_OF
from tests.benchmarks.world import World

ORDERS = "orders"
SMALL = "small-0007"
LISTED, COUNTED, OVERVIEW = 2_000, 90_000, 180_000
"""Maximum rows read by a page that lists some hundred rows, by a page that counts or searches, and by the overview.

Pages that count or search stop at a limit of their own.
"""
EACH = 20
"""Rows that a page may read in addition for each partition of the largest topic."""
BUSY = "customer-00000"
"""The partition with the most messages."""


@dataclass(frozen=True)
class View:
    """A page's address. ``data``: the POST data, or None for a GET request.

    ``most``: rows that the page may read for tables of any size, plus a few for each partition. ``is_like_others``:
    other pages make the same queries.
    """

    url: str
    query: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] | None = None
    most: int = LISTED
    is_like_others: bool = False


def views(world: World) -> dict[str, View]:
    """Return all pages by name."""
    parts = (tables, overviews, groups, messages, letters)
    return {name: view for part in parts for name, view in part(world).items()}


Adding = Callable[..., None]


def adding(found: dict[str, View]) -> Adding:
    """Return a function that adds a page to ``found``. ``page``: the URL's name after ``django_mqueue_``."""

    def add(name: str, page: str, most: int = LISTED, *args: Any, like: bool = False, **query: str) -> None:
        url = reverse(f"admin:django_mqueue_{page}", args=args)
        found[name] = View(url, query, most=most, is_like_others=like)

    return add


def tables(world: World) -> dict[str, View]:
    """Lists of the protocol's tables, with and without filters."""
    found: dict[str, View] = {}
    add = adding(found)
    of = {"consumer_group": "billing", "topic": ORDERS}
    for model in ("deliverystate", "partitionlease", "offset", "subscriberheartbeat"):
        page = f"{model}_changelist"
        add(f"{model}: all", page)
        add(f"{model}: last page", page, like=True, p="2" if model == "subscriberheartbeat" else "5")
        add(f"{model}: group", page, consumer_group="billing")
        add(f"{model}: group and topic", page, **of)
        if model != "subscriberheartbeat":
            add(f"{model}: key", page, **of, partition_key=BUSY)
    add("offset: topics", "offset_changelist", whose="topics")
    middle = str(world.at(0.9))
    add(
        "deliverystate: from the middle",
        "deliverystate_changelist",
        **of,
        partition_key=BUSY,
        message_offset__gte=middle,
    )
    return found


def overviews(world: World) -> dict[str, View]:
    """Pages about all topics, and pages about one topic."""
    found: dict[str, View] = {}
    add = adding(found)
    add("overview", "overview", OVERVIEW)
    add("overview: refreshed", "overview", OVERVIEW, fragment="1")
    add("overview: by name", "overview", OVERVIEW, fragment="1", sort="name")
    add("overview: second page", "overview", OVERVIEW, p="2")
    add("overview: found", "overview", COUNTED, find="orders")
    add("overview: nothing found", "overview", COUNTED, find="nothing")
    add("topics", "topic_changelist", COUNTED)
    add("topics: found", "topic_changelist", COUNTED, find="99")
    add("groups", "consumergroup_changelist", COUNTED)
    add("groups: found", "consumergroup_changelist", COUNTED, find="billing")
    for topic in (ORDERS, "visits", "imports", "archive", SMALL):
        add(f"topic {topic}", "topic", COUNTED, topic=topic)
        add(f"topic {topic}: day", "topic", COUNTED, topic=topic, span="day", like=True)
    add("pause a topic", "pause_topic", topic=ORDERS)
    add("actions", "actions")
    add("actions: on a topic", "actions", model="topic", object=ORDERS)
    return found


def groups(world: World) -> dict[str, View]:
    """Pages of a group, its partitions and subscribers, and its operations before confirmation."""
    found: dict[str, View] = {}
    add = adding(found)
    hours_ago = local(world, 6)
    for topic, group in (
        *((ORDERS, group) for group in ("billing", "reports", "audit")),
        ("visits", "counter"),
    ):
        of = {"topic": topic, "group": group}
        add(f"{group}: group", "group", COUNTED, **of)
        add(f"{group}: group, day", "group", COUNTED, **of, span="day", like=True)
        add(f"{group}: partitions", "group_partitions", COUNTED, **of)
        add(f"{group}: subscribers", "group_subscribers", COUNTED, **of)
        add(f"{group}: reset to latest", "reset_group", COUNTED, **of, to="latest")
    for group in ("billing", "reports"):
        of = {"topic": ORDERS, "group": group}
        add(f"{group}: pause", "pause_group", **of)
        add(f"{group}: partitions from the middle", "group_partitions", COUNTED, **of, after="customer-02500")
        add(f"{group}: one partition", "group_partitions", 3 * LISTED, **of, key=BUSY)
        add(f"{group}: a worker's partitions", "group_partitions", COUNTED, **of, subscriber=f"{group}-1")
        add(f"{group}: a subscriber", "group_subscribers", COUNTED, **of, subscriber=f"{group}-1")
        add(f"{group}: release a worker's leases", "release_leases", COUNTED, **of, subscriber=f"{group}-1")
        add(f"{group}: reset to earliest", "reset_group", COUNTED, **of, to="earliest")
        add(f"{group}: reset to time", "reset_group", COUNTED, **of, to="time", at=hours_ago)
        add(f"{group}: reset to offset", "reset_group", COUNTED, **of, to="offset", offset=str(world.at(0.5)))
    return found


def messages(world: World) -> dict[str, View]:
    """Searches for messages, and the page of one message."""
    found: dict[str, View] = {}
    page, add = "message_changelist", adding(found)
    there = world.at(0.9) // 100 * 100
    id = f"{ID}{there:012d}"
    add("messages: newest", page)
    add("messages: topic", page, topic=ORDERS)
    add("messages: topic, oldest first", page, topic=ORDERS, order="oldest")
    add("messages: topic with few", page, topic="archive")
    add("messages: key", page, topic=ORDERS, key=BUSY)
    add("messages: id", page, COUNTED, topic=ORDERS, id=id)
    add("messages: id that is not there", page, COUNTED, topic="visits", id="nowhere")
    add("messages: time", page, COUNTED, topic=ORDERS, after=local(world, 6), before=local(world, 5))
    add("messages: time in a sparse topic", page, COUNTED, topic="archive", after=local(world, 6))
    add("messages: kind", page, COUNTED, topic=ORDERS, kind="order.none")
    add("messages: payload", page, COUNTED, topic=ORDERS, path="customer.country", value="XX")
    add("messages: header", page, COUNTED, topic=ORDERS, header="source", header_value="post")
    for topic, group in ((ORDERS, "billing"), (ORDERS, "reports"), (ORDERS, "audit"), ("visits", "counter")):
        of = {"topic": topic, "group": group}
        like = group in ("reports", "audit")
        add(f"messages: of {group}", page, COUNTED, **of)
        for status in ("pending", "in_flight", "waiting", "done", "dead", "scheduled"):
            add(f"messages: of {group}, {status}", page, COUNTED, **of, status=status, like=like)
        add(
            f"messages: of {group}, pending, oldest first",
            page,
            COUNTED,
            **of,
            status="pending",
            order="oldest",
        )
        add(
            f"messages: of {group}, payload",
            page,
            COUNTED,
            **of,
            status="pending",
            path="order",
            value="-1",
            like=like,
        )
    add("messages: of billing, id", page, COUNTED, topic=ORDERS, group="billing", id=id)
    with_earlier = 3 * LISTED  # The page also reads up to 1,000 earlier messages for each group.
    add("message", "message_change", with_earlier, world.row(there))
    add("message: pending", "message_change", LISTED, world.row(world.at(0.5) // 100 * 100))
    add("message: dead letter", "message_change", LISTED, world.row(there + 99))
    add("message: its original", "message_change", LISTED, world.row(there + 99 - LETTER_OF))
    add("message: publish a copy", "publish_message", copy=str(world.row(there)))
    return found


def letters(world: World) -> dict[str, View]:
    """Dead letters by topic, by error, as a list and alone, and their operations before confirmation."""
    found: dict[str, View] = {}
    add, of = adding(found), {"topic": ORDERS}
    letter = world.at(0.9) // 100 * 100 + 99
    narrow = {
        "all": {},
        "group": {"group": "reports"},
        "error": {"error": "TimeoutError"},
        "rare error": {"error": "RecursionError"},
        "error that is not there": {"error": "NoSuchError"},
        "line": {"line": "payment gateway"},
        "key": {"key": BUSY},
        "id": {"id": f"{ID}{letter - LETTER_OF:012d}"},
        "kind": {"kind": "order.none"},
        "time": {"after": local(world, 6), "before": local(world, 5)},
        "payload": {"path": "customer.country", "value": "XX"},
    }
    add("letters: topics", "deadletter_changelist", COUNTED)
    add("letter", "deadletter", offset=str(world.row(letter)))
    add("letters: edit", "edit_deadletter", **of, offset=str(world.row(letter)))
    for name, given in narrow.items():
        add(f"letters by error: {name}", "deadletter_errors", COUNTED, **of, **given)
        add(f"letters: {name}", "deadletter_list", COUNTED, **of, **given)
        add(f"redrive letters: {name}", "redrive_matching", COUNTED, **of, **given, like=bool(given))
    add("purge letters: all", "purge_matching", COUNTED, **of, typed=ORDERS)
    return found


def local(world: World, hours: int) -> str:
    """Return the time this many hours before the world was made, in the format of a form."""
    return f"{datetime.fromtimestamp(world.now // 1000 - hours * 3600, UTC):%Y-%m-%dT%H:%M:%S}"
