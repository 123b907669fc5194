"""Workers of one group, and the end of their sessions. The test calls each of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import DatabaseError, connections
from django.db.models import F

from django_mqueue import Delivery, subscribe
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.protocol.delivery import Options
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.protocol.tailer import Tailer
from django_mqueue.stats.numbers import subscribers
from django_mqueue.store.connection import errors, session, session_lock
from django_mqueue.store.connection.session_lock import worker_session
from tests.support.statements import CALM
from tests.support.threads import end_session
from tests.support.waiting import PATIENCE

Result = TypeVar("Result")

TOPIC, GROUP = "orders", "billing"

PATIENT: dict[str, Any] = {**CALM, "DISCOVERY_INTERVAL": 1}
"""Leases do not expire during a test."""


class Loop:
    """The loop of one worker: a thread with a connection of its own, which does what the test asks for."""

    def __init__(self, name: str, *, discovers: bool = True) -> None:
        subscribe(TOPIC, GROUP)
        self._thread = ThreadPoolExecutor(1)
        self._session = ExitStack()
        self.engine = Subscriber(
            TOPIC, GROUP, name, Options("default"), Tailer("default"), polled_by_caller=False
        )
        self._prepare: Callable[[], None] = self.do(
            lambda: self._session.enter_context(worker_session("default", 600))
        )
        self.use(self.engine.start)
        if discovers:
            self.discover()

    def do(self, work: Callable[[], Result]) -> Result:
        return self._thread.submit(work).result(PATIENCE)

    def use(self, work: Callable[[], Result]) -> Result:
        """Do the work as the loop does: on a new connection if the old one is lost."""

        def protected() -> Result:
            try:
                self._prepare()
                return work()
            except DatabaseError as error:
                if not errors.is_lost(error):
                    raise
                session.discard("default")
                self._prepare()
                return work()

        return self.do(protected)

    def discover(self) -> None:
        """Read the log, and run a discovery with a heartbeat."""

        def work() -> None:
            self.engine.tailer.tick()
            look(self.engine)

        self.use(work)

    def reconnect(self) -> None:
        """Notice that the connection is lost, and open another one. Do nothing else."""

        def work() -> None:
            with connections["default"].cursor() as cursor:
                cursor.execute("SELECT 1")

        self.use(work)

    def beat(self) -> None:
        """Send a heartbeat and do nothing else."""
        engine = self.engine

        def work() -> None:
            engine.membership._renew_at = 0
            engine.send_heartbeat_if_due()

        self.use(work)

    def claim(self) -> list[Delivery]:
        return self.use(lambda: self.engine.claim(100, 100))

    def renew(self) -> None:
        self.use(self.engine.membership._renew)

    @property
    def partitions(self) -> list[str]:
        """Return the partitions that the worker has in memory."""
        return sorted(self.engine.state.partitions)

    def lock(self) -> str:
        """Return the lock that the worker's heartbeat names."""
        return str(
            SubscriberHeartbeat.objects.get(subscriber_name=self.engine.state.holder.name).session_lock
        )

    def cut(self) -> None:
        """Let the server end the session. The worker does not know it yet."""
        end_session(self.do(lambda: int(connections["default"].connection.thread_id())))

    def close(self) -> None:
        self.do(self._session.close)
        self.do(connections.close_all)
        self._thread.shutdown()


def look(engine: Subscriber) -> None:
    with engine.state.lock:
        engine.membership.discover_now()


@contextmanager
def worker(name: str, *, discovers: bool = True) -> Iterator[Loop]:
    """A worker that has started, and has run a first discovery if it ``discovers``."""
    loop = Loop(name, discovers=discovers)
    try:
        yield loop
    finally:
        loop.close()


@contextmanager
def observer(name: str) -> Iterator[Subscriber]:
    """A member that does nothing until ``discover`` is called. Its session does not last."""
    engine = Subscriber(TOPIC, GROUP, name, Options("default"), Tailer("default"), polled_by_caller=False)
    engine.start()
    yield engine


def discover(engine: Subscriber, *, connected_for: float = 3600) -> None:
    """Run a discovery in this thread, as a worker whose connection is this many seconds old."""
    with worker_session("default", 600) as prepare:
        prepare()
        lock = session_lock.of("default")
        assert lock is not None
        lock._taken_at -= connected_for
        look(engine)


def let_pass(seconds: float, name: str = "a") -> None:
    """Let this time pass since the last heartbeat of a worker."""
    SubscriberHeartbeat.objects.filter(subscriber_name=name).update(
        heartbeat_at=F("heartbeat_at") - int(seconds * 1000)
    )


def status(name: str = "a") -> str:
    return next(one.status for one in subscribers(TOPIC, GROUP) if one.name == name)
