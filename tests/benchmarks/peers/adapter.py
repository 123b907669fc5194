"""Publish to a peer, or run its worker. Runs in the peer's environment as ``… -m tests.benchmarks.peers.adapter``.

Usage: ``adapter MODULE prepare | send COUNT | send_many COUNT | fill COUNT | look_up COUNT | pace RATE SECONDS FILE |
work``. MODULE is a module of this folder with the functions ``prepare``, ``send`` and ``work``. A backend of Django's
Tasks also has ``send_many``, ``fill`` (until there are so many finished jobs), ``finished`` (their ids) and
``look_up``. Its handler calls ``handled``.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.speed.scenarios import payload

HANDLED = "MQUEUE_BENCH_HANDLED"
"""The environment variable with the file that records handled messages."""
BULK = 500
"""The number of jobs that one bulk enqueue stores."""
_files: dict[int, int] = {}


def handled(payload: Mapping[str, Any]) -> None:
    """Record the number of a message and the time. Each process opens the file for appending."""
    pid = os.getpid()
    if pid not in _files:
        _files[pid] = os.open(os.environ[HANDLED], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_files[pid], f"{payload['n']} {time.time()}\n".encode())


def main(module: str, action: str, *arguments: str) -> None:
    peer: Any = importlib.import_module(f"tests.benchmarks.peers.{module}")
    if action in ("prepare", "work"):
        getattr(peer, action)()
    elif action == "send":
        begun = time.perf_counter()
        for number in range(int(arguments[0])):
            peer.send(payload(number))
        print(time.perf_counter() - begun)
    elif action == "send_many":
        payloads = [payload(number) for number in range(int(arguments[0]))]
        begun = time.perf_counter()
        for start in range(0, len(payloads), BULK):
            peer.send_many(payloads[start : start + BULK])
        print(time.perf_counter() - begun)
    elif action == "fill":
        peer.fill(int(arguments[0]))
    elif action == "look_up":
        ids = peer.finished(int(arguments[0]))
        begun = time.perf_counter()
        for id in ids:
            peer.look_up(id)
        print((time.perf_counter() - begun) / len(ids))
    elif action == "pace":
        _pace(peer, float(arguments[0]), float(arguments[1]), Path(arguments[2]))
    else:
        raise SystemExit(f"unknown action {action!r}")


def _pace(peer: Any, rate: float, seconds: float, file: Path) -> None:
    """Send a message -1 and wait until it is handled. Then send at a steady rate, and write the time of each send."""
    peer.send(payload(-1))
    record = Path(os.environ[HANDLED])
    deadline = time.monotonic() + 60
    while not record.exists() or not record.stat().st_size:
        if time.monotonic() > deadline:
            raise SystemExit("the worker handled nothing within 60 seconds")
        time.sleep(0.05)
    time.sleep(1)
    sent = []
    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        time.sleep(max(begun + number / rate - time.perf_counter(), 0))
        peer.send(payload(number))
        sent.append(f"{number} {time.time()}\n")
    file.write_text("".join(sent))


if __name__ == "__main__":
    main(*sys.argv[1:])
