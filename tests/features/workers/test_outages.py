"""The server restarts or crashes while workers run. The same processes continue, and nothing is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from django.db import DatabaseError, connections

from django_mqueue import publish
from django_mqueue.models import DeliveryState, SubscriberHeartbeat
from tests.own_server import OwnServer
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Step
from tests.support.subscribers import done
from tests.support.threads import RawConnection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_in_mid_run_loses_nothing_and_the_workers_carry_on(
    number: signal.Signals, own_server: OwnServer
) -> None:
    """The server restarts twice. The same two worker processes handle each message whose publish returned."""
    alias, published = own_server.alias, 0

    def publish_some() -> int:
        nonlocal published
        for _ in range(100):
            publish("orders", {"n": published}, key=f"k{published % 7}", using=alias)
            published += 1
        return published

    with Workers(using=alias) as workers:
        both = [workers.start("orders:billing", url=own_server.url) for _ in range(2)]
        wait_until(lambda: SubscriberHeartbeat.objects.using(alias).count() == 2, "both have joined")
        for _ in range(2):
            publish_some()
            wait_until(lambda: done(alias) > published - 90, "they are at work")
            connections[alias].close()
            own_server.restart(number)
        publish_some()
        wait_until(lambda: done(alias) == published, "all are done")
        for worker in both:  # A worker without work may still wait for its next try.
            wait_until(lambda w=worker: "the database is back" in w.output(), "it is back, too")  # type: ignore[misc]
        assert all(worker.running for worker in both)
        assert [worker.stop() for worker in both] == [0, 0]
        assert all("retrying" in worker.output() for worker in both)
    ended = set(Step.objects.using(alias).filter(what="end").values_list("number", flat=True))
    assert ended == set(range(published))
    assert not DeliveryState.objects.using(alias).filter(acked=False).exists()


def test_a_handler_that_runs_through_a_restart_is_acked_after_it(
    own_server: OwnServer, tmp_path: Path
) -> None:
    """The handler does not use the database meanwhile. Its ack waits for the server, and it runs only once."""
    alias, file = own_server.alias, tmp_path / "file"
    publish("orders", {"n": 1, "do": "wait_for_file", "file": str(file)}, key="k", using=alias)
    with Workers(using=alias) as workers:
        worker = workers.start("orders:billing", "--name", "w", url=own_server.url)
        wait_until(
            lambda: DeliveryState.objects.using(alias).filter(in_flight=True).exists(), "it has started"
        )
        connections[alias].close()
        own_server.stop()
        with pytest.raises(DatabaseError):
            publish("orders", {"n": 2}, key="k", using=alias)
        connections[alias].close()
        own_server.start()
        file.touch()
        wait_until(lambda: done(alias) == 1, "it is acked")
        state = DeliveryState.objects.using(alias).get()
        assert (state.retry_count, state.failure_count) == (0, 0)
        assert worker.stop() == 0
        assert "stopped: ack 1" in worker.output()


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_first_message_after_a_restart_does_not_fail_for_an_old_connection(
    number: signal.Signals, own_server: OwnServer
) -> None:
    """The handlers' idle connections died with the server. This does not fail an attempt."""
    alias = own_server.alias
    publish("orders", {"n": 1}, key="k", using=alias)
    with Workers(using=alias) as workers:
        worker = workers.start("orders:billing", "--threads", "1", url=own_server.url)
        wait_until(lambda: done(alias) == 1, "its handler has a connection")
        connections[alias].close()
        own_server.restart(number)
        publish("orders", {"n": 2}, key="k", using=alias)
        wait_until(lambda: done(alias) == 2, "it goes on")
        assert worker.stop() == 0
        assert "failed" not in worker.output()
    steps = Step.objects.using(alias).filter(number=2).order_by("id").values_list("what", "attempt")
    assert list(steps) == [("start", 1), ("end", 1)]


def test_a_worker_that_is_told_to_stop_while_the_server_is_away_stops(own_server: OwnServer) -> None:
    """The worker cannot leave the group, so its lease must expire. It exits and does not hang."""
    alias = own_server.alias
    publish("orders", {"n": 1}, key="k", using=alias)
    with Workers(using=alias) as workers:
        worker = workers.start("orders:billing", url=own_server.url)
        wait_until(lambda: done(alias) == 1, "it is at work")
        connections[alias].close()
        own_server.stop()
        wait_until(lambda: "retrying" in worker.output(), "it has noticed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        own_server.start()


def refused(alias: str) -> int:
    """Return the number of connections that the server has refused because there are too many."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'")
        return int(cursor.fetchone()[1])


def test_a_server_that_refuses_connections_is_waited_for(own_server: OwnServer) -> None:
    """The server is at its limit when the worker needs a new connection. The worker continues when one is free."""
    alias, others = own_server.alias, []
    publish("orders", {"n": 1}, key="k", using=alias)
    with Workers(using=alias) as workers:
        worker = workers.start("orders:billing", "--threads", "1", url=own_server.url)
        wait_until(lambda: done(alias) == 1, "it is at work")
        try:
            others = [RawConnection(alias) for _ in range(12)]
            with connections[alias].cursor() as cursor:
                cursor.execute("SET GLOBAL max_connections = 10")
                cursor.execute(
                    "SELECT ID FROM information_schema.PROCESSLIST WHERE DB IS NOT NULL AND ID <> CONNECTION_ID()"
                )
                for (found,) in cursor.fetchall():
                    if found not in {other.id for other in others}:
                        cursor.execute(f"KILL {found:d}")
            wait_until(lambda: "retrying" in worker.output(), "it is refused")
            publish("orders", {"n": 2}, key="k", using=alias)
            before = refused(alias)
            wait_until(
                lambda: refused(alias) >= before + 3 or not worker.running, "it is refused again and again"
            )
            assert worker.running
            assert done(alias) == 1
            assert "is back" not in worker.output()
        finally:
            for other in others:
                other.close()
        wait_until(lambda: done(alias) == 2, "it goes on")
        assert worker.stop() == 0
