"""Limits of jobs: at most some jobs with the same key run at the same time.

A limit of three has three partitions. Each partition has at most one job in flight. A worker needs the lease of a
partition to run one of its jobs, so the leases are the permits. The leases of a dead worker expire, as all leases do,
and other workers take them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any
from zlib import crc32

from ..policy.durations import to_ms
from ..service.subscription import check_count
from .job_ids import LIMITED, SLOT

RUNNING_MAX = 1000


@dataclass(frozen=True)
class Limit:
    """The option ``limit`` of a task: at most ``running`` jobs with the same key run at the same time.

    ``every``: seconds or a ``timedelta`` between the end of a job and the start of the next one in its place. At
    most ``running`` jobs then start in each period of this length. None: no pause.

    ``key``: a string, which several tasks may share, or a function that returns one. The function is called with the
    job's arguments. None: all jobs of the task have the same key.

    Raises ``TypeError`` or ``ValueError`` for invalid values.
    """

    running: int
    _: KW_ONLY
    key: Callable[..., str] | str | None = None
    every: float | timedelta | None = None

    def __post_init__(self) -> None:
        check_count("running", self.running, RUNNING_MAX)
        if self.every is not None:
            to_ms("every", self.every, least=0.001)
        if not isinstance(self.key, str | None) and not callable(self.key):
            raise TypeError(
                f"key must be a string or a function that returns one, not {type(self.key).__name__}"
            )

    def key_of(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the key of a job. Raises ``TypeError`` if the function returns no string."""
        key = task.module_path if self.key is None else self.key
        key = key(*args, **kwargs) if callable(key) else key
        if not isinstance(key, str):
            raise TypeError(f"the key of a limit must be a string, not {type(key).__name__}")
        return key

    def part_of_id(self, key: str, suffix: str) -> str:
        """Return the last part of an id. It names one of the key's partitions, which a hash of ``suffix`` selects."""
        digest = sha256(key.encode()).hexdigest()[:32]
        pause = "" if self.every is None else f"/{to_ms('every', self.every)}"
        return f"{LIMITED}{digest}-{crc32(suffix.encode()) % self.running}{pause}{SLOT}{suffix}"
