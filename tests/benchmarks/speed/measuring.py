"""Measure one server: publish, drain, latency, idle statements. Each result maps a figure's name to its value."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.test import override_settings

from django_mqueue import OutgoingMessage, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState
from django_mqueue.protocol.waking.sockets import bit_of
from django_mqueue.protocol.waking.wakers import CHECK_EVERY
from example_project.environment.lineage import die_with_parent

from .counters import Meter, cpu_of
from .figures import Figures, per_message, percentiles
from .floors import Floor
from .scenarios import FLOORS, IDLE, RATES, Drain, payload, shortened
from .worker import GROUP, Spec

LEAST = 500
"""The smallest number of messages of a scenario, however small ``size`` is."""
WAIT = 120.0
"""Seconds in which a worker must handle the first messages."""


class Bench:
    """One server and its topics.

    ``server``: its process id. ``size``: the part of the usual number of messages.
    """

    def __init__(self, url: str, server: int, size: float = 1.0) -> None:
        self.url, self.server, self.size = url, server, size
        self._floors: Figures = {}
        self._topics = 0
        self._processes: list[subprocess.Popen[str]] = []

    def floors(self) -> Figures:
        """Return the messages per second of each method of ``Floor``. ``drain`` compares with the newest figures."""
        with closing(Floor(self.url)) as floor:
            for name, (count, keys) in FLOORS.items():
                topic = self.filled(self.sized(count), keys)
                self._floors[name] = float(getattr(floor, name)(topic))
                self.clear()
        return dict(self._floors)

    def drain(self, drain: Drain) -> Figures:
        count = self.sized(drain.count)
        topic = self.filled(count, drain.keys)
        found = self.work(Spec(topic, self.server, drain.threads, count, options=dict(drain.options)))
        assert found["handled"] == count, f"handled {found['handled']} of {count}"
        self.clear()
        rate = count / found["seconds"]
        plain = self._floors.get(drain.floor)
        compared = {"of plain SQL": rate / plain, "plain SQL per second": plain} if plain else {}
        return {"messages per second": rate, **compared, **per_message(found, count)}

    def profile(self, drain: Drain) -> list[tuple[str, str, float]]:
        """Return what the worker's threads do during a drain: see ``Profile.stop``."""
        count = self.sized(drain.count)
        topic = self.filled(count, drain.keys)
        spec = Spec(topic, self.server, drain.threads, count, options=dict(drain.options), profile=True)
        found: list[tuple[str, str, float]] = self.work(spec)["profile"]
        self.clear()
        return found

    def latency(self, per_second: int, *, other_host: bool = False) -> Figures:
        """Measure the milliseconds from the return of each ``publish`` to the start of its handler.

        ``other_host``: the worker has no socket in common with the publisher, as on another host.
        """
        with tempfile.TemporaryDirectory() as apart:
            if other_host:
                # The publisher knows only after this time that a worker is on another host.
                return self._latency(per_second, {"TMPDIR": apart}, CHECK_EVERY + 1)
            return self._latency(per_second, {}, 1.0)

    def _latency(self, per_second: int, environment: Mapping[str, str], first_wait: float) -> Figures:
        topic = self.filled(1, 1, first=-1)
        process = self.started(Spec(topic, self.server, times=True), environment)
        self.wait_until_handled(topic, 1)
        time.sleep(first_wait)
        sent: dict[int, float] = {}
        begun = time.perf_counter()
        for number in range(int(per_second * shortened(RATES[per_second], self.size))):
            time.sleep(max(begun + number / per_second - time.perf_counter(), 0))
            publish(topic, payload(number), key=f"k{number % 100}")
            sent[number] = time.time()
        self.wait_until_handled(topic, len(sent) + 1)
        times = dict(self.stopped(process)["times"])
        self.clear()
        return percentiles([max(times[number] - at, 0) * 1000 for number, at in sent.items()])

    def idle(self, partitions: int) -> Figures:
        """Count the statements of an idle worker that has drained a topic with this many partitions."""
        topic = self.filled(partitions, partitions)
        process = self.started(Spec(topic, self.server))
        self.wait_until_handled(topic, partitions)
        time.sleep(shortened(IDLE, self.size))
        meter = Meter(self.url, partial(cpu_of, self.server), partial(cpu_of, process.pid))
        meter.start()
        time.sleep(shortened(IDLE, self.size))
        cost = meter.stop()
        self.stopped(process)
        self.clear()
        return {
            "statements per second": (cost["statements"] - 1) / cost["seconds"],
            **{f"{of} CPU percent": cost[f"{of}_cpu"] * 100 / cost["seconds"] for of in ("worker", "server")},
        }

    def processes(self) -> Figures:
        """Measure handlers that compute, in one and in two processes. With two free cores, two are twice as fast."""
        count, rates = self.sized(2_000), []
        for processes in (1, 2):
            topic = self.filled(count, 100)
            found = self._result(self._python("cores", topic, str(processes)))
            assert found["handled"] == count, f"handled {found['handled']} of {count}"
            self.clear()
            rates.append(count / found["seconds"])
        return {"messages per second": rates[0], "with two processes": rates[1], "ratio": rates[1] / rates[0]}

    def publishing(self, connections: int) -> Figures:
        """Measure ``publish`` with a transaction for each message, and the same INSERTs in plain SQL."""
        each = self.sized(2_000) // connections
        count = each * connections
        topic = self._new_topic()

        def ours() -> None:
            for number in range(each):
                publish(topic, payload(number), key="k")
            connection.close()

        cost = self._in_threads([ours] * connections)
        texts = [json.dumps(payload(number)) for number in range(each)]
        plain = {}
        for gate in (False, True):
            with ExitStack() as stack:
                floors = [stack.enter_context(closing(Floor(self.url))) for _ in range(connections)]
                works = [partial(floor.insert, self._new_topic(), texts, 1, gate=gate) for floor in floors]
                plain[gate] = count / self._in_threads(works)["seconds"]
        self.clear()
        return self._compared(count, cost, plain[False], plain[True])

    def waking(self) -> Figures:
        """Compare ``publish`` with wake-ups and without: the time if no process sleeps that consumes the topic.

        ``with one for each``: a process that consumes the topic sleeps again as soon as it was woken.
        """
        other = self.filled(1, 1)
        process = self.started(Spec(other, self.server))
        self.wait_until_handled(other, 1)
        while bit_of(topic := self._new_topic()) == bit_of(other):
            pass
        plain, ratio = self._publish_with_and_without_wake_ups(topic)
        self.stopped(process)
        sleeper = self._python("sleeper", topic)
        _, each = self._publish_with_and_without_wake_ups(topic)
        assert self.stopped(sleeper)["woken"], "no message has woken the process"
        self.clear()
        return {"microseconds": plain * 1e6, "time with wake-ups": ratio, "with one for each": each}

    def _publish_with_and_without_wake_ups(self, topic: str) -> tuple[float, float]:
        """Return the median seconds of a ``publish`` without wake-ups, and the median ratio of both times, in turn."""
        time.sleep(2)  # The other process is asleep.
        seconds: dict[str, list[float]] = {"never": [], "everywhere": []}
        count = 200
        for turn in range(max(self.sized(8_000) // count, 5)):
            for ways in sorted(seconds, reverse=turn % 2 == 1):
                with override_settings(MQUEUE={"WAKE_WORKERS": ways}):
                    begun = time.perf_counter()
                    for number in range(count):
                        publish(topic, payload(number), key="k")
                    seconds[ways].append((time.perf_counter() - begun) / count)
        ratios = [own / plain for own, plain in zip(seconds["everywhere"], seconds["never"], strict=True)]
        return statistics.median(seconds["never"]), statistics.median(ratios)

    def publishing_many(self, at_once: int = 500) -> Figures:
        count = self.sized(20_000)
        topic = self._new_topic()

        def ours() -> None:
            for first in range(0, count, at_once):
                numbers = range(first, min(first + at_once, count))
                publish_many(topic, [OutgoingMessage(payload(number), key="k") for number in numbers])

        cost = self._in_threads([ours])
        texts = [json.dumps(payload(number)) for number in range(count)]
        with closing(Floor(self.url)) as floor:
            plain = {
                gate: floor.insert(self._new_topic(), texts, at_once, gate=gate) for gate in (False, True)
            }
        self.clear()
        return self._compared(count, cost, plain[False], plain[True])

    def _compared(self, count: int, cost: Figures, plain: float, gated: float) -> Figures:
        rate = count / cost["seconds"]
        return {
            "messages per second": rate,
            "of plain SQL": rate / plain,
            "of plain SQL with the gate": rate / gated,
            **per_message(cost, count),
        }

    def _in_threads(self, works: Sequence[Callable[[], object]]) -> Figures:
        meter = Meter(self.url, partial(cpu_of, self.server))
        with ThreadPoolExecutor(len(works)) as pool:
            meter.start()
            for running in [pool.submit(work) for work in works]:
                running.result()
            return meter.stop()

    def filled(self, count: int, keys: int, *, first: int = 0) -> str:
        """Publish ``count`` messages to a new topic that has the group, and return the topic."""
        topic = self._new_topic()
        subscribe(topic, GROUP)
        self.fill(topic, count, keys, first=first)
        return topic

    def fill(self, topic: str, count: int, keys: int, *, first: int = 0) -> None:
        for start in range(first, first + count, 500):
            numbers = range(start, min(start + 500, first + count))
            publish_many(topic, [OutgoingMessage(payload(n), key=f"k{n % keys}") for n in numbers])

    def _new_topic(self) -> str:
        self._topics += 1
        return f"bench-{self._topics}"

    def sized(self, count: int) -> int:
        return max(int(count * self.size), min(count, LEAST))

    def clear(self) -> None:
        """Empty the tables, except for the gate's rows."""
        with connection.cursor() as cursor:
            for table in ("messages", "delivery_state", "partition_leases", "subscriber_heartbeats"):
                cursor.execute(f"TRUNCATE TABLE queue_{table}")
            cursor.execute("DELETE FROM queue_offsets WHERE topic LIKE 'bench-%'")

    def handled(self, topic: str) -> QuerySet[DeliveryState]:
        return DeliveryState.objects.filter(consumer_group=GROUP, topic=topic, acked=True)

    def wait_until_handled(self, topic: str, count: int, within: float = WAIT) -> None:
        """Wait until ``count`` messages are acknowledged. Fails after ``within`` seconds."""
        deadline = time.monotonic() + within
        while (done := self.handled(topic).count()) < count:
            assert time.monotonic() < deadline, f"handled {done} of {count} in {within:g} s"
            time.sleep(min(0.2 + count / 1_000_000, 1))  # Counting a million rows takes time on the server.

    def work(self, spec: Spec) -> dict[str, Any]:
        return self._result(self.started(spec))

    def started(self, spec: Spec, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return self._python("worker", json.dumps(dataclasses.asdict(spec)), environment=environment)

    def _python(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.benchmarks.speed.{module}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DATABASE_URL": self.url, **(environment or {})},
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self._processes.append(process)
        return process

    def stopped(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        process.terminate()
        return self._result(process)

    def abandon(self) -> None:
        """End the workers of a scenario that failed, and empty the tables."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()
        self.clear()

    def _result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        output, _ = process.communicate(timeout=900)
        self._processes.remove(process)
        assert process.returncode == 0, f"the worker ended with {process.returncode}: {output}"
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found
