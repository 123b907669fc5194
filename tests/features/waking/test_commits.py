"""Which calls wake sleeping processes, when, and how often."""

from __future__ import annotations

import os
import socket as sockets_of_python
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import RequestFailed, Subscription, inspect, publish, publish_many, redrive, reschedule
from django_mqueue.protocol.waking import sockets
from django_mqueue.protocol.waking.sockets import SleepSocket, place_of
from django_mqueue.service import requesting
from django_mqueue.signals import published
from tests.features.request.asking import asked, boxes, one
from tests.support.fixtures import with_settings
from tests.support.processes import wait_until
from tests.support.running import Seen
from tests.support.statements import counted

from .sleeping import HOUR, LONG, directory, has_nothing, is_woken, listening, sleeping, worker

pytestmark = pytest.mark.django_db(transaction=True)


host = with_settings(MQUEUE=LONG)


def publish_scheduled() -> None:
    publish("orders", 1, delay=HOUR)


def publish_several() -> None:
    publish_many("orders", [1, 2])


def move_scheduled() -> None:
    publish("orders", 1, id="x", delay=HOUR)
    with listening("orders") as moved:
        assert reschedule("orders", "x", delay=0)
        assert is_woken(moved)


def hurry_scheduled() -> None:
    publish("orders", 1, delay=HOUR)
    with listening("orders") as hurried:
        assert inspect.send_to_front("orders", group=None) == 1
        assert is_woken(hurried)


def dead_letter() -> None:
    publish("orders", 1)
    with Subscription("orders", "g", max_attempts=1) as subscription, listening("orders_dlq") as letters:
        one(subscription).reject("no")
        assert is_woken(letters)


def redrive_dead_letter() -> None:
    dead_letter()
    with listening("orders") as again:
        assert redrive("orders") == 1
        assert is_woken(again)


@pytest.mark.parametrize(
    "call",
    [publish_scheduled, publish_several, move_scheduled, hurry_scheduled, dead_letter, redrive_dead_letter],
)
def test_a_commit_wakes_the_processes_of_its_topic(call: Callable[[], None]) -> None:
    with listening("orders") as socket, listening("others") as other:
        call()
        assert is_woken(socket)
        assert has_nothing(other)


def test_a_wake_up_waits_for_the_commit() -> None:
    with listening("orders") as socket:
        with transaction.atomic():
            publish("orders", 1)
            assert has_nothing(socket)
        assert is_woken(socket)


def test_a_rolled_back_message_wakes_none() -> None:
    with listening("orders") as socket:
        with transaction.atomic():
            publish("orders", 1)
            transaction.set_rollback(True)
        assert has_nothing(socket)


def wakes() -> int:
    """Return the number of hooks of the transaction that wake workers. Others count messages for metrics."""
    return sum(hook[1].__name__ == "wake" for hook in connection.run_on_commit)


def test_many_messages_of_a_transaction_share_a_wake_up() -> None:
    """The savepoint of the second message is rolled back, but that of the third is not."""
    with listening("orders") as socket:
        with transaction.atomic():
            publish("orders", 1)
            publish("orders", 1)
            assert wakes() == 1
            with transaction.atomic():
                publish("others", 2)
                publish("orders", 2)
                transaction.set_rollback(True)
            assert wakes() == 1
            with transaction.atomic():
                publish("others", 3)
            publish("orders", 3)
            assert wakes() == 2
        assert is_woken(socket)


def test_other_hooks_do_not_add_wake_ups() -> None:
    """A receiver of the signal ``published`` adds a hook for each message."""
    told: list[Any] = []
    published.connect(lambda **details: told.append(details), weak=False, dispatch_uid="wakes")
    try:
        with transaction.atomic():
            for number in range(5):
                publish("orders", number)
            with transaction.atomic():
                publish("orders", 5)
            publish("orders", 6)
            assert wakes() == 1
    finally:
        published.disconnect(dispatch_uid="wakes")
    assert len(told) == 7


def test_a_wake_up_of_a_savepoint_that_is_rolled_back_does_not_count() -> None:
    with listening("orders") as socket:
        with transaction.atomic():
            with transaction.atomic():
                publish("orders", 1)
                transaction.set_rollback(True)
            publish("others", 2)
            publish("orders", 3)
            assert wakes() == 2
        assert is_woken(socket)


def test_a_transaction_without_autocommit_wakes_none() -> None:
    """Django runs no hook at its commit. Polls find the message."""
    with listening("orders") as socket:
        transaction.set_autocommit(False)
        try:
            publish("orders", 1)
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        assert has_nothing(socket)


def test_a_duplicate_wakes_none() -> None:
    publish("orders", 1, id="x")
    with listening("orders") as socket:
        assert not publish("orders", 1, id="x").created
        assert has_nothing(socket)


