"""The progress of a running job, and whether it is asked to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from ..policy.durations import moment
from ..protocol.delivery import Delivery
from ..store.connection import session
from ..store.connection.second_connection import second_connection
from ..store.queries import job_rows

INTERVAL = 1.0
"""Seconds between two writes of the progress, and between two reads of ``stop``."""
NOTE = b"~"
"""The first byte of a note. No JSON begins with it, so that a note is never taken for a return value."""


class JobStopped(Exception):
    """Raise it in a job that was asked to stop. The job has failed, and is not tried again."""


@dataclass(frozen=True)
class Progress:
    """The progress that a job has reported. ``total``: None if it is not known. ``at``: the database's time."""

    done: float
    total: float | None
    text: str
    at: datetime

    def __str__(self) -> str:
        share = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{share}: {self.text}" if self.text else share


@dataclass
class Notes:
    """The progress that this process reports for a job, and whether the job is asked to stop."""

    delivery: Delivery
    written_at: float = -INTERVAL
    read_at: float = -INTERVAL
    is_stopping: bool = False

    def write(self, progress: Mapping[str, Any]) -> None:
        """Store the progress, unless that was done less than ``INTERVAL`` ago."""
        if (now := time.monotonic()) >= self.written_at + INTERVAL:
            self.written_at = now
            clock = self.delivery.status.acknowledger.state.clock
            self.change(progress={**progress, "at": clock.now()})

    def asks_to_stop(self) -> bool:
        """Return whether ``stop`` was called for the job. A call is seen within ``INTERVAL``."""
        if not self.is_stopping and (now := time.monotonic()) >= self.read_at + INTERVAL:
            self.read_at = now
            self.is_stopping = bool(self.content().get("stop"))
        return self.is_stopping

    def content(self) -> dict[str, Any]:
        with self._connection() as using:
            return _content(job_rows.note_of(using, self._job))

    def change(self, **parts: Any) -> None:
        """Replace parts of the note, unless the job was delivered again, or another transaction has locked the row."""
        change = partial(job_rows.change_note, job=self._job, change=lambda note: _with(note, **parts))
        with self._connection() as using:
            session.run(using, partial(change, token=self.delivery.status.receipt.token, wait=False))

    @contextmanager
    def _connection(self) -> Iterator[str]:
        """Yield an alias outside the job's transaction. Its writes are committed at once, and no row stays locked."""
        state = self.delivery.status.acknowledger.state
        if session.in_transaction(state.using) and not state.options.eager:
            with second_connection(state.using) as alias:
                yield alias
        else:
            yield state.using

    @property
    def _job(self) -> job_rows.RunningJob:
        receipt = self.delivery.status.receipt
        return job_rows.RunningJob(
            self.delivery.group, self.delivery.topic, receipt.partition, receipt.offset
        )


def ask_to_stop(using: str, job: job_rows.RunningJob) -> bool:
    """Ask a running job to stop. Return False if it does not run."""
    change = partial(job_rows.change_note, job=job, change=lambda note: _with(note, stop=True))
    return session.run(using, change) is not None


def progress_in(note: bytes | None) -> Progress | None:
    """Return the progress in the column ``result`` of a job."""
    found = _content(note).get("progress")
    return None if found is None else Progress(**{**found, "at": moment(found["at"])})


def is_note(value: bytes | None) -> bool:
    """Return whether the column ``result`` has a note, and no return value."""
    return value is not None and bytes(value).startswith(NOTE)


def _content(note: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(note)[1:]) if note is not None and is_note(note) else {}
    return found


def _with(note: bytes | None, **changes: Any) -> bytes:
    return NOTE + json.dumps({**_content(note), **changes}, ensure_ascii=False).encode()
