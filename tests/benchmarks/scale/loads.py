"""Drains with a long history or a stuck head, one large partition and 999 small ones, and the memory of a worker."""

from __future__ import annotations

import json
import statistics
import time

from django.db import connection

from django_mqueue import Subscription, publish, reset
from tests.benchmarks.speed.counters import memory_of
from tests.benchmarks.speed.figures import Figures, percentiles
from tests.benchmarks.speed.measuring import Bench
from tests.benchmarks.speed.scenarios import DRAINS, payload
from tests.benchmarks.speed.worker import GROUP, Spec
from tests.support.many import NUMBERS

HISTORY, STUCK, LARGE = 10_000_000, 1_000_000, 1_000_000
SMALL = 999
ROWS = 100_000
"""Rows of history in one INSERT."""
BATCHES = {"batch": True, "batch_size": 200}


def history(bench: Bench) -> Figures:
    """Drain a topic with a long history that the group skips, and compare with an empty log."""
    count = int(HISTORY * bench.size)
    empty = _drained(bench, bench.filled(0, 1))
    bench.clear()
    topic = bench.filled(0, 1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        (now,) = cursor.fetchone()
        for base in range(0, count, ROWS):
            cursor.execute(
                "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata,"
                " available_at, created_at, published_at) SELECT %s, CONCAT('k', n MOD 1000), CONCAT(%s, '-', n), '',"
                f' %s, \'{{"kind": "", "headers": {{}}, "encoding": "json"}}\', %s, %s, %s FROM {NUMBERS}'
                " WHERE n < %s ORDER BY n",
                [topic, base, json.dumps(payload(0)), now, now, now, min(ROWS, count - base)],
            )
        cursor.execute("ANALYZE TABLE queue_messages")
        cursor.fetchall()
    reset(topic, GROUP, "latest")
    long = _drained(bench, topic)
    bench.clear()
    return _of_empty(long, empty) | {"rows of history": count}


def stuck_head(bench: Bench) -> Figures:
    """Drain a topic in which one partition has a postponed first message, and many acknowledged ones behind it."""
    count = int(STUCK * bench.size)
    empty = _drained(bench, bench.filled(0, 1))
    bench.clear()
    topic = bench.filled(count, 1)
    done = 0
    with Subscription(topic, GROUP, batch_size=1000) as subscription:
        while done < count:
            deliveries = subscription.poll(1000)
            if not done and deliveries:
                deliveries.pop(0).postpone(3500)  # A longer delay would move the message out of the log.
                done = 1
            if deliveries:
                subscription.ack(deliveries)
                done += len(deliveries)
    stuck = _drained(bench, topic)
    bench.clear()
    return _of_empty(stuck, empty) | {"acknowledged messages behind the head": count}


def uneven(bench: Bench) -> Figures:
    """Measure the latency of small partitions while a worker drains a large one."""
    count = int(LARGE * bench.size)
    topic = bench.filled(count, 1, first=-count)
    process = bench.started(Spec(topic, bench.server, times=True))
    bench.wait_until_handled(topic, 1)
    sent = {}
    for number in range(SMALL):
        publish(topic, payload(number), key=f"small-{number}")
        sent[number] = time.time()
        time.sleep(0.01)
    deadline = time.monotonic() + 60
    while bench.handled(topic).filter(partition_key__startswith="small-").count() < SMALL:
        assert time.monotonic() < deadline, "the small partitions were not served within 60 s"
        time.sleep(0.2)
    left = count - bench.handled(topic).filter(partition_key="k0").count()
    times = dict(bench.stopped(process)["times"])
    bench.clear()
    waits = [max(times[number] - at, 0) * 1000 for number, at in sent.items()]
    return {
        "messages of the large partition": count,
        "of them open at the end": left,
        **percentiles(waits),
        "longest ms": max(waits),
    }


def memory(bench: Bench) -> Figures:
    """Compare a worker's memory after a tenth of its messages with its memory at the end."""
    count = int(LARGE * bench.size)
    topic = bench.filled(count, 100)
    process = bench.started(Spec(topic, bench.server, seconds=3600, options=BATCHES))
    bench.wait_until_handled(topic, count // 10)
    early = memory_of(process.pid)
    bench.wait_until_handled(topic, count, within=3600)
    late = memory_of(process.pid)
    bench.stopped(process)
    bench.clear()
    return {"messages": count, "MiB after a tenth": early, "MiB at the end": late, "MiB grown": late - early}


def takeover(bench: Bench) -> Figures:
    """Kill the only worker while it drains, and start another. Measure the seconds until it handles messages.

    The first 500 messages include all messages that were in flight at the kill. The worker runs each of these alone.
    """
    count = DRAINS[0].count  # With fewer, the first worker would be done before the kill.
    topic = bench.filled(count, DRAINS[0].keys)
    first = bench.started(Spec(topic, bench.server))
    bench.wait_until_handled(topic, count // 50)
    first.kill()
    killed = time.time()
    assert bench.handled(topic).count() < count, "the first worker was done before the kill"
    second = bench.started(Spec(topic, bench.server, times=True))
    bench.wait_until_handled(topic, count)
    times = sorted(at for _, at in bench.stopped(second)["times"])
    bench.abandon()
    return {
        "seconds until handled again": times[0] - killed,
        "seconds until 500 are handled": times[min(500, len(times)) - 1] - killed,
        "messages after the kill": len(times),
    }


def _drained(bench: Bench, topic: str) -> float:
    """Publish and drain the usual messages three times. Return the median of the messages per second."""
    usual, rates = DRAINS[0], []
    count = bench.sized(usual.count)
    for _ in range(3):
        bench.fill(topic, count, usual.keys)
        found = bench.work(Spec(topic, bench.server, usual.threads, count))
        assert found["handled"] == count, f"handled {found['handled']} of {count}"
        rates.append(count / float(found["seconds"]))
    return statistics.median(rates)


def _of_empty(rate: float, empty: float) -> Figures:
    return {"messages per second": rate, "on an empty log": empty, "of an empty log": rate / empty}
