"""The lock of a worker's session: heartbeats name it while, and only while, the session holds it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connections

from django_mqueue import publish
from tests.protocol.interleavings.workers import owner
from tests.support.threads import raw_connection
from tests.support.waiting import wait_until

from .workers import TOPIC, Loop, discover, let_pass, observer, worker

pytestmark = pytest.mark.django_db(transaction=True)


def is_free(name: str) -> bool:
    with raw_connection() as other:
        return bool(other.execute("SELECT IS_FREE_LOCK(%s)", [name])[0][0])


def connection() -> Any:
    """Return the Django connection of this thread."""
    return connections["default"]


def test_each_worker_names_the_lock_that_it_holds() -> None:
    with worker("a") as a, worker("b") as b:
        locks = [a.lock(), b.lock()]
        assert len(set(locks)) == 2
        assert locks[0].rpartition(".")[0] == locks[1].rpartition(".")[0], "it names the same server"
        assert max(map(len, locks)) <= 64, "MySQL allows no longer names"
        assert not any(map(is_free, locks))
    assert all(map(is_free, locks))


def test_a_worker_that_reconnects_takes_its_lock_again() -> None:
    with worker("a") as a:
        name = a.lock()
        a.cut()
        assert is_free(name)
        a.reconnect()
        assert not is_free(name), "at once, before any heartbeat"
        a.beat()
        assert a.lock() == name


def test_a_lock_that_is_lost_is_taken_again_with_the_next_heartbeat() -> None:
    with worker("a") as a:
        name = a.lock()
        a.do(lambda: connection().cursor().execute("SELECT RELEASE_LOCK(%s)", [name]))
        assert is_free(name)
        a.beat()
        assert not is_free(name)
        assert a.lock() == name


def test_an_earlier_session_of_the_worker_holds_the_lock() -> None:
    """The network has cut the connection, and the server does not know it. The worker opens another connection.

    It names no lock until it holds the lock again, after the earlier session has ended, so no worker judges it.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        name, old = a.lock(), a.do(lambda: connection().connection)
        a.do(lambda: setattr(connection(), "connection", None))
        a.beat()
        assert a.lock() == ""
        assert not is_free(name)
        old.close()
        wait_until(lambda: is_free(name), "the earlier session has ended")
        let_pass(3600)
        discover(b)
        assert owner() == "a"
        a.beat()
        assert a.lock() == name
        assert not is_free(name)


class Shared:
    """A client's connection to a proxy that runs its statements in one of two sessions of the server."""

    def __init__(self, *sessions: Any) -> None:
        self.sessions = list(sessions)

    def swap(self) -> None:
        self.sessions.reverse()

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sessions[0], name)


def share(loop: Loop) -> Shared:
    """Let the worker connect through such a proxy."""

    def connect() -> Shared:
        django = connection()
        another = django.get_new_connection(django.get_connection_params())
        another.autocommit(True)
        django.connection = Shared(django.connection, another)
        return django.connection  # type: ignore[no-any-return]

    return loop.do(connect)


def test_sessions_that_are_shared(caplog: pytest.LogCaptureFixture) -> None:
    """The worker names no lock, whichever session it uses, and logs it once. Only its lease decides."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        shared = share(a)
        a.beat()
        shared.swap()
        for _ in range(3):
            a.beat()
            assert a.lock() == ""
            shared.swap()
        let_pass(3600)
        discover(b)
        assert owner() == "a"
    (record,) = [one for one in caplog.records if "no session lock" in one.getMessage()]
    assert "different sessions" in record.getMessage()


def test_a_new_connection_has_another_chance() -> None:
    with worker("a") as a:
        shared = share(a)
        a.beat()
        shared.swap()
        a.beat()
        assert a.lock() == ""
        a.do(lambda: connection().close())
        a.beat()
        assert a.lock()


def test_a_server_that_refuses_locks(caplog: pytest.LogCaptureFixture) -> None:
    """Percona XtraDB Cluster does so in its strict mode. The worker works, names no lock, and logs it once."""

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "GET_LOCK" in sql:
            raise OperationalError(1105, "Percona-XtraDB-Cluster prohibits use of GET_LOCK")
        return execute(sql, params, many, context)

    publish(TOPIC, 1, key="k")
    with worker("a") as a:

        def work() -> None:
            connection().close()
            with connection().execute_wrapper(refuse):
                for _ in range(2):
                    a._prepare()
                    a.engine.membership.discover_now()
                    connection().close()

        a.do(work)
        assert a.lock() == ""
        a.beat()
        assert a.lock(), "a new connection to another server"
    assert sum("refuses GET_LOCK" in one.getMessage() for one in caplog.records) == 1
