"""Measure the speed of publishing and of workers, compared with the same work in plain SQL.

Usage: ``python -m tests.benchmarks [--server mariadb|mysql] [--rounds N] [--only TEXT] [--json FILE]``. It starts a
private server that syncs its binary log and its redo log at each commit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.server import private_server

DURABLE = ["--log-bin", "--server-id=1", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
           "--innodb-buffer-pool-size=1G"]  # fmt: skip

_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--server", choices=list(FLAVOURS), default="mariadb")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios whose names contain this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")
    options = parser.parse_args()
    with private_server(FLAVOURS[options.server](), further=DURABLE) as server:
        say(f"{options.server} {server.version}")
        os.environ |= {"DATABASE_URL": server.url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        found = _measure(server.url(), server.pid, options)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))


def _measure(url: str, pid: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run the scenarios in rounds. Return the median of each figure."""
    from .speed.measuring import Bench
    from .speed.scenarios import DRAINS, PARTITIONS, RATES

    bench = Bench(url, pid)
    floors: dict[str, float] = {}

    def plain() -> dict[str, float]:
        floors.update(bench.floors())
        return dict(floors)

    scenarios: dict[str, Callable[[], dict[str, float]]] = {
        "plain SQL, messages per second": plain,
        **{drain.name: partial(bench.drain, drain, floors) for drain in DRAINS},
        "processes that compute": bench.processes,
        **{f"publish, {n} connections": partial(bench.publishing, n) for n in (1, 4)},
        "publish_many of 500": bench.publishing_many,
        **{f"latency at {rate} messages a second": partial(bench.latency, rate) for rate in RATES},
        **{f"idle with {count} partitions": partial(bench.idle, count) for count in PARTITIONS},
    }
    chosen = {name: run for name, run in scenarios.items() if run is plain or options.only in name}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for turn in range(options.rounds):
        say(f"round {turn + 1}")
        for name, run in chosen.items():
            rounds[name].append(run())
            say(_line(name, rounds[name][-1]))
    medians = {
        name: {figure: statistics.median(one[figure] for one in found) for figure in found[0]}
        for name, found in rounds.items()
    }
    say("medians")
    for name, figures in medians.items():
        say(_line(name, figures))
    return medians


def _line(name: str, figures: dict[str, float]) -> str:
    return f"{name}: " + ", ".join(
        f"{figure} {value:,.0f}" if value >= 100 else f"{figure} {value:.3g}"
        for figure, value in figures.items()
    )


if __name__ == "__main__":
    main()
