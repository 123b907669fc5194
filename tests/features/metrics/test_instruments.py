"""The measurements of a process: OpenTelemetry's meter and the files of workers get the same ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from opentelemetry import metrics as telemetry
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from django_mqueue import OutgoingMessage, Reject, Subscription, instruments, publish, publish_many
from django_mqueue.metrics import workers
from django_mqueue.metrics.workers import OTHER, WorkerCounts
from tests.support.running import registered, run
from tests.support.subscribers import poll_until
from tests.support.transactions import rolled_back

from .scraping import Samples, parsed

pytestmark = pytest.mark.django_db(transaction=True)
REPORTS = {"topic": "orders", "group": "reports"}


class Meter:
    """The measurements that OpenTelemetry has received."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def points(self, name: str) -> dict[frozenset[tuple[str, Any]], Any]:
        """Return the data points of an instrument by their attributes."""
        found: dict[frozenset[tuple[str, Any]], Any] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        found |= {
                            frozenset((point.attributes or {}).items()): point
                            for point in metric.data.data_points
                        }
        return found

    def one(self, name: str) -> tuple[dict[str, Any], Any]:
        ((attributes, point),) = self.points(name).items()
        return dict(attributes), point


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(telemetry._internal, "_METER_PROVIDER", provider)
    instruments._meter.cache_clear()
    yield Meter(reader)
    instruments._meter.cache_clear()
    provider.shutdown()


@pytest.fixture
def counts(tmp_path: Path) -> Iterator[WorkerCounts]:
    found = WorkerCounts(tmp_path, "w")
    with instruments.sending_to(found):
        yield found
    found.close()


def read(directory: Path) -> Samples:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(directory))
    return parsed(generate_latest(registry).decode())


def handle(message: Any) -> None:
    if message.payload == "bad":
        raise Reject("never")
    if message.attempt == 1 and message.payload == "later":
        raise ValueError("not yet")


def test_the_meter_and_prometheus_get_the_same_measurements(
    meter: Meter, counts: WorkerCounts, tmp_path: Path
) -> None:
    publish_many("orders", ["good", "bad", "later"])
    with registered("orders", handle, group="reports", retry=[0]):
        run()
    found = read(tmp_path)
    names = {
        instruments.DELIVERED: 4, instruments.FINISHED: 2, instruments.FAILED: 2, instruments.RETRIED: 1,
        instruments.DEAD_LETTERED: 1,
    }  # fmt: skip
    for instrument, number in names.items():
        attributes, point = meter.one(instrument.telemetry)
        assert (point.value, found(instrument.name, **REPORTS)) == (number, number), instrument.name
        assert attributes["messaging.destination.name"] == "orders"
        assert attributes["messaging.consumer.group.name"] == "reports"
        assert attributes["messaging.system"] == "django_mqueue"
    attributes, point = meter.one("messaging.client.sent.messages")
    assert (point.value, attributes["messaging.operation.name"]) == (3, "publish")
    assert found("mqueue_messages_published_total", topic="orders") == 3
    calls = meter.points("messaging.process.duration")
    assert {dict(attributes).get("error.type"): point.count for attributes, point in calls.items()} == {
        None: 2, "ValueError": 1, "django_mqueue.exceptions.Reject": 1,
    }  # fmt: skip
    assert found("mqueue_handler_seconds_count", **REPORTS) == 4
    assert meter.one("messaging.client.operation.duration")[1].count == found("mqueue_poll_seconds_count")


def test_only_committed_messages_are_counted_and_no_duplicates(counts: WorkerCounts, tmp_path: Path) -> None:
    publish("orders", 1, id="one")
    publish("orders", 1, id="one")
    with rolled_back():
        publish("orders", 2)
    with transaction.atomic():
        publish_many("orders", [OutgoingMessage(3), OutgoingMessage(4, id="one")])
        assert read(tmp_path)("mqueue_messages_published_total") == 1
    assert read(tmp_path)("mqueue_messages_published_total", topic="orders") == 2


def test_a_subscription_is_counted(counts: WorkerCounts, tmp_path: Path) -> None:
    publish_many("orders", [1, 2, 3])
    with Subscription("orders", "reports") as subscription:
        first, second, third = poll_until(subscription, 3)
        first.ack()
        second.postpone(5)
        third.nack(delay=5, error="no")
    found = read(tmp_path)
    for name in ("messages_finished", "messages_postponed", "messages_retried", "attempts_failed"):
        assert found(f"mqueue_{name}_total", **REPORTS) == 1, name
    assert found("mqueue_messages_delivered_total", **REPORTS) == 3
    assert found("mqueue_leases_lost_total", reason="stopped", **REPORTS) == found(
        "mqueue_leases_won_total", **REPORTS
    )


def test_messages_that_a_filter_skips_are_not_finished(counts: WorkerCounts, tmp_path: Path) -> None:
    publish_many("orders", [{"kind": "a"}, {"kind": "b"}])
    with registered("orders", lambda message: None, group="reports", filter={"payload__kind": "a"}):
        run()
    found = read(tmp_path)
    assert found("mqueue_messages_finished_total", **REPORTS) == 1
    assert found("mqueue_messages_skipped_total", **REPORTS) == 1
    assert found("mqueue_handler_seconds_count", **REPORTS) == 1


