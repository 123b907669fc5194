"""``manage.py mqueue``: peek, find, leases and actions."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, pause, publish, publish_many, redrive, subscribe
from django_mqueue.browse import id_search
from django_mqueue.inspect import Inspected
from django_mqueue.models import Message, PartitionLease
from django_mqueue.store import gates
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.servers import kind_of_run
from tests.support.accounts import acting_as
from tests.support.statements import Cost, counted
from tests.support.subscribers import QUICK, poll_until
from tests.support.transactions import HeldTransaction

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]

SECRET = "4711-0815-2342-1887"


def mask(message: Inspected) -> Inspected:
    return replace(message, payload={**message.payload, "card": "…"})


def broken(message: Inspected) -> Inspected:
    raise ValueError(message.payload)


def ids(document: dict[str, Any]) -> list[str]:
    return [row["id"] for row in document["messages"]]


@override_settings(MQUEUE=QUICK)
def test_peek_selects_by_all_filters(mqueue_json: Json) -> None:
    offsets = one_of_each()
    assert set(ids(mqueue_json("peek", TOPIC))) == {"done", "dead", "waiting", "in_flight", "pending"}
    for status in ("done", "waiting", "in_flight", "pending"):
        (row,) = mqueue_json("peek", TOPIC, "--group", GROUP, "--status", status)["messages"]
        assert (row["id"], row["status"], row["offset"]) == (status, status, offsets[status])
    (row,) = mqueue_json("peek", TOPIC, "--status", "dead")["messages"]
    assert (row["group"], row["last_error"], row["attempts"]) == (GROUP, "ValueError: never", 1)
    assert row["offset"] == Message.objects.get(topic=f"{TOPIC}_dlq").offset
    (row,) = mqueue_json("peek", TOPIC, "--status", "scheduled")["messages"]
    assert "due" in row
    assert ids(mqueue_json("peek", TOPIC, "--key", "done")) == ["done"]
    assert ids(mqueue_json("peek", TOPIC, "--id", "dead")) == ["dead"]
    assert ids(mqueue_json("peek", TOPIC, "--offset", offsets["waiting"])) == ["waiting"]
    assert ids(mqueue_json("peek", TOPIC, "--where", "is=pending")) == ["pending"]
    assert ids(mqueue_json("peek", TOPIC, "--kind", "none")) == []
    assert ids(mqueue_json("peek", TOPIC, "--before", "2020-01-01")) == []
    assert len(ids(mqueue_json("peek", TOPIC, "--after", "2020-01-01"))) == 5
    assert ids(mqueue_json("peek", TOPIC, "--newest-first", "--limit", 1)) == ["pending"]


def test_peek_continues_where_it_ended(mqueue: Run, mqueue_json: Json) -> None:
    publish_many(TOPIC, [OutgoingMessage(n, id=f"id-{n}", key="k") for n in range(5)])
    first = mqueue_json("peek", TOPIC, "--limit", 3)
    second = mqueue_json("peek", TOPIC, "--limit", 3, "--start", first["next"])
    assert ids(first) + ids(second) == [f"id-{n}" for n in range(5)]
    assert second["next"] is None
    assert f"use --start='{first['next']}'" in mqueue("peek", TOPIC, "--limit", 3)


def test_peek_prints_whole_payloads(mqueue: Run, mqueue_json: Json) -> None:
    publish(TOPIC, {"text": "x" * 3_000}, key="k", headers={"from": "shop"})
    publish(TOPIC, b"\x00\x01\xff", key="k")
    short = mqueue("peek", TOPIC)
    assert "xxx…" in short
    assert "3 bytes: 00 01 ff" in short
    assert max(map(len, short.splitlines())) <= 200
    whole = mqueue("peek", TOPIC, "--payload")
    assert "x" * 3_000 in whole
    assert '"from": "shop"' in whole
    document = mqueue_json("peek", TOPIC, "--payload")
    assert document["messages"][0]["payload"] == {"text": "x" * 3_000}
    assert document["messages"][0]["headers"] == {"from": "shop"}


@override_settings(MQUEUE={**QUICK, "TOPICS": {"payments": {"MASK": mask}}})
def test_masks_hide_data_unless_unmask_is_given(mqueue: Run, mqueue_json: Json) -> None:
    publish("payments", {"card": SECRET, "n": 1}, key="k", id="pay-1")
    for verb in (
        ("peek", "payments"),
        ("peek", "payments", "--payload"),
        ("find", "pay-1"),
        ("find", "--key", "k"),
    ):
        for more in ((), ("--json",)):
            out = mqueue(*verb, *more)
            assert SECRET not in out, verb
            assert "pay-1" in out
            assert SECRET in mqueue(*verb, *more, "--unmask")


@override_settings(MQUEUE={**QUICK, "TOPICS": {"payments": {"MASK": mask}}})
def test_no_filter_finds_hidden_data(mqueue_json: Json) -> None:
    publish("payments", {"card": SECRET, "n": 1}, key="k", id="pay-1")
    assert ids(mqueue_json("peek", "payments", "--where", f"card={SECRET}")) == []
    assert ids(mqueue_json("peek", "payments", "--where", "n=1")) == ["pay-1"]
    assert ids(mqueue_json("peek", "payments", "--where", f"card={SECRET}", "--unmask")) == ["pay-1"]


@override_settings(MQUEUE={**QUICK, "MASK": broken})
def test_a_mask_that_fails_hides_all(mqueue: Run) -> None:
    publish("payments", {"card": SECRET}, key="k")
    out = mqueue("peek", "payments", "--payload")
    assert SECRET not in out
    assert "masked: the mask failed" in out


@override_settings(MQUEUE=QUICK)
def test_find_reads_the_log_scheduled_messages_and_dead_letters(mqueue: Run, mqueue_json: Json) -> None:
    offsets = one_of_each()
    publish("audit", 1, id="pending")
    rows = mqueue_json("find", "pending")["messages"]
    assert [(row["topic"], row["where"], row["key"]) for row in rows] == [
        ("audit", "log", None), (TOPIC, "log", "pending"),
    ]  # fmt: skip
    assert rows[1]["offset"] == offsets["pending"]
    dead, original = mqueue_json("find", "dead")["messages"]
    assert (dead["topic"], dead["where"], dead["group"]) == (f"{TOPIC}_dlq", "dead letter", GROUP)
    assert (original["topic"], original["offset"]) == (TOPIC, offsets["dead"])
    (later,) = mqueue_json("find", "later-tomorrow")["messages"]
    assert (later["topic"], later["where"]) == (f"{TOPIC}_scheduled", "scheduled")
    assert f"manage.py mqueue why {TOPIC} {offsets['done']}" in mqueue("find", "done")
    assert redrive(TOPIC, group=GROUP) == 1
    assert [row["topic"] for row in mqueue_json("find", "dead")["messages"]] == [TOPIC, TOPIC]


@override_settings(MQUEUE=QUICK)
def test_find_by_offset_and_by_key(mqueue_json: Json) -> None:
    offsets = one_of_each()
    (row,) = mqueue_json("find", offsets["done"])["messages"]
    assert (row["id"], row["topic"]) == ("done", TOPIC)
    publish("audit", 1, key="done", id="other")
    assert ids(mqueue_json("find", "--key", "done")) == ["other", "done"]
    assert ids(mqueue_json("find", "done", "--key", "done")) == ["done"]
    with pytest.raises(CommandError, match="no message with id 'done' and key 'dead'"):
        mqueue_json("find", "done", "--key", "dead")


def test_find_a_parked_retry_whose_message_is_deleted(mqueue_json: Json) -> None:
    offset = publish(TOPIC, 1, id="parked", key="k").offset
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 1)[0].nack(delay=7200, error="OSError: closed")
    Message.objects.filter(offset=offset).delete()
    (row,) = mqueue_json("find", "parked", "--key", "k")["messages"]
    assert (row["where"], row["group"]) == ("scheduled", GROUP)


def test_find_costs_the_same_for_any_number_of_messages_and_partitions(mqueue_json: Json) -> None:
    def cost(*arguments: str) -> Cost:
        mqueue_json("find", *arguments)
        with counted() as spent:
            mqueue_json("find", *arguments)
        return spent

    searches = (("id-3",), ("nosuch-1", "--key", "key-1"), ("--key", "key-1"))
    publish_many(TOPIC, [OutgoingMessage(n, id=f"id-{n}", key=f"key-{n % 3}") for n in range(20)])
    publish_many(TOPIC, [OutgoingMessage(n, id="nosuch-1", key="key-1") for n in range(1)])
    few = [cost(*search) for search in searches]
    publish_many(TOPIC, [OutgoingMessage(n, id=f"more-{n}", key=f"key-{n % 3}") for n in range(5_000)])
    long = [cost(*search) for search in searches]
    publish_many(TOPIC, [OutgoingMessage(n, id=f"keys-{n}", key=f"other-{n}") for n in range(600)])
    wide = [cost(*search) for search in searches]
    for first, *later in zip(few, long, wide, strict=True):
        for (
            one
        ) in later:  # The names of partitions are read in one to three statements, each with its EXPLAIN.
            assert one.count <= first.count + 6, f"{first}\n{one}"
    for one in long:
        assert one.rows < 500, str(one)


def nothing_found(mqueue: Run, *arguments: str) -> list[str]:
    """Return the possibilities that find names."""
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("mqueue", "find", *arguments, "--json", stdout=out)
    document: dict[str, Any] = json.loads(out.getvalue())
    assert document["messages"] == []
    return list(document["possibilities"])


@override_settings(MQUEUE={**QUICK, "RETENTION": 7200})
def test_an_empty_answer_names_the_possibilities(mqueue: Run) -> None:
    publish(TOPIC, 1)
    texts = nothing_found(mqueue, "nosuch")
    assert f"the retention is over: {TOPIC} 2 h." in texts[0]
    assert "no transaction publishes to the searched topics now." in texts[1]
    assert "another database: this search read 'default'" in texts[2]
    assert not [text for text in texts if "Give --key" in text], "all keys were searched"

    def work() -> None:
        publish(TOPIC, 2, id="held")

    with HeldTransaction(work):
        texts = nothing_found(mqueue, "held")
        assert texts[1] == "It is not committed yet: a transaction that publishes is open now."
    assert not [text for text in nothing_found(mqueue, "--key", "nosuch") if "parked" in text]


def test_a_worker_is_no_transaction_that_publishes(mqueue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """For some milliseconds, it locks the same rows as publishers. Here it ends between two looks at them."""
    publish(TOPIC, 1)

    def work() -> None:
        with connection.cursor() as cursor:
            gates.free_slots(cursor, gates.slots(gates.gate_of(TOPIC)))

    with HeldTransaction(work) as worker:
        monkeypatch.setattr(
            id_search, "time", SimpleNamespace(sleep=lambda seconds: worker.commit() if seconds else None)
        )
        assert "no transaction publishes to the searched topics now." in nothing_found(mqueue, "nosuch")[1]


def test_an_account_that_may_only_read_finds_messages(mqueue: Run, mqueue_json: Json) -> None:
    """On MySQL, it may not lock rows. So it cannot tell whether a transaction publishes."""
    publish(TOPIC, 1, id="a")
    with acting_as("viewer"):
        assert ids(mqueue_json("find", "a")) == ["a"]
        texts = nothing_found(mqueue, "nosuch")
    if kind_of_run() == "mysql":
        assert texts[1].startswith("It is not committed yet, or it was never committed")
        assert texts[1].endswith("is unknown: this account may only read.")
    else:
        assert "no transaction publishes to the searched topics now." in texts[1]


def test_copies_of_other_keys_do_not_hide_a_message(mqueue_json: Json) -> None:
    """An id is unique only within its key."""
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, [OutgoingMessage(n, id="1", key=key) for n, key in enumerate("abcd")])
        for delivery in poll_until(subscription, 4):
            delivery.reject("no")
    Message.objects.filter(topic=f"{TOPIC}_dlq", partition_key="a").delete()
    assert redrive(TOPIC, group=GROUP) == 3
    (row,) = mqueue_json("find", "1", "--key", "a", "--limit", 1)["messages"]
    assert row["key"] == "a"


def test_leases_and_expired_leases(mqueue: Run, mqueue_json: Json) -> None:
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n}") for n in range(5)])
    with Subscription(TOPIC, GROUP, name="worker-1") as subscription:
        poll_until(subscription, 5)
        rows = mqueue_json("leases", TOPIC, GROUP)["leases"]
        assert [(row["partition"], row["lease"], row["subscriber"], row["in_flight"]) for row in rows] == [
            (f"key-{n}", "held", "worker-1", 1) for n in range(5)
        ]
        PartitionLease.objects.filter(partition_key__in=["key-1", "key-3", "key-4"]).update(
            lease_renewed_at=1
        )
        expired = mqueue_json("leases", TOPIC, GROUP, "--expired", "--limit", 2)
        assert [row["partition"] for row in expired["leases"]] == ["key-1", "key-3"]
        assert expired["next"] == "key-3"
        rest = mqueue_json(
            "leases", TOPIC, GROUP, "--expired", "--after", "key-3", "--subscriber", "worker-1"
        )
        assert [(row["partition"], row["lease"]) for row in rest["leases"]] == [("key-4", "expired")]
        assert rest["next"] is None
        assert mqueue_json("leases", TOPIC, GROUP, "--expired", "--subscriber", "other")["leases"] == []
        assert len(mqueue_json("leases", TOPIC, GROUP, "--subscriber", "worker-1")["leases"]) == 5
        assert len(mqueue_json("leases", TOPIC, GROUP, "--partition", "key-2")["leases"]) == 1
    with pytest.raises(CommandError, match="not registered"):
        mqueue("leases", TOPIC, "nobody")


def test_actions_are_listed_newest_first(mqueue: Run, mqueue_json: Json) -> None:
    subscribe(TOPIC, GROUP, by="alice")
    subscribe(TOPIC, "stock", by="bob")
    pause(TOPIC, by="carol", why="an outage")
    rows = mqueue_json("actions", TOPIC)["actions"]
    assert [(row["action"], row["group"], row["by"]) for row in rows] == [
        ("pause", "", "carol"), ("subscribe", "stock", "bob"), ("subscribe", GROUP, "alice"),
    ]  # fmt: skip
    assert [row["by"] for row in mqueue_json("actions", TOPIC, GROUP)["actions"]] == ["carol", "alice"]
    assert len(mqueue_json("actions", TOPIC, "--limit", 1)["actions"]) == 1
    assert "an outage" in mqueue("actions", TOPIC)
    assert mqueue("actions", "audit").strip() == "Actions: none"
