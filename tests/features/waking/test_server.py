"""Sleep in the server, and end the sleep from another connection."""

from __future__ import annotations

import math
import threading

import pytest
from django.db import OperationalError, connection, connections

from django_mqueue.protocol.waking.sleepers import Sleeper
from django_mqueue.protocol.waking.sockets import NO_SLOT
from django_mqueue.protocol.waking.wakers import _Waker
from django_mqueue.store.connection import wakeups
from django_mqueue.store.connection.second_connection import second_connection
from tests.support.accounts import acting_as
from tests.support.transactions import Background, wait_until

from .sleeping import HOUR

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "another-database"


def asleep(topics: list[str], slot: int) -> Background[bool]:
    def sleep() -> bool:
        with connection.cursor() as cursor:
            return wakeups.sleep(cursor, NAME, topics, slot, HOUR)

    return Background(sleep)


def used(topic: str, *slots: int) -> set[int]:
    with connection.cursor() as cursor:
        return wakeups.used_slots(cursor, NAME, topic, slots)


def sleeps_on(sleeper: Background[bool]) -> bool:
    """Wait until the server counts another second of the sleep, or the sleep has ended. Return True if it sleeps."""

    def seconds() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT TIME FROM information_schema.PROCESSLIST WHERE ID = %s AND STATE = 'User sleep'",
                [sleeper.connection_id],
            )
            row = cursor.fetchone()
        return -1 if row is None else int(row[0])

    before = seconds()
    wait_until(lambda: sleeper.is_done or seconds() > before, "the sleep continues, or ends")
    return before >= 0 and not sleeper.is_done


def end(topic: str, slot: int) -> None:
    with connection.cursor() as cursor:
        wakeups.end_sleep(cursor, NAME, topic, slot)


def test_a_sleep_is_ended_by_any_of_its_topics() -> None:
    for topic in ("a", "b"):
        with asleep(["a", "b"], 5) as sleeper:
            wait_until(lambda: used(topic, 4, 5) == {5}, "it sleeps")  # noqa: B023
            end("c", 5)
            end(topic, 4)
            end(topic, 5)
            assert sleeper.result() is True
        assert used("a", 5) == used("b", 5) == set()


def test_a_sleep_that_is_not_ended() -> None:
    with connection.cursor() as cursor:
        assert wakeups.sleep(cursor, NAME, ["a"], 1, 0.01) is False
    assert used("a", 1) == set()


def test_two_connections_have_different_slots() -> None:
    with (
        second_connection("default") as alias,
        connection.cursor() as mine,
        connections[alias].cursor() as its,
    ):
        slots = {wakeups.hold_slot(mine, NAME), wakeups.hold_slot(its, NAME)}
        assert len(slots) == 2
        assert wakeups.held_slots(mine, NAME) == slots
        connections[alias].close()
        wait_until(lambda: len(wakeups.held_slots(mine, NAME)) == 1, "its slot is free")
    connection.close()


def test_no_slot_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "SLOTS", 1)
    with (
        second_connection("default") as alias,
        connection.cursor() as mine,
        connections[alias].cursor() as its,
    ):
        assert wakeups.hold_slot(mine, NAME) == 0
        assert wakeups.hold_slot(its, NAME) is None
    connection.close()


def test_an_account_without_privileges_ends_the_sleep_of_its_own_connections() -> None:
    with acting_as("worker"), asleep(["a"], 2) as sleeper:
        wait_until(lambda: used("a", 2), "it sleeps")
        end("a", 2)
        assert sleeper.result() is True


def test_an_account_cannot_end_the_sleep_of_another_account() -> None:
    with asleep(["a"], 2) as sleeper:
        wait_until(lambda: used("a", 2), "it sleeps")
        with acting_as("publisher"), pytest.raises(OperationalError, match="not owner"):
            end("a", 2)
        assert sleeps_on(sleeper)
        end("a", 2)
        assert sleeper.result() is True


def test_a_publisher_that_may_not_wake_others_stops_trying() -> None:
    database = str(connection.settings_dict["NAME"])

    def sleep() -> bool:
        with connection.cursor() as cursor:
            slot = wakeups.hold_slot(cursor, database)
            assert slot is not None
            return wakeups.sleep(cursor, database, ["a"], slot, HOUR)

    def sleeping() -> list[int]:
        with connection.cursor() as cursor:
            return sorted(wakeups.used_slots(cursor, database, "a", range(wakeups.SLOTS)))

    waker = _Waker("default")
    with Background(sleep) as sleeper:
        wait_until(sleeping, "it sleeps")
        with acting_as("publisher"):
            waker.ask("a")
            wait_until(lambda: waker._not_before > 0, "it stops")
            wait_until(lambda: waker._thread is None, "its connection is closed")
        assert sleeps_on(sleeper)
        waker._not_before = -math.inf
        waker.ask("a")
        assert sleeper.result() is True


def test_a_publisher_that_can_start_no_thread_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    waker = _Waker("default")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        waker.ask("a")
    waker.ask("a")
    wait_until(lambda: waker._not_before > 0 and waker._thread is None, "its thread has run")


def test_a_publisher_without_others_keeps_no_connection() -> None:
    waker = _Waker("default")
    waker.ask("a")
    wait_until(lambda: waker._not_before > 0 and waker._thread is None, "its thread ends")
    waker._not_before += 3600
    waker.ask("a")
    assert waker._thread is None


def test_a_worker_that_stops_ends_its_sleep_at_once() -> None:
    sleeper = Sleeper("default", ["a"], lambda: None)
    sleeper.start()
    thread = sleeper._connection
    assert thread is not None
    sleeper.sleep()
    wait_until(lambda: thread.slot != NO_SLOT and _sleeps(thread.slot), "it sleeps")
    sleeper.stop()
    assert not thread.is_alive()


def _sleeps(slot: int) -> bool:
    with connection.cursor() as cursor:
        return bool(wakeups.used_slots(cursor, str(connection.settings_dict["NAME"]), "a", [slot]))