def test_a_sleeping_process_gets_one_wake_up_until_it_sleeps_again() -> None:
    with listening("orders") as socket:
        publish("orders", 1)
        publish("orders", 2)
        assert is_woken(socket)
        assert has_nothing(socket)
        socket.sleep()
        publish("orders", 3)
        assert is_woken(socket)


def test_a_wake_up_costs_no_statement() -> None:
    with listening("orders"):
        with counted() as cost:
            publish("orders", 1, key="k")
        assert (cost.count, cost.commits) == (1, 0)
        with transaction.atomic(), counted() as cost:
            publish("orders", 1, key="k")
        assert (cost.count, cost.commits) == (1, 0)


def test_a_reply_wakes_its_requester(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requester looks once an hour. A reply that is rolled back does not wake it."""
    monkeypatch.setattr(requesting, "FIRST_PAUSE", HOUR)
    with Subscription("prices", "shop") as subscription, asked("prices", 1, timeout=HOUR) as asking:
        delivery = one(subscription)
        wait_until(lambda: sleeping(sockets.REQUESTS), "the requester sleeps")
        with transaction.atomic():
            delivery.reply("wrong")
            transaction.set_rollback(True)
        assert sleeping(sockets.REQUESTS)
        delivery.reply("right")
        assert asking.result().payload == "right"
    assert boxes("prices") == []
    assert os.listdir(directory(sockets.REQUESTS)) == []


def test_a_failed_request_wakes_its_requester(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requesting, "FIRST_PAUSE", HOUR)
    with Subscription("prices", "shop") as subscription, asked("prices", 1, timeout=HOUR) as asking:
        delivery = one(subscription)
        wait_until(lambda: sleeping(sockets.REQUESTS), "the requester sleeps")
        delivery.reject("no price")
        with pytest.raises(RequestFailed, match="no price"):
            asking.result()


DIES = """
import os, sys
from django_mqueue.protocol.waking import sockets
socket = sockets.SleepSocket(sys.argv[1], ["orders"])
if sys.argv[2] == "asleep":
    socket.sleep()
os._exit(0)
"""


@pytest.mark.parametrize("state", ["asleep", "awake"])
def test_the_file_of_a_dead_process_is_removed(state: str) -> None:
    """A publisher removes it when it wakes the process. The next worker that starts also removes it."""
    place = place_of("default")
    subprocess.run([sys.executable, "-c", DIES, place, state], check=True)
    (file,) = os.listdir(directory())
    assert (file.count(".") == 2) == (state == "asleep")
    if state == "asleep":
        publish("orders", 1)
    else:
        with worker("orders", Seen()):
            assert file not in os.listdir(directory())
    assert os.listdir(directory()) == []


def test_foreign_files_and_datagrams_do_no_harm() -> None:
    seen = Seen()
    with worker("orders", seen) as runner:
        for name in ("x", "a.b.c", "1.2.zz", "1.2.ffffffffffffffff", "..."):
            (directory() / name).write_text("foreign")
        opened = runner._polling._sleeper._socket
        assert opened is not None
        path = opened._asleep if os.path.exists(opened._asleep) else opened._awake
        with sockets_of_python.socket(sockets_of_python.AF_UNIX, sockets_of_python.SOCK_DGRAM) as foreign:
            foreign.sendto(b"DROP TABLE queue_messages" * 40, path)
            foreign.sendto(b"\0", path)
        publish("orders", 1)
        wait_until(lambda: seen.payloads == [1], "the message is handled")


def test_a_worker_opens_its_socket_again_if_its_file_was_deleted() -> None:
    """Many systems delete old files in the directory of temporary files."""
    seen = Seen()
    with worker("orders", seen) as runner:
        for file in os.listdir(directory()):
            (directory() / file).unlink()
        runner._polling.soon()
        runner._pool.wake()
        wait_until(sleeping, "the worker sleeps again")
        publish("orders", 1)
        wait_until(lambda: seen.payloads == [1], "the message is handled")


def test_a_directory_that_others_can_enter_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "mqueue"
    root.mkdir(mode=0o755)
    monkeypatch.setattr(sockets, "_root", lambda: str(root))
    monkeypatch.setattr(sockets, "_paths", {})
    with pytest.raises(PermissionError, match="must be a directory of this user"):
        SleepSocket(place_of("default"), ["orders"])
    publish("orders", 1)
    root.chmod(0o700)
    with listening("orders") as socket:
        publish("orders", 2)
        assert is_woken(socket)


def test_without_a_directory_for_temporary_files_a_publish_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in a container whose file system is read-only. The message is stored once, and nobody is woken."""

    def refuse() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(sockets, "_paths", {})
    publish("orders", 1)
    assert sockets.slots(place_of("default")) == set()


def test_a_request_works_without_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no sockets")

    monkeypatch.setattr(sockets, "_opened", refuse)
    with (
        Subscription("prices", "shop") as subscription,
        override_settings(MQUEUE={}),
        asked("prices", 1) as asking,
    ):
        one(subscription).reply(2)
        assert asking.result().payload == 2
