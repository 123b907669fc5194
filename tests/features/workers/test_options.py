"""``runconsumer``'s options, one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import override_settings

from django_mqueue import Message, OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from django_mqueue.models import Message as LogRow
from django_mqueue.workers import runner as runner_module
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.processes import FAST
from tests.support.running import Seen, registered, run
from tests.support.subscribers import let_die, poll_until
from tests.support.transactions import Background, HeldTransaction
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


class Looks(list[float]):
    """The times of the statements that poll the log's tail. Each statement then calls ``then``."""

    then: Callable[[], object] = staticmethod(lambda: None)


@contextmanager
def tail_looks() -> Iterator[Looks]:
    looks = Looks()

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "(SELECT topic, `offset`" in sql:
            looks.append(time.monotonic())
            looks.then()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield looks


def test_drain_consumes_all_there_is_and_stops() -> None:
    publish_many("t", range(500))
    with registered("t", seen := Seen()):
        assert "stopped: ack 500" in run()
    assert sorted(seen.payloads) == list(range(500))


def test_drain_stops_at_once_with_nothing_to_do() -> None:
    with registered("t", Seen()), tail_looks() as looks:
        assert "stopped: nothing to do" in run()
    assert 1 <= len(looks) <= 3


def test_drain_does_not_wait_for_what_is_not_due() -> None:
    """A message that is due in an hour is not work for now."""
    publish("t", "late")
    with Subscription("t", "g") as subscription:
        subscription.poll()[0].nack(delay=3600)
    publish("t", "now")
    with registered("t", seen := Seen()):
        run()
    assert seen.payloads == ["now"]


def test_drain_does_what_its_own_handlers_publish() -> None:
    def chain(message: Message) -> None:
        if message.payload < 5:
            publish("t", message.payload + 1)

    publish("t", 0)
    with registered("t", seen := Seen(chain)):
        run()
    assert seen.payloads == [0, 1, 2, 3, 4, 5]


def test_drain_waits_until_a_dead_workers_lease_has_run_out_and_takes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish_many("t", range(20))
    dead = Subscription("t", "g", name="dead").open()
    assert dead.poll(max_messages=5)
    caplog.set_level("INFO", "django_mqueue")
    with registered("t", seen := Seen()), Background(run) as draining:
        wait_until(lambda: "drain: waiting for messages" in caplog.text, "it waits")
        let_die("dead")
        assert "stopped: ack 20" in draining.result()
    assert sorted(seen.payloads) == list(range(20))


def test_drain_says_what_is_left_after_its_timeout_and_exits_with_3() -> None:
    """Another worker keeps its leases, so this worker gets no message."""
    publish_many("t", [OutgoingMessage(n, key="k") for n in range(7)])
    with Subscription("t", "g", name="other") as other, registered("t", seen := Seen()):
        first, *_ = poll_until(other, 7)
        other.ack([first])
        with override_settings(MQUEUE={**FAST, "LEASE_DURATION": 3600}):
            with pytest.raises(CommandError, match="6 messages are left") as caught:
                run(drain_timeout=0.3)
            assert caught.value.returncode == 3
    assert seen.messages == []


def test_drain_waits_for_a_due_message_that_a_transaction_has_locked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A handler's transaction that schedules a due message can be open when the worker promotes."""
    publish("t", "due", delay=3600)
    LogRow.objects.update(available_at=0)
    caplog.set_level("INFO", "django_mqueue")
    held = HeldTransaction(lambda: list(LogRow.objects.select_for_update()))
    with registered("t", seen := Seen()), held, Background(run) as draining:
        wait_until(lambda: "drain: waiting for messages" in caplog.text, "it waits")
        held.rollback()
        assert "stopped: ack 1" in draining.result()
    assert seen.payloads == ["due"]


def test_drain_leaves_what_another_has_put_back_for_later_and_what_it_has_done() -> None:
    publish_many("t", [OutgoingMessage(n, key="k") for n in range(3)])
    with Subscription("t", "g", name="other") as other, registered("t", Seen()):
        done, *later = poll_until(other, 3)
        done.ack()
        for delivery in later:
            delivery.nack(delay=3600)
        assert "stopped: nothing to do" in run()


def test_max_messages_is_exact() -> None:
    """Seven handlers run, and the worker claims no more messages. The next run handles the rest."""
    publish_many("t", range(50))
    with registered("t", seen := Seen()):
        assert "stopped: ack 7" in run(drain=False, max_messages=7)
        assert len(seen.messages) == 7
        run()
    assert sorted(seen.payloads) == list(range(50))
    assert {message.attempt for message in seen.messages} == {1}


def test_max_seconds_ends_the_run() -> None:
    with registered("t", Seen()):
        started = time.monotonic()
        run(drain=False, max_seconds=0.5)
    assert time.monotonic() - started >= 0.5


