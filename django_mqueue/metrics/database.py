"""The collector of metrics from the database. All are gauges."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

from django.db import Error
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from .. import conf
from ..exceptions import MQueueError
from ..stats.results import AT_LEAST
from .snapshot import Snapshot, snapshot

logger = logging.getLogger("django_mqueue")

MAX_AGE = 10.0
"""Seconds for which the figures stay in Django's cache."""
WAIT = 5.0
"""Seconds for which a scrape waits for another scrape that reads the database. Prometheus waits 10 seconds. If the
database hangs, only the first scrape of a process hangs; later ones get ``mqueue_database_up`` 0 and the others."""


class DatabaseCollector(Collector):
    """Reads the figures of the queue at each scrape. ``using``: the alias of the database.

    ``max_age``: how old the figures may be, in seconds. They are in Django's cache for this time.
    """

    def __init__(self, using: str | None = None, max_age: float = MAX_AGE) -> None:
        self.using, self.max_age = using, max_age
        self._lock = threading.Lock()
        self._is_down = False

    def describe(self) -> Iterable[Metric]:
        """Return no names, so that registering the collector does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. If the database does not answer, yield only ``mqueue_database_up``."""
        found = self._snapshot()
        up = GaugeMetricFamily("mqueue_database_up", "1 if the queue's database answers, else 0.")
        up.add_metric([], found is not None)
        yield up
        if found is not None:
            yield from _of_topics(found)
            yield from _of_groups(found)

    def _snapshot(self) -> Snapshot | None:
        if not self._lock.acquire(timeout=WAIT):
            return None
        try:
            found = snapshot(conf.database(self.using), self.max_age)
        except (Error, MQueueError) as error:
            if not self._is_down:
                logger.warning("metrics: the database could not be read: %s", error)
            self._is_down = True
            return None
        finally:
            self._lock.release()
        self._is_down = False
        return found


def _gauge(name: str, help: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, labels=labels)


def _of_topics(found: Snapshot) -> Iterator[Metric]:
    kept = _gauge("mqueue_kept_messages", "Messages in the log, done or not, counted up to a limit.", "topic")
    scheduled = _gauge(
        "mqueue_scheduled_messages", "Messages that are not due yet, counted up to a limit.", "topic"
    )
    groups = _gauge("mqueue_topic_groups", "Registered groups of the topic.", "topic")
    settled = _gauge("mqueue_settled_lag_seconds", "Age of the oldest message that is not settled.", "topic")
    overdue = _gauge(
        "mqueue_deletion_overdue_seconds", "Time past retention of the topic's oldest message.", "topic"
    )
    for one in found.topics:
        topic = [one.topic]
        kept.add_metric(topic, one.kept.value)
        scheduled.add_metric(topic, one.scheduled.value)
        groups.add_metric(topic, found.groups_of[one.topic])
        overdue.add_metric(topic, found.overdue[one.topic].total_seconds())
    for name, lag in found.settled_lag.items():
        settled.add_metric([name], lag.total_seconds())
    blocked = _gauge(
        "mqueue_deletion_blocked_seconds",
        "Time past retention of the oldest message that a group, or a reason without a group, keeps.",
        "topic", "group", "reason",
    )  # fmt: skip
    for hold in found.blockers:
        blocked.add_metric([hold.topic, hold.group or "", hold.reason], hold.overdue.total_seconds())
    left_out = _gauge("mqueue_topics_left_out", "Topics without metrics, because there are too many.")
    left_out.add_metric([], found.topics_left_out)
    yield from (kept, scheduled, groups, settled, overdue, blocked, left_out)


def _of_groups(found: Snapshot) -> Iterator[Metric]:
    of_group = ("topic", "group")
    lag = _gauge(
        "mqueue_lag_messages",
        "Messages that the group is not done with, by status, counted up to a limit.",
        *of_group, "status",
    )  # fmt: skip
    capped = _gauge("mqueue_lag_is_capped", "1 if the group may have more messages than counted.", *of_group)
    age = _gauge("mqueue_oldest_message_age_seconds", "Age of the group's oldest open message.", *of_group)
    dead = _gauge("mqueue_dead_letters", "Dead letters of the group, counted up to a limit.", *of_group)
    workers = _gauge(
        "mqueue_workers",
        "Live subscribers of the group; absent while a group that reads the log has none.",
        *of_group,
    )
    paused = _gauge("mqueue_group_paused", "1 if the group is paused or is being reset, else 0.", *of_group)
    for one in found.groups:
        labels = [one.topic, one.group]
        open_messages = {"pending": one.pending, "in_flight": one.in_flight, "waiting": one.waiting}
        for status, figure in open_messages.items():
            lag.add_metric([*labels, status], figure.value)
        capped.add_metric(labels, any(figure.how == AT_LEAST for figure in open_messages.values()))
        age.add_metric(labels, one.oldest_age.total_seconds() if one.oldest_age else 0)
        dead.add_metric(labels, one.dead.value)
        if one.workers or not one.reads_log:
            workers.add_metric(labels, one.workers)
        paused.add_metric(labels, one.paused or one.removing)
    left_out = _gauge(
        "mqueue_groups_left_out", "Pairs of topic and group without metrics, because there are too many."
    )
    left_out.add_metric([], found.groups_left_out)
    yield from (lag, capped, age, dead, workers, paused, left_out)
