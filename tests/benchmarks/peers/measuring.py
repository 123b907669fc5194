"""Measure one peer: enqueue, drain, and the latency at steady rates."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from example_project.environment.errors import CommandFailed, EnvironmentProblem
from example_project.environment.interpreters import Interpreter, newest_other, running
from example_project.environment.layout import LOCAL, ROOT
from example_project.environment.lineage import die_with_parent
from example_project.environment.processes import run
from example_project.environment.server import PrivateServer
from example_project.environment.venv import Pins, VirtualEnvironment
from tests.benchmarks.speed.counters import Meter, connect, cpu_of, cpu_of_session
from tests.benchmarks.speed.figures import Figures, per_message, percentiles
from tests.benchmarks.speed.scenarios import RATES, shortened

from .adapter import HANDLED
from .brokers import BROKERS, stop_session
from .catalogue import DATABASE, Peer

SCHEMA = "bench_peer"
LEAST = 100
"""The smallest number of messages, however small ``size`` is."""
HISTORY = 1_000_000
"""The number of finished jobs in the tables of a queue that keeps them."""
BULK_JOBS, LOOK_UPS = 10_000, 500
WAIT = 300.0
"""Seconds in which a peer must handle all messages."""


def environment(peer: Peer) -> Path:
    """Return the Python of the peer's environment. Raises ``EnvironmentProblem`` with the reason if there is none."""
    interpreter = _interpreter(peer.python)
    pins = Pins(peer.environment, peer.requirements)
    try:
        return VirtualEnvironment(interpreter, peer.django, (), LOCAL / "peer-venvs", pins).ensure()
    except CommandFailed as error:
        # pip's output names the package index, which does not belong into a report.
        raise EnvironmentProblem(f"pip cannot install {', '.join(peer.requirements)}") from error


def _interpreter(oldest: tuple[int, int]) -> Interpreter:
    this = running()
    newest = this if this.version[:2] >= oldest else newest_other(this)
    if newest is None or newest.version[:2] < oldest:
        raise EnvironmentProblem(f"needs Python {'.'.join(map(str, oldest))} or newer")
    return newest


class PeerBench:
    """Runs one peer on a new database or broker. ``size``: the part of the usual number of messages."""

    def __init__(self, peer: Peer, python: Path, server: PrivateServer, size: float) -> None:
        self.peer, self.python, self.server = peer, python, server
        self.count, self.size = max(int(peer.count * size), LEAST), size

    def measure(self) -> Figures:
        with TemporaryDirectory(prefix="mqueue-peer-") as folder, self._store() as (variables, url, cpu):
            self._folder = Path(folder)
            self._variables = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
            self._variables.pop("DJANGO_SETTINGS_MODULE", None)
            self._run("prepare")
            found = self._drain(url, cpu)
            for rate, seconds in RATES.items():
                waits = self._latency(rate, shortened(seconds, self.size))
                found |= {f"{name} at {rate}/s": value for name, value in percentiles(waits).items()}
            if self.peer.has_results:
                found |= self._with_history(url, cpu)
            return found

    def _with_history(self, url: str | None, cpu: partial[float]) -> Figures:
        """Measure again with many finished jobs in the tables."""
        count = max(int(HISTORY * self.size), 10 * LEAST)
        self._run("fill", str(count))
        bulk = max(int(BULK_JOBS * self.size), LEAST)
        look_up = float(self._run("look_up", str(LOOK_UPS)).split()[-1])
        drain = self._drain(url, cpu)
        enqueued = bulk / float(self._run("send_many", str(bulk)).split()[-1])
        return {
            f"{name}, with history": drain[name] for name in ("messages per second", "enqueued per second")
        } | {
            "results per second, with history": 1 / look_up,
            "enqueued in bulk per second, with history": enqueued,
        }

    @contextmanager
    def _store(self) -> Iterator[tuple[dict[str, str], str | None, partial[float]]]:
        """Yield the variables for the adapter, the URL of the database server if it is used, and the server's CPU."""
        if self.peer.store != DATABASE:
            with BROKERS[self.peer.store]() as broker:
                yield {"MQUEUE_BENCH_BROKER": broker.url}, None, partial(cpu_of_session, broker.pid)
            return
        url = self.server.url()
        connection = connect(url)
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
        socket = str(self.server.place.socket)
        try:
            variables = {"MQUEUE_BENCH_DATABASE": SCHEMA, "MQUEUE_BENCH_SOCKET": socket}
            yield variables, url, partial(cpu_of, self.server.pid)
        finally:
            cursor.execute(f"DROP DATABASE {SCHEMA}")
            connection.close()

    def _drain(self, url: str | None, cpu: partial[float]) -> Figures:
        record = self._new_record()
        sending = float(self._run("send", str(self.count)).split()[-1])
        with self._worker() as worker:
            meter = Meter(url, cpu, partial(cpu_of_session, worker.pid))
            before = _wait_for(record, 1, worker, every=0.002)
            meter.start()
            _wait_for(record, self.count, worker)
            cost = meter.stop()
        times = sorted(at for _, at in _times(record))
        assert len(times) == self.count, f"handled {len(times)} of {self.count}"
        rate = (self.count - 1) / (times[-1] - times[0])
        return {
            "messages per second": rate,
            **per_message(cost, self.count - before),
            "enqueued per second": self.count / sending,
        }

    def _latency(self, rate: int, seconds: float) -> list[float]:
        """Return the milliseconds from the return of each ``send`` to its handler."""
        record, sent = self._new_record(), self._folder / "sent"
        with self._worker() as worker:
            self._run("pace", str(rate), str(seconds), str(sent))
            times = dict(_times(sent))
            _wait_for(record, len(times) + 1, worker)
        handled = dict(_times(record))
        return [max(handled[number] - at, 0) * 1000 for number, at in times.items()]

    def _new_record(self) -> Path:
        record = self._folder / f"handled-{time.monotonic_ns()}"
        self._variables[HANDLED] = str(record)
        return record

    @property
    def _program(self) -> list[str]:
        return [str(self.python), "-m", "tests.benchmarks.peers.adapter", self.peer.module]

    def _run(self, *arguments: str) -> str:
        return run([*self._program, *arguments], env=self._variables)

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*self._program, "work"],
                cwd=ROOT,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
            try:
                yield process
            except AssertionError as error:
                end = (self._folder / "log").read_text(errors="replace")[-500:]
                raise AssertionError(f"{error}; the worker's output ends: {end}") from error
            finally:
                stop_session(process, 10)


def _wait_for(record: Path, count: int, worker: subprocess.Popen[bytes], every: float = 0.02) -> int:
    """Wait until ``count`` messages are handled, and return how many are."""
    deadline = time.monotonic() + WAIT
    while True:
        done = record.read_bytes().count(b"\n") if record.exists() else 0
        if done >= count:
            return done
        assert worker.poll() is None, f"the worker ended with {worker.returncode}"
        assert time.monotonic() < deadline, f"handled {done} of {count} in {WAIT:g} s"
        time.sleep(every)


def _times(file: Path) -> list[tuple[int, float]]:
    """Return the number and the time in each line."""
    lines = (line.split() for line in file.read_text().splitlines())
    return [(int(number), float(at)) for number, at in lines]
