"""Records what the database shows of a run: deletions, dead letters, unowned partitions, and remaining rows.

The observer uses a connection outside Django. It continues after errors while the server is down.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import MySQLdb

from tests.proof.history import DeadLettered, Deleted, Effect, Left, Unowned, Writer, now
from tests.proof.plan import GROUPS, LEDGER, STORED, TOPICS
from tests.support.waiting import PATIENCE

NOW_MS = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
MUCH, LITTLE = 20_000, 8_000
"""Limits for the messages in the log. Publishers pause above ``MUCH``, and continue below ``LITTLE``."""

_NAME = re.compile(r'"m": ?"([^"]+)"')


class Observer:
    def __init__(self, parameters: dict[str, Any], directory: Path, history: Writer, lease: float) -> None:
        self.parameters, self.history, self.lease = parameters, history, lease
        self.hold = directory / "hold"
        self.backlog = 0
        self._unowned: set[tuple[str, str, str]] = set()
        self._connection: Any = None

    def prepare(self) -> None:
        """Create a trigger that notes each deletion from the log, in the transaction that deletes."""
        self._run(
            "CREATE TABLE proof_deleted (at BIGINT, topic VARCHAR(140), `offset` BIGINT, head VARBINARY(200))"
        )
        self._run(
            "CREATE TRIGGER proof_deleted AFTER DELETE ON queue_messages FOR EACH ROW INSERT INTO proof_deleted"
            f" VALUES ({NOW_MS}, OLD.topic, OLD.`offset`, LEFT(OLD.payload, 200))"
        )

        self._run(
            "CREATE TABLE proof_effect (consumer_group VARCHAR(120), message VARCHAR(120), `offset` BIGINT,"
            " KEY (message))"
        )

    def look(self) -> None:
        """Record the backlog, and partitions that gained or lost an owner since the last call."""
        try:
            self._look()
        except MySQLdb.Error:
            self._forget_connection()

    def knows_all_groups(self) -> bool:
        """Return True if each group of the run has offsets, so that deletion waits for it."""
        found = self._rows("SELECT DISTINCT consumer_group, topic FROM queue_offsets")
        return {(group.name, group.topic) for group in GROUPS} <= set(found)

    def is_empty(self) -> bool:
        """Return True if the log and the delivery state are empty."""
        try:
            return not self._rows(
                f"SELECT 1 FROM queue_messages WHERE topic IN {STORED} LIMIT 1"
            ) and not self._rows("SELECT 1 FROM queue_delivery_state LIMIT 1")
        except MySQLdb.Error:
            self._forget_connection()
            return False

    def report(self) -> None:
        """Write the database's records of the whole run to the history."""
        [(database_ms,)] = self._rows(f"SELECT {NOW_MS}")
        shift = now() - database_ms * 1_000_000
        for at, topic, offset, head in self._rows("SELECT * FROM proof_deleted"):
            if topic in TOPICS:
                self.history.write(Deleted(at * 1_000_000 + shift, topic, _name(head), offset))
        for at, topic, group, head, failures in self._rows(
            "SELECT failed_at, original_topic, failed_group, LEFT(payload, 200), failure_count FROM queue_messages"
            " WHERE failed_at IS NOT NULL"
        ):
            self.history.write(DeadLettered(at * 1_000_000 + shift, topic, group, _name(head), failures))
        for group, message, offset, count in self._rows(
            "SELECT consumer_group, message, `offset`, COUNT(*) FROM proof_effect"
            " GROUP BY consumer_group, message, `offset`"
        ):
            self.history.write(Effect(now(), LEDGER, group, message, offset, count))
        for topic, head in self._rows(
            f"SELECT topic, LEFT(payload, 200) FROM queue_messages WHERE topic IN {STORED}"
        ):
            self.history.write(Left(now(), "queue_messages", topic, _name(head)))
        for topic, *rest in self._rows(
            "SELECT topic, consumer_group, message_offset, acked, in_flight, handed, alone, delivered_to,"
            " retry_count, failure_count FROM queue_delivery_state LIMIT 1000"
        ):
            self.history.write(Left(now(), "queue_delivery_state", topic, _described(*rest)))

    def close(self) -> None:
        self._forget_connection()

    def _look(self) -> None:
        [(self.backlog,)] = self._rows(
            f"SELECT COUNT(*) FROM (SELECT 1 FROM queue_messages WHERE topic IN {TOPICS} LIMIT {MUCH + 1}) some"
        )
        if self.backlog > MUCH:
            self.hold.touch()
        elif self.backlog < LITTLE:
            self.hold.unlink(missing_ok=True)
        seen = set()
        for group in GROUPS:
            for (partition,) in self._rows(_UNOWNED, (group.topic, group.name, group.topic, group.name, group.topic,
                                                      int(self.lease * 1000))):  # fmt: skip
                seen.add((group.topic, group.name, str(partition)))
        at = now()
        self.history.write(
            *(Unowned(at, *which, owned=False) for which in sorted(seen - self._unowned)),
            *(Unowned(at, *which, owned=True) for which in sorted(self._unowned - seen)),
        )
        self._unowned = seen

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._run(sql, parameters) as cursor:
            return list(cursor.fetchall())

    def _run(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        if self._connection is None:
            self._connection = MySQLdb.connect(**self.parameters, connect_timeout=int(PATIENCE))
            self._connection.autocommit(True)
        cursor = self._connection.cursor()
        cursor.execute(sql, parameters or None)
        return cursor

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_UNOWNED = f"""
    SELECT p.partition_key FROM (
        SELECT topic, partition_key, MAX(`offset`) AS newest FROM queue_messages
        FORCE INDEX (queue_messages_partition) WHERE topic = %s GROUP BY topic, partition_key
    ) p
    LEFT JOIN queue_offsets o ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key
    LEFT JOIN queue_partition_leases l ON l.consumer_group = %s AND l.topic = %s
        AND l.partition_key = p.partition_key AND l.holder <> '' AND l.lease_renewed_at > {NOW_MS} - %s
    WHERE p.newest > COALESCE(o.offset_acked, 0) AND l.id IS NULL
"""
"""Partitions with messages above the watermark and no valid lease."""


def _name(head: bytes) -> str:
    found = _NAME.search(head.decode(errors="replace"))
    return found.group(1) if found else repr(head)


def _described(
    group: str,
    offset: int,
    acked: int,
    in_flight: int,
    handed: int,
    alone: int,
    to: str,
    retries: int,
    failures: int,
) -> str:
    flags = ", ".join(
        name
        for name, is_set in (("acked", acked), ("in flight", in_flight), ("handed", handed), ("alone", alone))
        if is_set
    )
    return f"{group}@{offset} ({flags or 'waiting'}; {to}; {retries} retries, {failures} failures)"
