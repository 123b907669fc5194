"""A process of a run that publishes: ``python -m tests.proof.publisher POST SEED RATE``.

It publishes in every possible way, each time in its own transaction. A second thread holds other transactions open. It
publishes in bursts, RATE messages per second on average. It pauses while the history's directory contains a file
``hold``, because the backlog is then long enough.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from django.db import DatabaseError, InterfaceError, connection, transaction

django.setup()

from django_mqueue import OutgoingMessage, publish, publish_many  # noqa: E402
from django_mqueue.tasks.backend import backend_named  # noqa: E402
from tests.proof.history import Closed, Ignored, Sent, Writer, now  # noqa: E402
from tests.proof.plan import JOBS, KEYS, LEDGER, LEDGER_KEYS, ORDERS, my_name, my_writer, wish  # noqa: E402
from tests.proof.worker_app.tasks import work  # noqa: E402

BURST = 500
SCHEDULED = 0.05
"""The share of scheduled messages."""
A_JOB = 0.1
"""The share of jobs of Django's Tasks."""

_pause = threading.Event()


class _Undo(Exception):
    """Raised to roll a transaction back."""


class Publisher:
    """Publishes messages from one thread."""

    def __init__(self, post: str, label: str, seed: int, history: Writer, *, ledger: bool) -> None:
        self.post, self.name, self.history, self.ledger = post, f"{my_name()}.{label}", history, ledger
        self.dice = random.Random(seed)
        self._transactions = self.messages = 0
        self._recent: list[tuple[str, str]] = []

    def once(self) -> None:
        """Run one transaction of a random kind."""
        ways: list[tuple[float, Callable[[], None]]] = [
            (0.60, self.many),
            (0.15, self.few),
            (0.10, self.single),
            (0.06, self.again),
            (0.06, self.undone),
            (0.03, self.large),
        ]
        way = self.dice.choices([what for _, what in ways], [share for share, _ in ways])[0]
        try:
            way()
        except (_Undo, DatabaseError, InterfaceError):
            if connection.connection is None or not connection.is_usable():
                connection.close()
                _pause.wait(0.2)

    def many(self) -> None:
        topic = self._topic()
        with self.atomic() as name:
            count = self.dice.randrange(20, 120)
            if topic == JOBS:
                payloads = [self._sent(name, JOBS, None, None) for _ in range(count)]
                backend_named("default").enqueue_all([(work, [payload], {}) for payload in payloads])
            else:
                publish_many(topic, [self._message(name, topic) for _ in range(count)])

    def few(self) -> None:
        with self.atomic() as name:
            for _ in range(self.dice.randrange(1, 4)):
                self._publish(name, self._topic())
                _pause.wait(self.dice.random() * 0.02)

    def single(self) -> None:
        """Publish without an explicit transaction. The statement commits by itself."""
        name = self._transaction()
        outcome = "unknown"
        try:
            self._publish(name, self._topic())
            outcome = "committed"
        finally:
            self.history.write(Closed(now(), name, outcome))  # type: ignore[arg-type]

    def again(self) -> None:
        """Publish with ids. Some of the ids may already be in the log."""
        for _ in range(3):
            with self.atomic() as name:
                self._publish(name, ORDERS, id=f"{self.name}-{self.dice.randrange(20)}", key=KEYS[0])

    def undone(self) -> None:
        with self.atomic() as name:
            publish_many(ORDERS, [self._message(name, ORDERS) for _ in range(self.dice.randrange(1, 30))])
            _pause.wait(self.dice.random() * 0.02)
            raise _Undo

    def large(self) -> None:
        with self.atomic() as name:
            self._publish(name, ORDERS, fill="x" * self.dice.randrange(10_000, 300_000))

    def held(self) -> None:
        """Hold a transaction open for seconds, while other transactions overtake it."""
        with self.atomic() as name:
            for _ in range(self.dice.randrange(1, 5)):
                self._publish(name, ORDERS)
                _pause.wait(self.dice.random() * 1.5)
            if self.dice.random() < 0.3:
                raise _Undo

    @contextmanager
    def atomic(self) -> Iterator[str]:
        """A transaction whose end the history notes. It is unknown if COMMIT was sent and no result arrived."""
        name = self._transaction()
        outcome = "rolled back"
        try:
            with transaction.atomic():
                yield name
                outcome = "unknown"
            outcome = "committed"
        finally:
            self.history.write(Closed(now(), name, outcome))  # type: ignore[arg-type]

    def _transaction(self) -> str:
        self._transactions += 1
        return f"{self.name}-t{self._transactions}"

    def _topic(self) -> str:
        if self.dice.random() < A_JOB:
            return JOBS
        return LEDGER if self.ledger and self.dice.random() < 0.15 else ORDERS

    def _key(self, topic: str) -> str | None:
        if topic == LEDGER:
            return f"{self.post}-{self.dice.randrange(LEDGER_KEYS)}"
        return self.dice.choice(KEYS) if self.dice.random() < 0.7 else None

    def _delay(self) -> float | None:
        """Return the delay of a scheduled message in seconds, or None for the other messages."""
        return self.dice.randrange(1, 2000) / 1000 if self.dice.random() < SCHEDULED else None

    def _sent(self, name: str, topic: str, key: str | None, delay: float | None) -> dict[str, str]:
        """Note in the history that a message is about to be sent, and return its payload."""
        self.messages += 1
        message = f"{self.name}-{self.messages}"
        self.history.write(Sent(now(), self.name, name, message, topic, key, delay or 0.0))
        return {"m": message, **wish(self.dice)}

    def _message(self, name: str, topic: str) -> OutgoingMessage:
        key, delay = self._key(topic), self._delay()
        return OutgoingMessage(self._sent(name, topic, key, delay), key=key, delay=delay)

    def _publish(
        self, name: str, topic: str, *, id: str | None = None, key: str | None = None, fill: str = ""
    ) -> None:
        if topic == JOBS:
            work.enqueue(self._sent(name, JOBS, None, None))
            return
        key, delay = key or self._key(topic), self._delay() if id is None else None
        payload = self._sent(name, topic, key, delay)
        content = {**payload, "fill": fill} if fill else payload
        if not publish(topic, content, key=key, id=id, delay=delay).created:
            self.history.write(Ignored(now(), payload["m"]))


def main(post: str, seed: int, rate: float) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    history, hold = my_writer(), Path(os.environ["PROOF_HISTORY"]) / "hold"
    busy = Publisher(post, "b", seed, history, ledger=True)
    slow = Publisher(post, "s", seed + 1, history, ledger=False)

    def hold_transactions() -> None:
        while not ending.is_set():
            try:
                slow.held()
            except (_Undo, DatabaseError, InterfaceError):
                connection.close()
            ending.wait(slow.dice.random())
        connection.close()

    thread = threading.Thread(target=hold_transactions)
    thread.start()
    begun = now()
    while not ending.is_set():
        ahead = busy.messages - rate * (now() - begun) / 1e9
        if hold.exists():
            ending.wait(0.2)
        elif ahead > BURST:
            ending.wait(ahead / rate)
        else:
            busy.once()
            ending.wait(busy.dice.random() * 0.1)
    thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
