"""The workers' handler in these scenarios: it does what the payload requests, and writes notes to a file.

The payload is ``{"n": 3}``, with ``"do"`` if the handler must do more than write notes. The environment variable
``CONFORMANCE_NOTES`` names the directory of the files: one file of notes, and one for each open door.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .system import Message

DIRECTORY = "CONFORMANCE_NOTES"
PATIENCE = float(os.environ.get("MQUEUE_TEST_PATIENCE", "60"))
"""Seconds until a wait fails the test: the setting of all tests."""

_pause = threading.Event()


class Asked(Exception):
    """The outcome that the handler requests for its own message."""

    def __init__(
        self, verb: Literal["retry", "reject", "postpone"], delay: float = 0, text: str = ""
    ) -> None:
        self.verb, self.delay, self.text = verb, delay, text
        super().__init__(text or verb)


@dataclass(frozen=True)
class Note:
    """``what``: start, end, or fail. Notes are in the order of writing, across all processes."""

    what: str
    n: int
    topic: str
    group: str
    key: str | None
    attempt: int
    pid: int
    at: float
    """Time on the machine's monotonic clock."""


class Notes:
    """The notes of all workers of one test."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._file = self.directory / "notes"

    def write(self, note: Note) -> None:
        line = json.dumps(asdict(note)) + "\n"
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())  # One write: lines of different processes do not mix.
        finally:
            os.close(file)

    def all(self, what: str | None = None) -> list[Note]:
        text = self._file.read_text() if self._file.exists() else ""
        notes = [Note(**json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [note for note in notes if what in (None, note.what)]

    def numbers(self, what: str) -> list[int]:
        return [note.n for note in self.all(what)]

    def open_door(self, name: str) -> None:
        (self.directory / f"door-{name}").touch()

    def is_open(self, name: str) -> bool:
        return (self.directory / f"door-{name}").exists()


def handle(message: Message, publish: Callable[[str, Any], object]) -> None:
    """Handle a message in any worker. ``do`` is one of: wait, nap, die, fail, retry, reject, postpone.

    If the payload has ``effect``, first publish ``{"n": …}`` to the topic of that name.
    """
    notes, payload = Notes(os.environ[DIRECTORY]), message.payload

    def note(what: str) -> None:
        notes.write(
            Note(
                what, payload["n"], message.topic, message.group, message.key, message.attempt, os.getpid(),
                time.monotonic(),
            )
        )  # fmt: skip

    note("start")
    try:
        if topic := payload.get("effect"):
            publish(topic, {"n": payload["n"]})
        _act(payload, message.attempt, notes)
    except BaseException:
        note("fail")
        raise
    note("end")


def _act(payload: dict[str, Any], attempt: int, notes: Notes) -> None:
    match payload.get("do"):
        case "wait":
            for _ in range(int(PATIENCE / 0.02)):
                if notes.is_open(payload["door"]):
                    return
                _pause.wait(0.02)
            raise TimeoutError(f"nobody opened {payload['door']}")
        case "nap":
            _pause.wait(payload["seconds"])
        case "die" if attempt <= payload.get("times", 1_000):
            os.kill(os.getpid(), signal.SIGKILL)
            _pause.wait(PATIENCE)
        case "fail" if attempt <= payload.get("times", 1_000):
            raise ValueError(f"number {payload['n']} fails, attempt {attempt}")
        case "retry" if attempt <= payload["times"]:
            raise Asked("retry", payload["delay"], "later")
        case "reject":
            raise Asked("reject", text="never")
        case "postpone" if notes.numbers("start").count(payload["n"]) <= payload["times"]:
            raise Asked("postpone", payload["delay"])
