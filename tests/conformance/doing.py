"""Helpers of the scenarios: receive, check that nothing comes, find owners, hold a transaction open."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from .handling import PATIENCE as PATIENCE
from .system import Delivery, Published, Subscriber, System

Value = TypeVar("Value")
Subscribers = Subscriber | Sequence[Subscriber]


def until(condition: Callable[[], Value | None], what: str) -> Value:
    """Return the condition's first true value. Fail with ``what`` if it stays false."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE:g} s in vain: {what}")
        pause.wait(0.01)
    return value


def of(subscribers: Subscribers) -> Sequence[Subscriber]:
    return subscribers if isinstance(subscribers, Sequence) else [subscribers]


def receive(subscribers: Subscribers, count: int = 1) -> list[Delivery]:
    """Return ``count`` deliveries without settling them. Fail if there are more."""
    got: list[Delivery] = []

    def enough() -> bool:
        for subscriber in of(subscribers):
            got.extend(subscriber.poll(max(count - len(got), 1)))
        return len(got) >= count

    until(enough, f"{count} deliveries")
    assert len(got) == count, f"{len(got)} came, not {count}"
    return got


def take(subscribers: Subscribers, count: int) -> list[Delivery]:
    """Return ``count`` deliveries, each acknowledged at once. Fail if there are more."""
    got: list[Delivery] = []

    def enough() -> bool:
        for subscriber in of(subscribers):
            some = subscriber.poll()
            assert not some or subscriber.ack(some)
            got.extend(some)
        return len(got) >= count

    until(enough, f"{count} messages")
    assert len(got) == count, f"{len(got)} came, not {count}: {payloads(got)}"
    return got


def take_one(subscribers: Subscribers) -> Delivery:
    (only,) = take(subscribers, 1)
    return only


def nothing_comes(subscribers: Subscribers, polls: int) -> None:
    """Poll each subscriber ``polls`` times, 10 ms apart. Fail if a poll returns a delivery.

    Pass ``System.looks``, so that all periodic work is done meanwhile. Fewer polls prove less.
    """
    pause = threading.Event()
    for _ in range(polls):
        for subscriber in of(subscribers):
            got = subscriber.poll()
            assert not got, f"{payloads(got)} came to {subscriber.name}"
        pause.wait(0.01)


def outlast(system: System, topic: str, group: str, visibility_timeout: float) -> None:
    """Return when the visibility timeout of a new delivery to another group has expired."""
    other = system.open(topic, group, visibility_timeout=visibility_timeout)
    until(lambda: [each for each in other.poll() if each.attempt == 2], "it comes again")
    other.close()


def polled_until(subscribers: Subscribers, condition: Callable[[], Any], what: str) -> None:
    """Poll until the condition holds, so that periodic work is done. Fail if a poll returns a delivery."""

    def holds() -> Any:
        for subscriber in of(subscribers):
            got = subscriber.poll()
            assert not got, f"{payloads(got)} came to {subscriber.name}"
        return condition()

    until(holds, what)


def payloads(deliveries: Iterable[Delivery]) -> list[Any]:
    return [delivery.payload for delivery in deliveries]


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.id for delivery in deliveries]


def keys(count: int) -> list[str]:
    return [f"k{n:02d}" for n in range(count)]


class _Undo(Exception):
    pass


@contextmanager
def rolled_back(system: System) -> Iterator[None]:
    """Roll back the block's transaction."""
    try:
        with system.transaction():
            yield
            raise _Undo
    except _Undo:
        pass


def is_in_log(system: System, topic: str, id: str, key: str | None = None) -> bool:
    """Return True if the topic still holds the message.

    A publish with the same id, rolled back, shows this.
    """
    with rolled_back(system):
        published = system.publish(topic, "is it there?", key=key, id=id)
    return not published.created


class Members:
    """Subscribers of one group. The subscriber that receives a partition's message owns the partition."""

    def __init__(self, system: System, topic: str, count: int, partitions: int, **options: Any) -> None:
        self.system, self.topic, self.keys, self.options = system, topic, keys(partitions), options
        self.members: dict[str, Subscriber] = {}
        self.round = 0
        for n in range(count):
            self.join(f"w{n}")

    def join(self, name: str) -> Subscriber:
        self.members[name] = self.system.open(self.topic, "g", name, **self.options)
        return self.members[name]

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def crash(self, name: str) -> None:
        self.members.pop(name).crash()

    @property
    def everybody(self) -> list[Subscriber]:
        return list(self.members.values())

    def publish_round(self) -> None:
        """Publish one message for each partition."""
        self.round += 1
        self.system.publish_many(self.topic, [self.round] * len(self.keys), self.keys)

    def take_round(self) -> dict[str | None, str]:
        """Ack one message of each key and return the member that received it.

        Fail if a key's message is delivered twice or not in time.
        """
        owners: dict[str | None, str] = {}

        def complete() -> bool:
            for name, member in self.members.items():
                for delivery in member.poll():
                    assert delivery.key not in owners, f"{delivery.key} came twice in one round"
                    assert delivery.payload == self.round
                    assert delivery.ack()
                    owners[delivery.key] = name
            return len(owners) == len(self.keys)

        until(complete, f"a message of each of {len(self.keys)} partitions")
        return owners

    def shares(self) -> list[int]:
        """Return how many partitions each member owns, the largest number first."""
        self.publish_round()
        given = Counter(self.take_round().values())
        return sorted((given[name] for name in self.members), reverse=True)

    def settle(self, *shares: int) -> None:
        until(lambda: self.shares() == list(shares), f"the shares are {shares}")


class Held:
    """Publishes in a transaction that stays open in a separate thread until ``commit`` or ``roll_back``."""

    def __init__(self, system: System, publish: Callable[[], Published]) -> None:
        self.system, self._publish = system, publish
        self._done, self._end, self._keep = threading.Event(), threading.Event(), True
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._done.wait(PATIENCE)
        assert self._error is None, self._error

    def commit(self) -> Published:
        return self._finish(keep=True)

    def roll_back(self) -> Published:
        return self._finish(keep=False)

    def _finish(self, *, keep: bool) -> Published:
        self._keep = keep
        self._end.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert self._error is None, self._error
        return self.published

    def _run(self) -> None:
        try:
            with self.system.transaction():
                self.published = self._publish()
                self._done.set()
                assert self._end.wait(5 * PATIENCE)
                if not self._keep:
                    raise _Undo
        except _Undo:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            self.system.close_connections()
