"""Many subscribers share many partitions of one group, and a quarter of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from django.db.models import Count

from django_mqueue import conf
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from example_project.environment.lineage import die_with_parent
from tests.benchmarks.speed.figures import Figures
from tests.benchmarks.speed.measuring import Bench
from tests.benchmarks.speed.worker import GROUP

SUBSCRIBERS, PARTITIONS, PROCESSES = 200, 5_000, 20
WAIT = 300.0
"""Seconds in which the group must be balanced."""


def balance(bench: Bench) -> Figures:
    """Measure the seconds until the shares are equal, and after the kill, until each partition has an owner again.

    The first time starts when the last subscriber has joined. The second starts at the kill.
    """
    partitions, each = int(PARTITIONS * bench.size), max(int(SUBSCRIBERS * bench.size) // PROCESSES, 1)
    topic = bench.filled(partitions, partitions)
    processes = [_started(bench.url, topic, f"process-{n:02}", each) for n in range(PROCESSES)]
    dying = PROCESSES // 4
    try:
        _wait("all have joined", lambda: _joined(topic) == each * PROCESSES, topic)
        joined = time.monotonic()
        _wait("balanced", lambda: _is_balanced(_owners(topic), partitions, each * PROCESSES), topic)
        balanced = time.monotonic() - joined
        for process in processes[:dying]:
            process.kill()
        killed = time.monotonic()
        _wait("owned again", lambda: _is_owned(_owners(topic), partitions, f"process-{dying:02}"), topic)
        owned = time.monotonic() - killed
    finally:
        for process in processes:
            process.kill()
            process.wait()
        bench.clear()
    return {
        "subscribers": each * PROCESSES,
        "partitions": partitions,
        "seconds until balanced": balanced,
        "renewals until balanced": balanced / float(conf.get("LEASE_RENEWAL_INTERVAL")),
        "seconds until owned again": owned,
        "seconds after the lease until owned again": owned - float(conf.get("LEASE_DURATION")),
    }


def _started(url: str, topic: str, name: str, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.scale.subscribers", topic, GROUP, name, str(number)],
        env={**os.environ, "DATABASE_URL": url},
        preexec_fn=die_with_parent(signal.SIGKILL),
    )


def _wait(what: str, done: Callable[[], bool], topic: str) -> None:
    deadline = time.monotonic() + WAIT
    while not done():
        if time.monotonic() > deadline:
            shares = _owners(topic).values()
            raise AssertionError(
                f"not {what} within {WAIT:g} s: {_joined(topic)} have joined, {len(shares)} of them own"
                f" {sum(shares)} partitions, {min(shares, default=0)} to {max(shares, default=0)} each"
            )
        time.sleep(0.2)


def _joined(topic: str) -> int:
    return SubscriberHeartbeat.objects.filter(
        consumer_group=GROUP, topic=topic, deregistered_at__isnull=True
    ).count()


def _owners(topic: str) -> dict[str, int]:
    """Return the number of leased partitions of each subscriber."""
    leases = PartitionLease.objects.filter(consumer_group=GROUP, topic=topic).exclude(leased_by="")
    return dict(leases.values_list("leased_by").annotate(count=Count("pk")))


def _is_balanced(owners: dict[str, int], partitions: int, subscribers: int) -> bool:
    shares = owners.values()
    return len(shares) == subscribers and sum(shares) == partitions and max(shares) - min(shares) <= 1


def _is_owned(owners: dict[str, int], partitions: int, first: str) -> bool:
    """Return whether living subscribers own all partitions: their names are not below ``first``."""
    return sum(count for name, count in owners.items() if name >= first) == partitions
