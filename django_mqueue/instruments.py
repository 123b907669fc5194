"""Measurements of this process: counted messages, and durations.

The queue's code calls ``record``. If the package ``opentelemetry-api`` is installed, each measurement goes to a meter
of OpenTelemetry. The names are those of https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/,
version 1.43, where it defines one. ``runconsumer --metrics-port`` adds a receiver for Prometheus (``sending_to``).

Labels are topics, groups and fixed words. Keys, partitions and ids would make too many time series. Exceptions of a
receiver are logged once and not raised.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

logger = logging.getLogger("django_mqueue")


@dataclass(frozen=True, eq=False)
class Instrument:
    """A counter; with ``buckets``, a histogram of seconds.

    ``name``: for Prometheus. ``telemetry``: for OpenTelemetry. ``labels``: the names of the labels for Prometheus.
    ``operation``: the attribute ``messaging.operation.name`` of OpenTelemetry. ``reasons``: the values of the label
    ``reason``.
    """

    name: str
    telemetry: str
    help: str
    labels: tuple[str, ...] = ("topic", "group")
    unit: str = "{message}"
    buckets: tuple[float, ...] = ()
    operation: str = ""
    reasons: tuple[str, ...] = ()


PUBLISHED = Instrument(
    "mqueue_messages_published_total",
    "messaging.client.sent.messages",
    "Messages that this process stored, without duplicates.",
    ("topic",),
    operation="publish",
)
DELIVERED = Instrument(
    "mqueue_messages_delivered_total",
    "messaging.client.consumed.messages",
    "Deliveries to handlers, also of messages that a filter skips. A redelivery counts again.",
    operation="process",
)
FINISHED = Instrument(
    "mqueue_messages_finished_total",
    "messaging.django_mqueue.messages.finished",
    "Messages that a handler has finished.",
)
SKIPPED = Instrument(
    "mqueue_messages_skipped_total",
    "messaging.django_mqueue.messages.skipped",
    "Messages that the filter of a handler did not match.",
)
FAILED = Instrument(
    "mqueue_attempts_failed_total",
    "messaging.django_mqueue.attempts.failed",
    "Attempts that failed.",
    unit="{attempt}",
)
RETRIED = Instrument(
    "mqueue_messages_retried_total",
    "messaging.django_mqueue.messages.retried",
    "Messages that will be delivered again after a failed attempt.",
)
POSTPONED = Instrument(
    "mqueue_messages_postponed_total",
    "messaging.django_mqueue.messages.postponed",
    "Messages that will be delivered again without a failed attempt.",
)
DEAD_LETTERED = Instrument(
    "mqueue_messages_dead_lettered_total",
    "messaging.django_mqueue.messages.dead_lettered",
    "Messages that a group has dead-lettered.",
)
LEASES_WON = Instrument(
    "mqueue_leases_won_total",
    "messaging.django_mqueue.leases.won",
    "Partitions that a worker of this process started to work on.",
    unit="{lease}",
)
LEASES_LOST = Instrument(
    "mqueue_leases_lost_total",
    "messaging.django_mqueue.leases.lost",
    "Partitions that a worker of this process no longer works on, by reason: shared, drained, stopped or lost.",
    ("topic", "group", "reason"),
    unit="{lease}",
    reasons=("shared", "drained", "stopped", "lost"),
)
HANDLER_SECONDS = Instrument(
    "mqueue_handler_seconds",
    "messaging.process.duration",
    "Duration of handler calls. A call is one message, or one batch.",
    unit="s",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
    operation="process",
)
POLL_SECONDS = Instrument(
    "mqueue_poll_seconds",
    "messaging.client.operation.duration",
    "Duration of a worker's reads of new messages, for all its topics.",
    (),
    unit="s",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    operation="poll",
)
TRANSACTIONS_RETRIED = Instrument(
    "mqueue_transactions_retried_total",
    "messaging.django_mqueue.transactions.retried",
    "Transactions that the server ended and the queue repeated, by reason: deadlock, lock_wait or changed.",
    ("reason",),
    unit="{transaction}",
    reasons=("deadlock", "lock_wait", "changed"),
)
DATABASE_ERRORS = Instrument(
    "mqueue_database_errors_total",
    "messaging.django_mqueue.database.errors",
    "Database errors after which the loop of a worker waited and tried again.",
    (),
    unit="{error}",
)
INSTRUMENTS = [value for value in list(vars().values()) if isinstance(value, Instrument)]

ATTRIBUTES = {
    "topic": "messaging.destination.name",
    "group": "messaging.consumer.group.name",
    "reason": "messaging.django_mqueue.reason",
}
"""The attributes of OpenTelemetry, by label."""


class Receiver(Protocol):
    """Receives measurements, from all threads. ``error``: the name of the exception with which a handler ended."""

    def record(self, instrument: Instrument, value: float, labels: tuple[str, ...], error: str) -> None: ...


_receivers: list[Receiver] = []
_complained: set[type] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_receivers.clear)  # Two processes must not write to the same file.


def record(instrument: Instrument, value: float, *labels: str, error: str = "") -> None:
    """Pass a measurement to all receivers. ``labels``: the values of ``instrument.labels``."""
    meter = _meter()
    for receiver in (*_receivers, meter) if meter else _receivers:
        try:
            receiver.record(instrument, value, labels, error)
        except Exception:
            if type(receiver) not in _complained:
                _complained.add(type(receiver))
                logger.exception("a measurement could not be recorded; this is not logged again")


def is_recording() -> bool:
    """Return whether there is a receiver."""
    return bool(_receivers) or _meter() is not None


@contextmanager
def sending_to(receiver: Receiver) -> Iterator[None]:
    """Send the measurements of all threads to a receiver in this block."""
    _receivers.append(receiver)
    try:
        yield
    finally:
        if receiver in _receivers:  # Not in a process that was forked in this block.
            _receivers.remove(receiver)


@functools.cache
def _meter() -> _Meter | None:
    """Return the receiver for OpenTelemetry; None if it is not installed."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    try:
        return _Meter(metrics.get_meter("django_mqueue", import_module("django_mqueue").__version__))
    except Exception:
        logger.exception("OpenTelemetry is installed, but its meter cannot be used")
        return None


class _Meter:
    """Records measurements with a meter of OpenTelemetry."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._made: dict[Instrument, Any] = {}

    def record(self, instrument: Instrument, value: float, labels: tuple[str, ...], error: str) -> None:
        attributes = {"messaging.system": "django_mqueue"}
        for name, label in zip(instrument.labels, labels, strict=True):
            attributes[ATTRIBUTES[name]] = label
        if instrument.operation:
            attributes["messaging.operation.name"] = instrument.operation
        if error:
            attributes["error.type"] = error
        made = self._made.get(instrument)
        if made is None:
            made = self._made[instrument] = self._make(instrument)
        made(value, attributes)

    def _make(self, instrument: Instrument) -> Any:
        """Create an instrument, and return its method that records a value."""
        about = {"name": instrument.telemetry, "unit": instrument.unit, "description": instrument.help}
        if instrument.buckets:
            bounds = list(instrument.buckets)
            return self._meter.create_histogram(**about, explicit_bucket_boundaries_advisory=bounds).record
        return self._meter.create_counter(**about).add
