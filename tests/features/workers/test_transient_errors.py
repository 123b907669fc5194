"""The server is unreachable, or refuses for a while. The worker continues after each error code of this kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import MySQLdb
import MySQLdb.cursors
import pytest
from django.core.management import CommandError
from django.db import OperationalError, connections

from django_mqueue import Message, Subscription, publish, publish_many
from django_mqueue.management.commands import runconsumer
from django_mqueue.models import DeliveryState
from django_mqueue.store.connection import session
from django_mqueue.workers import runner
from tests.support.running import Seen, registered, run
from tests.support.threads import raw_connection
from tests.support.transactions import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

UNKNOWN_HOST, TLS_CUT_OFF, OFFLINE, NO_HOOK, ROLLED_BACK = 2005, 2026, 3032, 3100, 3101
READ_ONLY, NO_SERVER = 1290, 9001
"""The error of ProxySQL while no server is online."""


@contextmanager
def refused(code: int, times: int) -> Iterator[list[int]]:
    """Let this thread's next ``times`` new connections fail with ``code``. Yield the list of the failures."""
    connection = connections["default"]
    connect, failed = connection.get_new_connection, list[int]()

    def fail_first(parameters: Any) -> Any:
        if len(failed) < times:
            failed.append(code)
            raise OperationalError(code, "not now")
        return connect(parameters)

    with patch.object(connection, "get_new_connection", fail_first):
        yield failed


def outage(failed: list[int], times: int) -> Callable[[Message], None]:
    """Return a handler that kills this thread's connection, and waits until ``times`` new ones have failed."""
    number = connections["default"].connection.thread_id()

    def handle(message: Message) -> None:
        with raw_connection() as killer:
            killer.execute("KILL %s", [number])
        wait_until(lambda: len(failed) == times, f"{times} connections have failed")

    return handle


def test_a_worker_ends_after_its_seconds_also_in_an_outage() -> None:
    with registered("orders", print), refused(OFFLINE, 1 << 30):
        connections["default"].close()
        assert "stopped: nothing to do" in run(drain=False, max_seconds=1)


def test_an_outage_may_last_for_more_than_a_thousand_attempts() -> None:
    """The wait doubles up to a limit. Two to the power of 1,024 is no float."""
    publish("orders", 1)
    with (
        refused(TLS_CUT_OFF, 1_100) as failed,
        registered("orders", Seen(outage(failed, 1_100))),
        patch.object(runner, "RECONNECT_MAX", 0),
    ):
        assert "stopped: ack 1" in run()


@pytest.mark.parametrize("stops", [{}, {"max_messages": 1}], ids=["it goes on", "it is about to stop"])
@pytest.mark.parametrize("code", [UNKNOWN_HOST, TLS_CUT_OFF, OFFLINE, NO_SERVER])
def test_a_handler_that_runs_meanwhile_is_acked(code: int, stops: dict[str, int]) -> None:
    """The loop's connection is killed, and three new ones fail. Then the handler ends. It runs only once."""
    publish("orders", 1)
    with refused(code, 3) as failed, registered("orders", seen := Seen(outage(failed, 3))):
        assert "stopped: ack 1" in run(**stops)
    assert failed == [code] * 3
    assert [message.attempt for message in seen.messages] == [1]
    assert DeliveryState.objects.get().acked


@pytest.mark.parametrize("code", [NO_HOOK, ROLLED_BACK])
def test_commits_that_the_replication_group_refuses_are_made_again(code: int) -> None:
    """Its members lose contact for a moment. The server rolls the transaction back, and the worker tries it again."""
    publish("orders", 1)
    connection: Any = connections["default"]
    commit, refusals, running = connection._commit, list[int](), threading.Event()

    def refuse() -> None:
        if running.is_set() and len(refusals) < 3:
            refusals.append(code)
            connection._rollback()
            raise OperationalError(code, "not now")
        commit()

    def handle(message: Message) -> None:
        running.set()
        wait_until(lambda: refusals, "the loop meets it")

    with registered("orders", seen := Seen(handle)), patch.object(connection, "_commit", refuse):
        run()
    assert len(refusals) == 3
    assert [message.attempt for message in seen.messages] == [1]
    assert DeliveryState.objects.get().acked


@pytest.mark.parametrize("seen_by", ["the handler", "the loop"])
def test_handlers_leave_a_server_that_a_failover_has_made_a_replica(seen_by: str) -> None:
    """It still answers, so Django keeps the connection. A new one leads to the new primary."""
    publish_many("orders", [1, 2, 3])
    used: list[int] = []

    def handle(message: Message) -> None:
        connections["default"].ensure_connection()
        used.append(connections["default"].connection.thread_id())
        if len(used) != 2:
            return
        if seen_by == "the handler":
            raise OperationalError(READ_ONLY, "read-only")
        with pytest.raises(OperationalError), patch.object(MySQLdb.cursors.Cursor, "execute", refuse):
            session.fetch("default", "SELECT 1")

    def refuse(cursor: object, *arguments: object) -> None:
        raise MySQLdb.OperationalError(READ_ONLY, "read-only")

    with registered("orders", seen := Seen(handle), atomic=seen_by == "the handler"):
        run(threads=1)
    assert used[0] == used[1]
    assert used[0] not in used[2:]
    assert {message.attempt for message in seen.messages} == {1}
    assert set(DeliveryState.objects.values_list("failure_count", flat=True)) == {0}, "it uses no attempt"


def test_polling_by_hand_goes_on_with_a_new_connection() -> None:
    with Subscription("orders", "g") as subscription:
        publish("orders", 1)
        connections["default"].close()
        with refused(UNKNOWN_HOST, 1) as failed:
            wait_until(subscription.poll, "it is delivered")
        assert failed


@pytest.mark.parametrize("code", [UNKNOWN_HOST, TLS_CUT_OFF])
def test_a_worker_that_starts_meanwhile_waits_a_little(code: int) -> None:
    publish("orders", 1)
    connections["default"].close()
    with refused(code, 3), registered("orders", seen := Seen()):
        run()
    assert seen.payloads == [1]


@pytest.mark.parametrize("code", [UNKNOWN_HOST, TLS_CUT_OFF])
def test_what_may_be_a_mistake_is_told_when_a_worker_starts(code: int) -> None:
    connections["default"].close()
    with (
        patch.object(runconsumer, "MISTAKEN_AFTER", 0.5),
        refused(code, 1000),
        registered("orders", Seen()),
        pytest.raises(CommandError, match=r"'default' cannot be reached.*not now.*HOST"),
    ):
        run()
