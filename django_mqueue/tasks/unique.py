"""Unique jobs: of several jobs with the same key, one waits or runs at a time.

The id of a unique job is its key with a number that counts up. The unique index of ids therefore lets one transaction
enqueue the next job of a key. Other transactions wait until that transaction ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal

from ..policy.durations import to_ms
from ..policy.names import scheduled_topic
from ..store.connection.second_connection import outside_snapshot
from ..store.queries import job_rows
from .job_ids import MARK, JobId

SPREAD = 16
"""The number of partitions of the unique jobs of a queue and a priority. It must be the same in all processes."""

OnConflict = Literal["keep", "raise", "replace"]


class JobExists(Exception):
    """A unique job was not enqueued, because another one waits, runs, or is not old enough. ``id``: its id."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"job {id!r} has the same key: it has not ended, or it was enqueued a short time ago"
        )
        self.id = id


@dataclass(frozen=True)
class Unique:
    """The option ``unique`` of a task: one job for each key waits or runs at a time, except with "replace".

    ``key``: called with the job's arguments, returns a string. None: jobs with the same arguments have the same key.

    ``on_conflict``: what ``enqueue`` does if there is a job of the key that has not ended. "keep": it enqueues nothing,
    and returns the result of that job. "raise": it raises ``JobExists``. "replace": it enqueues the new job; of the
    jobs that wait, only the newest runs, perhaps while an older one still runs.

    ``within``: seconds or a ``timedelta`` after its ``enqueue`` in which a job counts even if it has ended.

    Raises ``TypeError`` or ``ValueError`` for invalid values.
    """

    key: Callable[..., str] | None = None
    on_conflict: OnConflict = "keep"
    within: float | timedelta | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not callable(self.key):
            raise TypeError(f"key must be a function that returns a string, not {type(self.key).__name__}")
        if self.on_conflict not in ("keep", "raise", "replace"):
            raise ValueError(f'on_conflict must be "keep", "raise" or "replace", not {self.on_conflict!r}')
        if self.within is not None:
            to_ms("within", self.within, least=0.001)
            if self.on_conflict == "replace":
                raise ValueError("within and on_conflict='replace' exclude each other: leave out one of them")

    @property
    def within_ms(self) -> int:
        return 0 if self.within is None else to_ms("within", self.within)

    def first_id(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobId:
        """Return the id of the first job of this key. Raises ``TypeError`` if ``key`` returns no string."""
        if self.key is None:
            key = json.dumps([list(args), dict(kwargs)], sort_keys=True)
        else:
            key = self.key(*args, **kwargs)
            if not isinstance(key, str):
                raise TypeError(f"the key of a unique job must be a string, not {type(key).__name__}")
        digest = sha256(f"{task.module_path}\n{key}".encode()).hexdigest()[:32]
        return JobId(task.queue_name, task.priority, SPREAD, f"{digest}{MARK}{1:010d}")


def following(id: JobId) -> JobId:
    """Return the id of the next job of the same key."""
    key, _, number = id.suffix.partition(MARK)
    return JobId(id.queue, id.priority, id.spread, f"{key}{MARK}{int(number) + 1:010d}")


def newest(using: str, first: JobId) -> job_rows.FoundId | None:
    """Return the newest job of a key, or None. It reads what is committed now, and what the caller wrote."""
    topics = first.topic, scheduled_topic(first.topic)
    low = str(first).rpartition(MARK)[0] + MARK
    with outside_snapshot(using) as fresh:
        found = [job_rows.newest_id(alias, topics, first.partition, low) for alias in {using, fresh}]
    return max((one for one in found if one is not None), default=None)


def is_replaced(using: str, text: str) -> bool:
    """Return whether a newer job of the same key replaces the job with this id, also before a retry."""
    id = JobId.parse(text)
    found = newest(using, id) if id is not None and MARK in id.suffix else None
    return found is not None and found.id > text
