"""Fork the processes that die. The parent has imported everything and has no connection open.

    python -m tests.protocol.boundaries.zygote

It reads one request per line from its input, ``{"walk": …, "topic": …, "die_at": …}``. For each request it forks a
child that prepares and operates. Then it writes how the child ended: ``{"status": exit code, negative for a signal,
"said": the child's last words}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import django

from example_project.environment.lineage import die_with_parent


def child(request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Prepare and operate. The process ends at the chosen boundary or after the operation, without closing anything."""
    from .walks import WALKS, Scene
    from .wire import Wire

    heard: list[tuple[int, int]] = []
    wire = Wire(request["die_at"], lambda words: say({**words, "heard": heard}))
    wire.install()
    operate = WALKS[request["walk"]].begin(Scene(request["topic"], heard))
    wire.counting = True
    operate()
    wire.counting = False
    wire.last_words(
        {"boundaries": wire.count, "commits": wire.commits, "connections": sorted(wire.connections)}
    )


def spawn(request: dict[str, Any], with_parent: Callable[[], None]) -> dict[str, Any]:
    """Fork one child, wait for it, and return its exit code and last words."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            with_parent()
            child(request, lambda words: _write(writing, words))
            status = 0
        except BaseException:
            _write(writing, {"error": traceback.format_exc()})
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"status": os.waitstatus_to_exitcode(status), "said": json.loads(said or b"{}")}


def _write(pipe: int, words: dict[str, Any]) -> None:
    rest = json.dumps(words).encode()
    while rest:
        rest = rest[os.write(pipe, rest) :]


def main() -> None:
    django.setup()
    from . import catalogue

    assert catalogue.WALKS
    with_parent = die_with_parent(signal.SIGKILL) or (lambda: None)
    for line in sys.stdin:
        print(json.dumps(spawn(json.loads(line), with_parent)), flush=True)


if __name__ == "__main__":
    main()
