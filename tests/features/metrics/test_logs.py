"""Fields of log records: each event that matters is one record with its topic, group and worker."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_mqueue import Reject, Subscription, publish
from django_mqueue.models import PartitionLease
from django_mqueue.protocol.waking.polling import Polling
from tests.support.processes import FAST
from tests.support.running import registered, run
from tests.support.subscribers import poll_until
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of the records of an event, without the prefix."""
    return [
        {
            name.removeprefix("mqueue_"): value
            for name, value in vars(one).items()
            if name.startswith("mqueue_")
        }
        for one in caplog.records
        if getattr(one, "mqueue_event", None) == event
    ]


def test_failures_and_dead_letters_have_their_message(caplog: pytest.LogCaptureFixture) -> None:
    def handle(message: Any) -> None:
        raise Reject("never") if message.attempt == 2 else ValueError("not yet")

    offset = publish("orders", 1, key="ada", id="order-1").offset
    with registered("orders", handle, group="reports", retry=[0]):
        run(name="w")
    message = {
        "topic": "orders", "group": "reports", "subscriber": "w", "offset": offset, "id": "order-1", "key": "ada",
    }  # fmt: skip
    (retried,) = records(caplog, "retried")
    assert retried == {
        **message, "event": "retried", "attempt": 1, "error": "ValueError: not yet", "retry_in": 0.0,
    }  # fmt: skip
    (dead,) = records(caplog, "dead_lettered")
    assert dead == {**message, "event": "dead_lettered", "attempt": 2, "error": "never"}


def test_the_start_and_the_end_of_a_worker_are_logged_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_mqueue"), registered("orders", lambda message: None):
        run(name="w")
    assert records(caplog, "worker_started") == [{"event": "worker_started", "subscriber": "w"}]
    assert records(caplog, "worker_stopped") == [{"event": "worker_stopped", "subscriber": "w"}]
    assert {one.levelno for one in caplog.records} == {logging.INFO}, (
        "without an event that matters, all is quiet"
    )


def test_an_outage_is_one_line_at_its_begin_and_one_at_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = Polling.read, 3

    def fail_at_first(*args: Any, **kwargs: Any) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OperationalError(2013, "Lost connection")
        return read(*args, **kwargs)

    monkeypatch.setattr(Polling, "read", fail_at_first)
    with registered("orders", lambda message: None):
        run(name="w")
    (lost,), (back,) = records(caplog, "database_error"), records(caplog, "database_back")
    assert lost == {"event": "database_error", "subscriber": "w"}
    assert back.pop("seconds") > 0
    assert back == {"event": "database_back", "subscriber": "w"}
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "after" in caplog.records[1].getMessage()
    assert "3 errors" in caplog.records[1].getMessage()


def test_a_lost_lease_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(MQUEUE={**FAST, "LEASE_RENEWAL_INTERVAL": 0.1}):
        publish("orders", 1, key="ada")
        with Subscription("orders", "reports", name="w") as subscription:
            poll_until(subscription, 1)
            PartitionLease.objects.update(holder="another", leased_by="x")

            def logged() -> list[dict[str, Any]]:
                subscription.poll()
                return records(caplog, "lease_lost")

            wait_until(logged, "the lost lease is logged")
    assert records(caplog, "lease_lost") == [
        {"event": "lease_lost", "topic": "orders", "group": "reports", "subscriber": "w", "partitions": 1}
    ]
