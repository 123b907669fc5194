"""Measure one server: publish, drain, latency, idle statements. Each result maps a figure's name to its value."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection

from django_mqueue import OutgoingMessage, publish, publish_many, subscribe

from .counters import Meter
from .floors import Floor
from .scenarios import FLOORS, Drain, payload
from .worker import GROUP, Spec


class Bench:
    """One server and its topics. ``server``: its process id."""

    def __init__(self, url: str, server: int) -> None:
        self.url, self.server = url, server
        self._topics = 0

    def floors(self) -> dict[str, float]:
        """Return the messages per second of each method of ``Floor``."""
        floor, found = Floor(self.url), {}
        for name, (count, keys) in FLOORS.items():
            topic = self._filled(count, keys)
            found[name] = float(getattr(floor, name)(topic))
            self._clear()
        return found

    def drain(self, drain: Drain, floors: dict[str, float]) -> dict[str, float]:
        topic = self._filled(drain.count, drain.keys)
        found = self._worker(
            Spec(topic, self.server, drain.threads, drain.count, options=dict(drain.options))
        )
        assert found["handled"] == drain.count, found["handled"]
        self._clear()
        rate = drain.count / found["seconds"]
        return {
            "messages per second": rate,
            "of plain SQL": rate / floors[drain.floor],
            "statements per message": found["statements"] / drain.count,
            "commits per message": found["commits"] / drain.count,
            "ms of the worker's CPU": found["worker_cpu"] * 1000 / drain.count,
            "ms of the server's CPU": found["server_cpu"] * 1000 / drain.count,
        }

    def latency(self, per_second: int, seconds: float = 10) -> dict[str, float]:
        """Measure the milliseconds from the return of each ``publish`` to the start of its handler."""
        topic = self._new_topic()
        subscribe(topic, GROUP)
        process = self._started(Spec(topic, self.server, seconds=seconds + 5, times=True))
        time.sleep(2)
        sent: dict[int, float] = {}
        begun = time.perf_counter()
        for number in range(int(per_second * seconds)):
            time.sleep(max(begun + number / per_second - time.perf_counter(), 0))
            publish(topic, payload(number), key=f"k{number % 100}")
            sent[number] = time.time()
        times = dict(self._result(process)["times"])
        self._clear()
        assert len(times) == len(sent), (len(times), len(sent))
        waits = sorted(max(times[number] - at, 0) * 1000 for number, at in sent.items())
        return {f"p{part} ms": waits[len(waits) * part // 100] for part in (50, 95, 99)}

    def idle(self, partitions: int, seconds: float = 10) -> dict[str, float]:
        """Count the statements of a worker that has this many partitions and no work."""
        topic = self._filled(partitions, partitions)
        process = self._started(Spec(topic, self.server, seconds=seconds + 15))
        time.sleep(10)
        meter = Meter(self.url, self.server)
        meter.start()
        time.sleep(seconds)
        cost = meter.stop()
        self._result(process)
        self._clear()
        return {"statements per second": (cost["statements"] - 1) / cost["seconds"]}

    def processes(self, count: int = 2_000) -> dict[str, float]:
        """Measure handlers that compute, in one and in two processes. With two free cores, two are twice as fast."""
        rates = []
        for processes in (1, 2):
            topic = self._filled(count, 100)
            found = self._result(self._python("cores", topic, str(processes)))
            assert found["handled"] == count, found["handled"]
            self._clear()
            rates.append(count / found["seconds"])
        return {"messages per second": rates[0], "with two processes": rates[1], "ratio": rates[1] / rates[0]}

    def publishing(self, connections: int, count: int = 2_000) -> dict[str, float]:
        """Measure ``publish`` with a transaction for each message, and the same INSERTs in plain SQL."""
        ours = self._in_threads(
            connections, count, lambda topic, number: publish(topic, payload(number), key="k")
        )
        floors = [Floor(self.url) for _ in range(connections)]
        texts = [json.dumps(payload(n)) for n in range(count // connections)]
        topic, begun = self._new_topic(), time.perf_counter()
        threads = [threading.Thread(target=floor.insert, args=(topic, texts, 1)) for floor in floors]
        _run(threads)
        return _compared(ours, count / (time.perf_counter() - begun))

    def publishing_many(self, count: int = 20_000, at_once: int = 500) -> dict[str, float]:
        topic, begun = self._new_topic(), time.perf_counter()
        for first in range(0, count, at_once):
            publish_many(topic, [OutgoingMessage(payload(n), key="k") for n in range(first, first + at_once)])
        ours = count / (time.perf_counter() - begun)
        texts = [json.dumps(payload(n)) for n in range(count)]
        return _compared(ours, Floor(self.url).insert(self._new_topic(), texts, at_once))

    def _in_threads(self, threads: int, count: int, one: Callable[[str, int], object]) -> float:
        topic = self._new_topic()

        def work() -> None:
            for number in range(count // threads):
                one(topic, number)
            connection.close()

        begun = time.perf_counter()
        _run([threading.Thread(target=work) for _ in range(threads)])
        return count / (time.perf_counter() - begun)

    def _filled(self, count: int, keys: int) -> str:
        topic = self._new_topic()
        subscribe(topic, GROUP)
        for first in range(0, count, 500):
            publish_many(
                topic,
                [
                    OutgoingMessage(payload(n), key=f"k{n % keys}")
                    for n in range(first, min(first + 500, count))
                ],
            )
        return topic

    def _new_topic(self) -> str:
        self._topics += 1
        return f"bench-{self._topics}"

    def _clear(self) -> None:
        with connection.cursor() as cursor:
            for table in ("messages", "delivery_state", "partition_leases", "subscriber_heartbeats"):
                cursor.execute(f"TRUNCATE TABLE queue_{table}")
            cursor.execute("DELETE FROM queue_offsets WHERE topic LIKE 'bench-%'")

    def _worker(self, spec: Spec) -> dict[str, Any]:
        return self._result(self._started(spec))

    def _started(self, spec: Spec) -> subprocess.Popen[str]:
        return self._python("worker", json.dumps(dataclasses.asdict(spec)))

    def _python(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.benchmarks.speed.{module}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DATABASE_URL": self.url},
        )

    def _result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found


def _compared(ours: float, plain: float) -> dict[str, float]:
    return {"messages per second": ours, "of plain SQL": ours / plain}


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
