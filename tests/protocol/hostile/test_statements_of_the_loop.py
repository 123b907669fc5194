"""Statements of a worker's loop. Each statement that locks rows skips rows that another transaction has locked.

The exceptions are listed here with a reason. They wait for at most a second. After that their group rests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Message, OutgoingMessage, Reject, Retry, publish, publish_many, subscribe
from django_mqueue.models import Message as Row
from django_mqueue.models import PartitionLease
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.running import registered
from tests.support.transactions import Background, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 60.0
ALL_DUE = {
    "POLL_INTERVAL": 0.01, "DISCOVERY_INTERVAL": 0.05, "LEASE_DURATION": 600, "LEASE_RENEWAL_INTERVAL": 0.4,
    "GC_INTERVAL": 0.05, "RETENTION": 0,
}  # fmt: skip

TABLE = re.compile(r"queue_[a-z_]+")
CHANGED = re.compile(
    r"(?:INSERT (?:IGNORE )?INTO|UPDATE) (queue_[a-z_]+)|DELETE ([a-z]) FROM .*?(queue_[a-z_]+) \2\b"
)
LOCKING = re.compile(r"FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE")

BRIEF = {
    "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) STRAIGHT_JOIN": "answers: one statement for many",
    "INSERT INTO queue_messages (": "new rows; nobody locks the gate's slots for long",
    "DELETE s FROM JSON_TABLE": "the state of messages that this transaction has locked, and that are done",
    "SELECT incarnation FROM queue_subscriber_heartbeats FORCE INDEX": "the worker's own row, when it starts",
    "UPDATE queue_subscriber_heartbeats FORCE INDEX (queue_heartbeats_subscriber) SET incarnation": "the same",
    "INSERT INTO queue_subscriber_heartbeats (consumer_group": "the same",
}
"""Beginnings of statements that may wait for a lock, for at most a second."""

UNDER = {
    "INSERT IGNORE INTO queue_partition_leases": "queue_offsets",
    "INSERT INTO queue_delivery_state": "queue_partition_leases",
    "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) SET s.errors": "queue_partition_leases",
}
"""The table whose rows must be locked before the statement inserts or claims rows. By default it is the same table."""


@dataclass
class Sent:
    """The statements of a connection.

    ``locked`` has the tables in which the transaction has locked rows with SKIP LOCKED.
    """

    all: list[tuple[str, Any]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)

    def note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not connection.in_atomic_block:
            self.locked = set()
        self.all.append((sql, params))
        self._judge(sql)
        return execute(sql, params, many, context)

    def _judge(self, sql: str) -> None:
        if any(sql.startswith(beginning) for beginning in BRIEF):
            return
        if sql.startswith("INSERT") and "SKIP LOCKED" in sql:
            self.locked.update(TABLE.findall(sql))  # It inserts what it has selected and locked.
        if found := CHANGED.search(sql):
            needed = next(
                (table for start, table in UNDER.items() if sql.startswith(start)), found[1] or found[3]
            )
            if needed not in self.locked:
                self.refused.add(sql)
        elif "SKIP LOCKED" in sql:
            self.locked.update(TABLE.findall(sql))
        elif LOCKING.search(sql):
            self.refused.add(sql)

    def has(self, beginning: str) -> bool:
        return any(sql.startswith(beginning) for sql, _ in self.all)


TOPICS = ("plain", "atomic", "batch", "strict")
handled: set[tuple[str, str | None]] = set()
"""Topics and keys."""


def handle(message: Message) -> None:
    """Settle the message as the payload says. The second attempt succeeds."""
    handled.add((message.topic, message.key))
    verb = message.payload
    if message.attempt == 1 and verb in ("retry", "aside"):
        raise Retry(delay=7200 if verb == "aside" else 0)
    if verb == "reject":
        raise Reject("no")


@pytest.fixture
def sent() -> Sent:
    """All statements of the loop of a worker that has every kind of handler and every kind of message."""
    sent = Sent()
    handled.clear()
    for topic in TOPICS:
        subscribe(topic, "g")
        verbs = ["ack", "retry", "reject"] + (["aside"] if topic == "plain" else [])
        publish_many(topic, [OutgoingMessage(verb, key=f"{verb}-{n}") for verb in verbs for n in range(3)])
        publish(topic, "ack", delay=0.5, key="delayed")

    def work() -> None:
        with connection.execute_wrapper(sent.note):
            runner.run()

    def handle_all(messages: Sequence[Message]) -> None:
        handled.update((message.topic, message.key) for message in messages)

    def give_up_all() -> bool:
        """Let all partitions be idle for long enough. Return whether the worker has given them up."""
        for subscriber in list(runner._joined):
            with subscriber.state.lock:
                for partition in subscriber.state.partitions.values():
                    partition.idle_since = -math.inf
        return not PartitionLease.objects.exists()

    with (
        override_settings(MQUEUE=ALL_DUE),
        registered("plain", handle, visibility_timeout=0.3),
        registered("atomic", handle, atomic=True),
        registered("batch", handle_all, batch=True),
        registered("strict", handle, strict=True),
    ):
        runner = Runner(handlers([*TOPICS]), RunOptions(max_seconds=120))
        with Background(work) as running:
            try:
                wait_until(
                    lambda: {(topic, "delayed") for topic in TOPICS} <= handled,
                    "all are handled",
                    seconds=LONG,
                )
                wait_until(
                    lambda: not Row.objects.filter(topic="plain").exists(), "all is deleted", seconds=LONG
                )
                wait_until(give_up_all, "partitions are given up", seconds=LONG)
            finally:
                runner.stop()
                running.result()
    return sent


def test_no_statement_of_the_loop_waits_for_a_row_that_a_caller_may_have_locked(sent: Sent) -> None:
    assert not sent.refused, "\n\n".join(sorted(sent.refused))
    assert all(CHANGED.match(beginning) for beginning in UNDER)
    for beginning in ("INSERT IGNORE INTO queue_partition_leases", "INSERT INTO queue_delivery_state", "DELETE l FROM",
                      "DELETE o FROM", "DELETE m FROM", "INSERT INTO queue_offsets", *list(BRIEF)):  # fmt: skip
        assert sent.has(beginning), f"this proves nothing of {beginning}"


def test_the_loop_waits_for_any_lock_for_a_second_at_most(sent: Sent) -> None:
    limits = [params[1] for sql, params in sent.all if sql.startswith("SET SESSION wait_timeout")]
    assert limits[0] == 1
