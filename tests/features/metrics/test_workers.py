"""``runconsumer --metrics-port``: the counters of real worker processes agree with what happened."""

from __future__ import annotations

import http.client
import os
import signal
import urllib.error
from typing import Any

import pytest

from django_mqueue import publish, subscribe
from django_mqueue.models import Message
from tests.features.processes.children import children
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import done

from .scraping import Samples, scraped, url_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]
BILLING = {"topic": "orders", "group": "billing"}


def test_the_counters_agree_with_what_happened() -> None:
    """Three messages succeed, one at its second attempt. One is rejected, and one is postponed first."""
    payloads: list[dict[str, Any]] = [
        {"n": 1}, {"n": 2}, {"n": 3, "do": "fail", "times": 1}, {"n": 4, "do": "reject"},
        {"n": 5, "do": "postpone", "times": 1, "delay": 0.05},
    ]  # fmt: skip
    subscribe("orders", "billing")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--metrics-port", "0", "--metrics-address", "127.0.0.1")
        before = scraped(url_of(worker))
        assert before("mqueue_messages_finished_total", **BILLING) == 0, "a counter begins with 0"
        for payload in payloads:
            publish("orders", payload, key=f"k{payload['n']}")
        wait_until(lambda: done() == 5, "all are done")

        def complete() -> Samples | None:
            """Return a scrape that has counted everything. The figures of the database may be some seconds old."""
            now = scraped(url_of(worker))
            names = ("messages_finished_total", "messages_dead_lettered_total", "dead_letters")
            return now if [now(f"mqueue_{name}", **BILLING) for name in names] == [4, 1, 1] else None

        found = wait_until(complete, "all is counted", every=0.2)
        assert worker.stop() == 0
    expected = {
        "mqueue_messages_delivered_total": 7,
        "mqueue_messages_finished_total": 4,
        "mqueue_messages_skipped_total": 0,
        "mqueue_attempts_failed_total": 2,
        "mqueue_messages_retried_total": 1,
        "mqueue_messages_postponed_total": 1,
        "mqueue_messages_dead_lettered_total": 1,
        "mqueue_leases_won_total": 5,
    }
    assert {name: found(name, **BILLING) for name in expected} == expected
    assert found("mqueue_handler_seconds_bucket", le="+Inf", **BILLING) == 7
    assert found("mqueue_handler_seconds_sum", **BILLING) > 0
    assert found("mqueue_poll_seconds_count") > 0
    assert found("mqueue_database_errors_total") == 0
    assert found("process_resident_memory_bytes") > 0, "metrics of the process, and of the project"
    assert found("mqueue_dead_letters", **BILLING) == 1
    assert found("mqueue_workers", **BILLING) == 1
    assert found("mqueue_database_up") == 1


def test_the_database_metrics_can_be_left_out() -> None:
    with Workers() as workers:
        worker = workers.start("orders:billing", "--metrics-port", "0", "--no-database-metrics")
        found = scraped(url_of(worker))
        assert "mqueue_database_up" not in found.names
        assert "mqueue_messages_finished_total" in found.names
        assert worker.stop() == 0


def test_one_port_serves_all_children_and_the_counters_survive_a_replacement() -> None:
    """Four processes share the work. One is killed and replaced: no counter goes back, and new work counts on."""
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "4", "--threads", "1", "--metrics-port", "0")
        url = url_of(worker)
        for n in range(40):
            publish("orders", {"n": n}, key=f"k{n}")
        wait_until(lambda: done() == 40, "all are done")
        wait_until(lambda: scraped(url)("mqueue_messages_finished_total", **BILLING) == 40, "all count")
        dead = sorted(children(worker))[0]
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: children(worker) and dead not in children(worker), "it is replaced")
        assert scraped(url)("mqueue_messages_finished_total", **BILLING) == 40
        wait_until(lambda: len(children(worker)) == 4, "four run again")
        for n in range(40, 80):
            publish("orders", {"n": n}, key=f"k{n}")
        wait_until(lambda: done() == 80, "the others are done")
        wait_until(lambda: scraped(url)("mqueue_messages_finished_total", **BILLING) == 80, "they count, too")
        old = children(worker)
        for child in old:
            os.kill(child, signal.SIGTERM)
        wait_until(lambda: len(new := children(worker)) == len(old) and not new & old, "all are replaced")

        def counts_all() -> bool:
            try:
                return scraped(url)("mqueue_messages_finished_total", **BILLING) == 80
            except (OSError, http.client.HTTPException):
                return False  # The new children do not listen yet.

        wait_until(counts_all, "they still count")
        assert worker.stop() == 0
    assert len(set(Step.objects.values_list("pid", flat=True))) > 1


def test_a_worker_answers_while_its_handlers_run_and_while_the_server_is_away() -> None:
    publish("orders", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    subscribe("orders", "billing")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--threads", "1", "--metrics-port", "0")
        url = url_of(worker)
        wait_until(lambda: "at door exit" in worker.output(), "the handler waits")
        found = scraped(url)
        assert found("mqueue_messages_delivered_total", **BILLING) == 1
        assert found("mqueue_messages_finished_total", **BILLING) == 0
        assert found("mqueue_lag_messages", status="in_flight", **BILLING) == 1
        Door.objects.create(name="exit")
        wait_until(lambda: done() == 1, "it is done")
        assert worker.stop() == 0
    with pytest.raises(urllib.error.URLError):
        scraped(url)


def test_a_message_that_kills_its_worker_is_counted_as_dead_lettered() -> None:
    publish("orders", {"n": 1, "do": "die"}, key="bad")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--processes", "1", "--max-messages-per-child", "100",
                               "--threads", "1", "--metrics-port", "0")  # fmt: skip
        wait_until(lambda: Message.objects.filter(topic="orders_dlq").exists(), "it is given up")
        wait_until(lambda: children(worker), "a child runs")
        url = url_of(worker)
        wait_until(
            lambda: scraped(url)("mqueue_messages_dead_lettered_total", **BILLING) == 1, "it is counted"
        )
        wait_until(lambda: "message dead-lettered: group billing" in worker.output(), "it is logged")
        assert scraped(url)("mqueue_messages_delivered_total", **BILLING) >= 3
        assert worker.output().count("message dead-lettered: group billing, topic orders") == 1
        assert worker.stop() == 0


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with Workers() as workers:
        first = workers.start("orders:billing", "--metrics-port", "0", "--metrics-address", "127.0.0.1")
        number = url_of(first).split(":")[2].removesuffix("/metrics")
        second = workers.start("orders:audit", "--metrics-port", number, "--metrics-address", "127.0.0.1")
        assert second.wait() == 1
        assert f"--metrics-port {number} of address 127.0.0.1 cannot be opened" in second.output()
        assert "Traceback" not in second.output()
        assert first.stop() == 0
