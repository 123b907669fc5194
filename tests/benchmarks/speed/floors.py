"""The same work in plain SQL on one connection, without a queue. The queue's rates are compared with it.

``update``: one UPDATE and one COMMIT for each message. The others do the minimum that the queue's tables need:
``lots`` for many messages in a commit, ``atomic`` for a commit of each message, ``strict`` for one key in order.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from .counters import connect

LOT, CLAIM = 100, 10
NOW = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"
COLUMNS = (
    "consumer_group, topic, partition_key, message_offset, acked, in_flight, invisible_until, retry_count,"
    " failure_count, delivery_token, handed, alone, delivered_to, delivered_at"
)
ROW = f"('floor', %s, %s, %s, 0, 1, {NOW} + 30000, 0, 0, %s, 1, 0, 'floor', {NOW})"
KEY = "consumer_group = 'floor' AND topic = %s AND partition_key = %s AND message_offset = %s AND delivery_token = %s"
ACK = f"UPDATE queue_delivery_state SET acked = 1, in_flight = 0, acked_at = {NOW} WHERE {KEY} AND in_flight = 1"
MESSAGE = f'\'k\', %s, \'\', %s, \'{{"kind": "", "headers": {{}}, "encoding": "json"}}\', {NOW}, {NOW}, {NOW}'
GATE = (
    "(SELECT %s FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE consumer_group = '' AND topic = '' AND"
    f" partition_key = CONCAT('gate-000-slot-', LPAD({NOW} DIV 500 MOD 64, 3, '0')) LOCK IN SHARE MODE)"
)
"""The first row's topic, read from the gate: the same lock as in ``publish``, on the first gate."""


class Floor:
    """Each method handles the messages of a topic in its way, and returns the messages per second."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url)
        self._cursor = self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    def update(self, topic: str) -> float:
        rows = self._log(topic)
        self._claim(topic, rows)

        def work() -> None:
            for partition, offset in rows:
                self._cursor.execute(ACK, [topic, partition, offset, 1])
                self._connection.commit()

        return self._rate(work, len(rows))

    def lots(self, topic: str) -> float:
        rows = self._log(topic)

        def work() -> None:
            for lot in _parts(rows, LOT):
                self._take(topic, lot)
                table = " UNION ALL ".join(["SELECT %s AS p, %s AS o"] + ["SELECT %s, %s"] * (len(lot) - 1))
                self._cursor.execute(
                    f"UPDATE queue_delivery_state s JOIN ({table}) x ON s.partition_key = x.p"
                    f" AND s.message_offset = x.o SET s.acked = 1, s.in_flight = 0, s.acked_at = {NOW}"
                    " WHERE s.consumer_group = 'floor' AND s.topic = %s AND s.delivery_token = 1 AND s.in_flight = 1",
                    [value for row in lot for value in row] + [topic],
                )
                assert self._cursor.rowcount == len(lot)
                self._connection.commit()

        return self._rate(work, len(rows))

    def atomic(self, topic: str) -> float:
        rows = self._log(topic)

        def work() -> None:
            for lot in _parts(rows, CLAIM):
                self._take(topic, lot)
                for partition, offset in lot:
                    self._cursor.execute(ACK, [topic, partition, offset, 1])
                    self._connection.commit()

        return self._rate(work, len(rows))

    def strict(self, topic: str) -> float:
        rows = self._log(topic)

        def work() -> None:
            self._take(topic, rows[:1])
            for place, (partition, offset) in enumerate(rows):
                self._cursor.execute(ACK, [topic, partition, offset, 1])
                if following := rows[place + 1 : place + 2]:
                    self._take(topic, following)
                else:
                    self._connection.commit()

        return self._rate(work, len(rows))

    def insert(self, topic: str, payloads: Sequence[str], at_once: int, *, gate: bool = False) -> float:
        """Store messages by INSERTs of ``at_once`` rows, each with its COMMIT. ``gate``: also lock the gate."""

        def work() -> None:
            for some in _parts(payloads, at_once):
                values = [(topic, secrets.token_hex(16), payload) for payload in some]
                rows = ", ".join(
                    [f"({GATE if gate else '%s'}, {MESSAGE})", *[f"(%s, {MESSAGE})"] * (len(some) - 1)]
                )
                self._cursor.execute(
                    "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata,"
                    f" available_at, created_at, published_at) VALUES {rows}",
                    [value for each in values for value in each],
                )
                self._connection.commit()

        return self._rate(work, len(payloads))

    def _log(self, topic: str) -> list[tuple[str, int]]:
        self._connection.rollback()
        self._cursor.execute(
            "SELECT partition_key, `offset` FROM queue_messages WHERE topic = %s ORDER BY `offset`", [topic]
        )
        return list(self._cursor.fetchall())

    def _take(self, topic: str, rows: Sequence[tuple[str, int]]) -> None:
        """Claim rows, read their payloads, commit, and decode the payloads."""
        self._claim(topic, rows, commit=False)
        self._cursor.execute(
            f"SELECT `offset`, payload FROM queue_messages WHERE `offset` IN ({', '.join(['%s'] * len(rows))})",
            [offset for _, offset in rows],
        )
        found = self._cursor.fetchall()
        self._connection.commit()
        for _, payload in found:
            json.loads(payload)

    def _claim(self, topic: str, rows: Sequence[tuple[str, int]], *, commit: bool = True) -> None:
        for some in _parts(rows, 500):
            self._cursor.execute(
                f"INSERT INTO queue_delivery_state ({COLUMNS}) VALUES {', '.join([ROW] * len(some))}",
                [value for partition, offset in some for value in (topic, partition, offset, 1)],
            )
        if commit:
            self._connection.commit()

    def _rate(self, work: Callable[[], None], count: int) -> float:
        begun = time.perf_counter()
        work()
        return count / (time.perf_counter() - begun)


def _parts(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[first : first + size] for first in range(0, len(items), size)]