def test_each_counter_of_a_handler_begins_with_zero(tmp_path: Path) -> None:
    """Prometheus sees no increase in the first value of a series, so the first lost lease would raise no alarm."""
    WorkerCounts(tmp_path, "w", [("orders", "reports")]).close()
    found = read(tmp_path)
    for instrument in set(instruments.INSTRUMENTS) - {instruments.PUBLISHED}:
        labels = REPORTS if "group" in instrument.labels else {}
        name = f"{instrument.name}_count" if instrument.buckets else instrument.name
        assert found(name, **labels) == 0, name
    for instrument in (instruments.LEASES_LOST, instruments.TRANSACTIONS_RETRIED):
        assert found.values_of(instrument.name, "reason") == set(instrument.reasons)


def test_too_many_pairs_of_topic_and_group_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that continues the files of another one has the same bound."""
    monkeypatch.setattr(workers, "GROUPS_MAX", 3)
    for _ in range(2):
        counts = WorkerCounts(tmp_path, "w", [("orders-0", "g")])
        for n in range(6):
            counts.record(instruments.FINISHED, 1, (f"orders-{n}", "g"), "")
        counts.close()
    found = read(tmp_path)
    assert found.values_of("mqueue_messages_finished_total", "topic") == {
        "orders-0", "orders-1", "orders-2", OTHER,
    }  # fmt: skip
    assert found("mqueue_messages_finished_total", topic=OTHER, group=OTHER) == 6
    assert found("mqueue_messages_finished_total") == 12
    assert found("mqueue_other_measurements_total") == 6


def test_workers_are_added_up_and_a_successor_continues(tmp_path: Path) -> None:
    for worker in ("a", "b", "a"):
        counts = WorkerCounts(tmp_path, worker, [("orders", "reports")])
        counts.record(instruments.FINISHED, 2, ("orders", "reports"), "")
        counts.record(instruments.HANDLER_SECONDS, 0.3, ("orders", "reports"), "")
        counts.close()
    found = read(tmp_path)
    assert found("mqueue_messages_finished_total", **REPORTS) == 6
    assert found("mqueue_handler_seconds_count", **REPORTS) == 3
    assert found("mqueue_handler_seconds_sum", **REPORTS) == pytest.approx(0.9)
    assert found("mqueue_handler_seconds_bucket", le="0.25", **REPORTS) == 0
    assert found("mqueue_handler_seconds_bucket", le="0.5", **REPORTS) == 3
    assert len(list(tmp_path.glob("*.db"))) == 4


def test_a_process_that_a_handler_forks_writes_to_no_file_of_its_worker(tmp_path: Path) -> None:
    """Two processes would overwrite each other's counters. The test forks in a process without other threads."""
    program = """
    import os, sys
    from pathlib import Path
    import django
    from django.conf import settings
    settings.configure(INSTALLED_APPS=["django_mqueue"], DEFAULT_AUTO_FIELD="django.db.models.AutoField")
    django.setup()
    from django_mqueue import instruments
    from django_mqueue.metrics.workers import WorkerCounts

    counts = WorkerCounts(Path(sys.argv[1]), "w")
    with instruments.sending_to(counts):
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.read(reader, 1)
            instruments.record(instruments.PUBLISHED, 1, "topic of the forked process")
            os._exit(0)
        instruments.record(instruments.PUBLISHED, 3, "orders")
        os.write(writer, b".")
        assert os.waitpid(child, 0)[1] == 0
    counts.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=True, timeout=60)
    assert read(tmp_path).values_of("mqueue_messages_published_total", "topic") == {"orders"}


def test_a_receiver_that_raises_breaks_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def record(self, *args: object) -> None:
            raise RuntimeError("broken")

    instruments._complained.discard(Broken)
    with instruments.sending_to(Broken()):
        publish("orders", 1)
        publish("orders", 2)
    assert [record.getMessage() for record in caplog.records] == [
        "a measurement could not be recorded; this is not logged again"
    ]


def test_where_the_packages_are_not_installed_the_queue_works_and_the_error_names_the_extra() -> None:
    """The test runs a separate process, where the imports fail."""
    program = """
    import sys
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("opentelemetry", "prometheus_client"):
                raise ModuleNotFoundError(name, name=name.partition(".")[0])
    sys.meta_path.insert(0, Missing())
    import django
    from django.conf import settings
    settings.configure(INSTALLED_APPS=["django_mqueue"], DEFAULT_AUTO_FIELD="django.db.models.AutoField")
    django.setup()
    from django_mqueue import instruments, metrics, tracing
    assert not instruments.is_recording()
    instruments.record(instruments.FINISHED, 1, "orders", "reports")
    tracing.flush()
    for name in ("view", "DatabaseCollector"):
        try:
            getattr(metrics, name)
        except ImportError as error:
            assert "django-mqueue[prometheus]" in str(error), error
        else:
            raise AssertionError(name)
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(program)], check=True, timeout=60)