def test_max_seconds_lets_a_running_handler_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler moves the runner's clock forward, and ends after the runner has noticed."""
    publish("t", 1)
    passed, ended = [0], []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(runner_module, "time", clock)

    def slow(message: Message) -> None:
        passed[0] = 7200
        wait_until(lambda: runner._stopping, "the time is over")
        ended.append(message.payload)

    with registered("t", slow):
        runner = Runner(handlers(["t"]), RunOptions(max_seconds=3600))
        runner.run()
    assert ended == [1]
    assert DeliveryState.objects.get().acked


def test_name_is_the_name_of_the_heartbeat_and_the_leases() -> None:
    publish("t", 1, key="k")
    names = []

    def look(message: Message) -> None:
        names.append(PartitionLease.objects.get(partition_key="k").leased_by)

    with registered("t", look):
        run(name="worker-7")
    assert names == ["worker-7"]
    assert SubscriberHeartbeat.objects.get().subscriber_name == "worker-7"


def test_names_are_made_up_and_differ() -> None:
    with registered("t", Seen()):
        run()
        run()
    assert SubscriberHeartbeat.objects.values("subscriber_name").distinct().count() == 2


def test_threads_is_how_many_handlers_run_at_once() -> None:
    """Five handlers meet at a barrier, so they run at once. There are never six."""
    publish_many("t", range(20))
    barrier = threading.Barrier(5, timeout=PATIENCE)
    with registered("t", seen := Seen(lambda message: barrier.wait())):
        assert "stopped: ack 20" in run(threads=5)
    assert seen.most_at_once == 5


def test_one_thread_runs_one_at_a_time() -> None:
    publish_many("t", range(20))
    with registered("t", seen := Seen()):
        run(threads=1)
    assert seen.most_at_once == 1


def test_concurrency_limits_one_handler_and_not_the_others() -> None:
    publish_many("t", range(6))
    publish_many("u", range(6))
    barrier = threading.Barrier(3, timeout=PATIENCE)
    limited, others = Seen(), Seen(lambda message: barrier.wait())
    with registered("t", limited, concurrency=1), registered("u", others):
        run(threads=4)
    assert (limited.most_at_once, len(limited.messages)) == (1, 6)
    assert others.most_at_once >= 3
    assert len(others.messages) == 6


def test_a_slow_handler_at_its_limit_leaves_the_other_threads_to_others() -> None:
    """The slow handler has many messages and one thread. Meanwhile another handler finishes its six messages."""
    publish_many("t", range(6))
    publish_many("u", range(6))
    done = threading.Semaphore(0)
    waited: list[bool] = []

    def slow(message: Message) -> None:
        if not waited:
            waited.append(all(done.acquire(timeout=PATIENCE) for _ in range(6)))

    with registered("t", slow, concurrency=1), registered("u", Seen(lambda message: done.release())):
        run(threads=4)
    assert waited == [True]


def test_batch_size_limits_what_one_partition_has_out_and_overrides_the_handlers_own() -> None:
    """With eight threads and one key, two handlers run at once. The handler's own limit is ten."""
    for n in range(20):
        publish("t", n, key="k")
    pair = threading.Barrier(2, timeout=PATIENCE)
    with registered("t", seen := Seen(lambda message: pair.wait()), batch_size=10):
        run(threads=8, batch_size=2)
    assert (seen.most_at_once, len(seen.messages)) == (2, 20)


@pytest.mark.parametrize("interval", [0.02, 0.5])
def test_poll_interval_is_the_pause_between_looks_when_idle(interval: float) -> None:
    """Six polls of the log's tail take five intervals, or more on a busy machine."""
    subscribe("t", "g")
    begun = time.monotonic()
    with registered("t", Seen()), tail_looks() as looks:
        runner = Runner(handlers(["t"]), RunOptions(poll_interval=interval))
        looks.then = lambda: runner.stop() if len(looks) == 6 else None
        runner.run()
    assert looks[5] - begun >= 5 * interval


def test_there_is_no_pause_while_there_is_work() -> None:
    """A poll interval of an hour does not delay messages that are available."""
    publish_many("t", range(300))
    with registered("t", seen := Seen()):
        run(poll_interval=3600, drain=False, max_messages=300)
    assert len(seen.messages) == 300


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("threads", "0"),
        ("max-messages", "0"),
        ("batch-size", "-1"),
        ("batch-size", "1001"),
        ("poll-interval", "0"),
        ("max-seconds", "x"),
        ("max-seconds", "40000000"),
        ("name", "w" * 129),
        ("name", "w "),
        ("drain-timeout", "-1"),
    ],
)
def test_impossible_values_are_errors_that_name_the_option(option: str, value: str) -> None:
    with registered("t", Seen()), pytest.raises(CommandError, match=f"--{option}"):
        run(f"--{option}={value}")
