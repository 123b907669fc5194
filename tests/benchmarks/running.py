"""Run the chosen scenarios on one server or on both, and write the results after each scenario."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import EnvironmentProblem
from example_project.environment.processes import forward
from example_project.environment.server import PrivateServer, private_server
from tests.benchmarks.peers import measuring as peers
from tests.benchmarks.peers.catalogue import DATABASE, PEERS, Peer
from tests.benchmarks.report import writing
from tests.benchmarks.report.results import BROKERS, Results, machine
from tests.benchmarks.report.tables import number
from tests.benchmarks.speed.figures import Figures
from tests.benchmarks.speed.scenarios import (
    CURVES,
    DRAINS,
    FLOORS_NAME,
    MANY,
    PARTITIONS,
    PROCESSES,
    PUBLISHERS,
    PUBLISHERS_CURVE,
    RATES,
    WAKING,
)
from tests.benchmarks.stage import say

DURABLE = ["--log-bin", "--server-id=1", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
           "--innodb-buffer-pool-size=1G"]  # fmt: skip

Measures = dict[str, Callable[[], Figures]]
Scenario = tuple[str, str, Callable[[], Figures]]
"""A section, a name, and the function that measures."""


def run(options: argparse.Namespace) -> int:
    """Run the benchmark and return its exit code: 1 if a scenario failed."""
    if options.report:
        if not (file := options.out / writing.FILE).exists():
            raise EnvironmentProblem(f"{file} does not exist: run the benchmark first")
        writing.write(Results.load(file), options.out)
        return 0
    if options.server == "all":
        return max(_on_each_server(options))
    results = Results.load(options.out / writing.FILE)
    results.machine = machine()
    with private_server(FLAVOURS[options.server](), further=DURABLE) as server:
        say(f"{options.server} {server.version}")
        results.servers[options.server] = server.version.partition("-")[0]
        os.environ |= {"DATABASE_URL": server.url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        return Run(options, server, results).run()


def _on_each_server(options: argparse.Namespace) -> list[int]:
    """Run one process for each server, because Django's settings name one. Only the first one measures brokers."""
    codes = []
    for index, kind in enumerate(FLAVOURS):
        chosen = "database" if index and options.peers == "all" else options.peers
        values = {
            "rounds": options.rounds,
            "only": options.only,
            "size": options.size,
        }
        arguments = [f"--{name}={value}" for name, value in values.items()] + ["--scale"] * options.scale
        arguments += ["--curves"] * options.curves
        arguments += [f"--server={kind}", f"--peers={chosen}", f"--out={options.out}"]
        program = [sys.executable, "-m", "tests.benchmarks", *arguments]
        codes.append(forward(program, env=dict(os.environ)))
    return codes


class Run:
    """All rounds on one server."""

    def __init__(self, options: argparse.Namespace, server: PrivateServer, results: Results) -> None:
        from tests.benchmarks.speed.measuring import Bench

        self._options, self._server, self._results = options, server, results
        self._kind: str = options.server
        self._bench = Bench(server.url(), server.pid, options.size)
        self._failed = False
        self._measured: set[tuple[str, str]] = set()

    def run(self) -> int:
        from tests.benchmarks.scale.scenarios import SCALES

        rounds = 1 if self._options.scale else self._options.rounds
        scenarios = self._scenarios()
        try:
            for turn in range(rounds):
                say(f"round {turn + 1} of {rounds}")
                for section, name, measure in scenarios:
                    if turn == 0 or name not in SCALES:
                        self._measure(section, name, measure)
            self._profile()
        finally:
            writing.write(self._results, self._options.out)
            say(f"written to {self._options.out}")
        return int(self._failed)

    def _scenarios(self) -> list[Scenario]:
        """Return the chosen scenarios in their order."""
        from tests.benchmarks.scale.scenarios import SCALES

        bench, kind, options = self._bench, self._kind, self._options
        scales: Measures = {name: partial(measure, bench) for name, measure in SCALES.items()}
        usual: Measures = {}
        if options.curves:
            for curve in CURVES.values():
                usual |= {drain.name: partial(bench.drain, drain) for drain in curve.values()}
            usual |= {name: partial(bench.publishing, count) for count, name in PUBLISHERS_CURVE.items()}
        else:
            usual |= {drain.name: partial(bench.drain, drain) for drain in DRAINS}
            usual |= {PROCESSES: bench.processes}
            usual |= {name: partial(bench.publishing, count) for count, name in PUBLISHERS.items()}
            usual |= {MANY: bench.publishing_many}
            usual |= {f"latency at {rate}/s": partial(bench.latency, rate) for rate in RATES}
            usual |= {
                f"latency at {rate}/s, other host": partial(bench.latency, rate, other_host=True)
                for rate in RATES
            }
            usual |= {WAKING: bench.waking}
            usual |= {f"idle with {count:,} partitions": partial(bench.idle, count) for count in PARTITIONS}
        named = {**({} if options.scale else usual), **(scales if options.scale or options.only else {})}
        chosen: list[Scenario] = [(kind, name, named[name]) for name in named if options.only in name]
        if any(name in usual for _, name, _ in chosen):
            # Drains are compared with the newest figures of plain SQL.
            chosen.insert(0, (kind, FLOORS_NAME, bench.floors))
        if not (options.scale or options.curves):
            chosen += self._peers()
        if not chosen:
            raise EnvironmentProblem(
                f"no scenario's name contains {options.only!r}: docs/benchmarks/README.md has the names"
            )
        return chosen

    def _peers(self) -> list[Scenario]:
        """Return the peers that can be installed. Note the reasons for the others."""
        found: list[Scenario] = []
        for peer in PEERS:
            uses_database = peer.store == DATABASE
            if self._options.only not in peer.name or self._options.peers not in ("all", peer.store):
                continue
            section = self._kind if uses_database else BROKERS
            try:
                python = peers.environment(peer)
            except EnvironmentProblem as problem:
                say(f"{peer.name}: not available: {problem}")
                self._results.missing[peer.name] = str(problem)
                continue
            self._results.missing.pop(peer.name, None)
            found.append((section, peer.name, partial(self._measure_peer, peer, python)))
        return found

    def _measure_peer(self, peer: Peer, python: Path) -> Figures:
        options = self._options
        return peers.PeerBench(peer, python, self._server, options.size).measure()

    def _measure(self, section: str, name: str, measure: Callable[[], Figures]) -> None:
        """Measure a scenario once, and save. A failure ends only this scenario."""
        try:
            figures = measure()
        except Exception as error:
            self._failed = True
            say(f"{name}: FAILED: {type(error).__name__}: {error}")
            self._bench.abandon()
            return
        if name == FLOORS_NAME and (self._options.only or self._options.curves):
            return  # Most drains in the table were compared with the earlier figures.
        if (section, name) not in self._measured:
            self._results.begin(section, name, self._options.size)
            self._measured.add((section, name))
        self._results.add(section, name, figures)
        self._results.save(self._options.out / writing.FILE)
        say(f"{name}: {', '.join(f'{figure} {number(value)}' for figure, value in figures.items())}")

    def _profile(self) -> None:
        """Profile each drain that was measured."""
        profiles = self._results.profiles.setdefault(self._kind, {})
        for drain in DRAINS:
            if (self._kind, drain.name) not in self._measured:
                continue
            try:
                profiles[drain.name] = self._bench.profile(drain)
            except Exception as error:
                self._failed = True
                say(f"profile of {drain.name}: FAILED: {type(error).__name__}: {error}")
                self._bench.abandon()
