"""``django_mqueue`` as a ``System``: its public names, the ``MQUEUE`` setting, and ``runconsumer`` processes."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime
from types import TracebackType
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_mqueue as mqueue
from django_mqueue import inspect
from tests.support.processes import Worker, Workers, database_url, wait_until
from tests.support.subscribers import let_die, let_worker_die, stop_between_transactions

from . import system as protocol
from .handling import DIRECTORY

MQUEUE: dict[str, Any] = {
    "POLL_INTERVAL": 0.02,
    "DISCOVERY_INTERVAL": 0.05,
    "LEASE_DURATION": 600,
    "LEASE_RENEWAL_INTERVAL": 0.3,
    "GC_INTERVAL": 0.05,
    "RETENTION": 3600,
}


class OurSubscriber(mqueue.Subscription):
    """A ``Subscription`` that a test can abandon. It does nothing between calls of ``poll``."""

    def crash(self) -> None:
        let_die(self.name)

    def stall(self) -> None:
        let_die(self.name)


class OurWorker:
    """One ``runconsumer`` process."""

    def __init__(self, worker: Worker) -> None:
        self.process, self.pid = worker, worker.pid

    @property
    def running(self) -> bool:
        return self.process.running

    def ask_to_stop(self) -> None:
        self.process.ask_to_stop()

    def wait(self) -> int:
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        let_worker_die(self.process)

    def stall(self) -> None:
        stop_between_transactions(self.process)
        let_worker_die(self.process)

    def wake(self) -> None:
        self.process.send(signal.SIGCONT)


class System:
    """The package under test."""

    marks: Sequence[pytest.MarkDecorator] = (pytest.mark.django_db(transaction=True),)
    looks = 50
    stale: type[Exception] = mqueue.StaleDelivery
    unknown: type[Exception] = mqueue.NotRegistered
    active: type[Exception] = mqueue.GroupActive
    unanswered: type[Exception] = mqueue.RequestTimeout
    failed: type[Exception] = mqueue.RequestFailed

    def __enter__(self) -> System:
        with ExitStack() as stack:
            stack.enter_context(override_settings(MQUEUE=MQUEUE))
            self._workers = stack.enter_context(Workers(MQUEUE))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        kind: str = "",
        headers: Mapping[str, Any] | None = None,
        group: str | None = None,
        delay: float = 0,
    ) -> mqueue.Published:
        return mqueue.publish(
            topic, payload, key=key, id=id, kind=kind, headers=headers, group=group, delay=delay or None
        )

    def publish_many(
        self, topic: str, payloads: Sequence[Any], keys: Sequence[str]
    ) -> Sequence[mqueue.Published]:
        messages = [mqueue.OutgoingMessage(p, key=k) for p, k in zip(payloads, keys, strict=True)]
        return mqueue.publish_many(topic, messages)

    def transaction(self) -> AbstractContextManager[Any]:
        return transaction.atomic()

    def subscribe(self, topic: str, group: str, start: Any = "earliest") -> bool:
        return mqueue.subscribe(topic, group, start)

    def unsubscribe(self, topic: str, group: str) -> bool:
        return mqueue.unsubscribe(topic, group)

    def open(self, topic: str, group: str, name: str | None = None, **options: Any) -> OurSubscriber:
        subscriber = OurSubscriber(topic, group, name, **options)
        subscriber.open()
        return subscriber

    def pause(self, topic: str, group: str | None = None) -> int:
        return mqueue.pause(topic, group)

    def resume(self, topic: str, group: str | None = None) -> int:
        return mqueue.resume(topic, group)

    def reset(self, topic: str, group: str, to: Any, *, force: bool = False) -> int:
        return mqueue.reset(topic, group, to, force=force)

    def redrive(self, topic: str, **which: Any) -> int:
        return mqueue.redrive(topic, **which)

    def purge(self, topic: str, **which: Any) -> int:
        return mqueue.purge(topic, **which)

    def request(
        self, topic: str, payload: Any, *, timeout: float = 30, group: str | None = None
    ) -> mqueue.Reply:
        return mqueue.request(topic, payload, timeout=timeout, group=group)

    def scheduled(self, topic: str) -> Sequence[mqueue.ScheduledMessage]:
        return list(mqueue.scheduled(topic))

    def cancel(self, topic: str, id: str, *, key: str | None = None) -> bool:
        return mqueue.cancel(topic, id, key=key)

    def reschedule(self, topic: str, id: str, *, key: str | None = None, delay: float) -> bool:
        return mqueue.reschedule(topic, id, key=key, delay=delay)

    def release(self, topic: str, group: str, **whose: Any) -> int:
        return int(mqueue.release(topic, group, **whose))

    def remove(self, topic: str, group: str, *, key: str) -> int:
        return inspect.remove(topic, group=group, key=key)

    def send_to_front(self, topic: str, group: str, *, key: str, id: str) -> int:
        return inspect.send_to_front(topic, group=group, key=key, id=id)

    def delay(self, topic: str, group: str, until: datetime, *, id: str) -> int:
        return inspect.delay(topic, until, group=group, id=id)

    def hold(self, topic: str, group: str, *, id: str) -> int:
        return inspect.hold(topic, group=group, id=id)

    def unhold(self, topic: str, group: str, *, id: str) -> int:
        return inspect.unhold(topic, group=group, id=id)

    def redeliver(self, topic: str, group: str, *, id: str) -> int:
        return inspect.redeliver(topic, group=group, id=id)

    def erase(self, *, key: str) -> int:
        return sum(one.deleted for one in inspect.erase(key=key))

    def dead_letters(self, topic: str) -> str:
        return f"{topic}_dlq"

    @contextmanager
    def retention(self, seconds: float) -> Iterator[None]:
        with override_settings(MQUEUE={**settings.MQUEUE, "RETENTION": seconds}):
            yield

    def start_worker(
        self, *handlers: protocol.Handler, threads: int = 4, clock_off_by: float = 0
    ) -> OurWorker:
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.conformance.worker_app.settings",
            "DATABASE_URL": database_url(),
            "TEST_MQUEUE": json.dumps(settings.MQUEUE),
            "TEST_CLOCK": str(max(clock_off_by, 1 - time.monotonic())),  # The clock must not read below 0.
            "CONFORMANCE_HANDLERS": json.dumps([asdict(handler) for handler in handlers]),
            DIRECTORY: os.environ.get(DIRECTORY, tempfile.gettempdir()),
        }
        worker = Worker(("--threads", str(threads)), environment)
        self._workers.all.append(worker)
        wait_until(lambda: "consuming" in worker.output() or not worker.running, "a worker is there")
        return OurWorker(worker)

    @contextmanager
    def counting(self) -> Iterator[list[Any]]:
        requests: list[Any] = []
        rare = {"DISCOVERY_INTERVAL": 300, "LEASE_RENEWAL_INTERVAL": 300, "GC_INTERVAL": 300}
        with (
            override_settings(MQUEUE={**settings.MQUEUE, **rare}),
            CaptureQueriesContext(connection) as captured,
        ):
            yield requests
        requests += captured.captured_queries

    def close_connections(self) -> None:
        connections.close_all()


FITS: type[protocol.System] = System
"""mypy compares the class with the protocol here."""
