"""The options of a backend (``OPTIONS``) and of a task (``@job_options``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from ..policy.backoff import ExponentialBackoff, Policy, RetryOn, RetryPolicy, policy_of
from ..policy.durations import to_ms
from ..policy.names import check_priority
from ..service.subscription import check_count
from ..workers.registry import Limits, check_share
from .compat import Task, normalize_json
from .context import JobStopped
from .limit import Limit
from .timetable import Timetable
from .unique import Unique

ATTRIBUTE = "mqueue_job_options"
"""The attribute of a task's function that holds its options."""
ATTEMPTS_MAX = 1000
RESULT_BYTES = 65_536
OVERLAP = ("queue", "skip", "allow")
HOOKS = ("on_success", "on_failure", "on_retry")
CATCH_UP = ("one", "none", "all")
_NAME = re.compile("[A-Za-z0-9_-]{1,60}")

Target = TypeVar("Target")


class JobExpired(Exception):
    """A job was not started within its ``expires`` seconds. It has failed, and its function did not run."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the job was not started within {seconds:g} s after it was enqueued")


@dataclass(frozen=True)
class JobOptions:
    """The options of a job; times in seconds. None: no limit, or no hook. Hooks are import paths of tasks."""

    max_attempts: int = 1
    backoff: Policy = field(default_factory=lambda: policy_of(ExponentialBackoff()))
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    timeout: float | None = None
    expires: float | None = None
    unique: Unique | None = None
    atomic: bool = False
    on_success: str | None = None
    on_failure: str | None = None
    on_retry: str | None = None
    limit: Limit | None = None

    def __post_init__(self) -> None:
        if self.unique is not None and self.limit is not None:
            raise ValueError(
                "unique and limit exclude each other: both choose the partition of the job. Leave out one of them"
            )

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.max_attempts, self._retry(), self.timeout, self.atomic)

    def _retry(self) -> Policy:
        policy = RetryOn(*self.retry_on, policy=self.backoff)
        final = (JobExpired, JobStopped)
        return lambda attempt, error: None if isinstance(error, final) else policy(attempt, error)

    @property
    def hooks(self) -> list[str]:
        return [path for path in (self.on_success, self.on_failure, self.on_retry) if path is not None]


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form of ``JobOptions``. Raises ``TypeError`` or ``ValueError`` for invalid ones."""
    found = dict(given)
    if "max_attempts" in found:
        check_count("max_attempts", found["max_attempts"], ATTEMPTS_MAX)
    if "backoff" in found:
        found["backoff"] = policy_of(found["backoff"])
    if "retry_on" in found:
        types = found["retry_on"]
        found["retry_on"] = RetryOn(*(types if isinstance(types, list | tuple) else [types])).exceptions
    if not isinstance(unique := found.get("unique"), Unique | None):
        raise TypeError(f"unique must be django_mqueue.tasks.Unique(…), not {type(unique).__name__}")
    if not isinstance(found.get("atomic", False), bool):
        raise TypeError(f"atomic must be True or False, not {found['atomic']!r}")
    for name in HOOKS:
        hook = found.get(name)
        if isinstance(hook, Task):
            found[name] = hook.module_path
        elif not isinstance(hook, str | None):
            raise TypeError(f"{name} must be a task or its import path, not {type(hook).__name__}")
    if not isinstance(limit := found.get("limit"), Limit | None):
        raise TypeError(f"limit must be django_mqueue.tasks.Limit(…), not {type(limit).__name__}")
    for name in ("timeout", "expires"):
        if found.get(name) is not None:
            found[name] = to_ms(name, found[name], least=0.001) / 1000
    return found


def job_options(
    *,
    max_attempts: int | None = None,
    backoff: RetryPolicy | Sequence[float | timedelta] | None = None,
    retry_on: type[BaseException] | Sequence[type[BaseException]] | None = None,
    timeout: float | timedelta | None = None,
    expires: float | timedelta | None = None,
    unique: Unique | None = None,
    atomic: bool | None = None,
    on_success: Task[..., Any] | str | None = None,
    on_failure: Task[..., Any] | str | None = None,
    on_retry: Task[..., Any] | str | None = None,
    limit: Limit | None = None,
) -> Callable[[Target], Target]:
    """Set options of a task's jobs. Use it below or above ``@task``. None: the option of the backend.

    - ``max_attempts``: the number of failed attempts after which a job has failed.
    - ``backoff``: the waits between attempts: a retry policy, or a list of waits.
    - ``retry_on``: retry only after exceptions of these types.
    - ``timeout``: seconds or a ``timedelta`` after which an attempt fails, as with ``max_runtime`` of a handler.
    - ``expires``: seconds or a ``timedelta`` after which a job that has not started fails with ``JobExpired``.
    - ``unique``: only one of the jobs with the same key waits or runs at a time.
    - ``atomic``: the job's writes to the queue's database, the jobs that it enqueues and its end are one commit.
    - ``on_success``, ``on_failure``, ``on_retry``: a task, or its import path. It is enqueued with the job's id in the
      commit that stores the success, the last failure, or the retry after an exception.
    - ``limit``: how many jobs with the same key run at the same time.

    Raises ``TypeError`` or ``ValueError`` for invalid values.
    """
    found = checked({name: value for name, value in locals().items() if value is not None})

    def set_options(target: Target) -> Target:
        setattr(getattr(target, "func", target), ATTRIBUTE, found)
        return target

    return set_options


@dataclass(frozen=True)
class RecurringOptions:
    """The settings of a recurring job. ``queue``, ``priority``: None means the task's own.

    ``overlap``: what a firing does while the previous one is unfinished. ``catch_up``: which of the
    firings that were due while no worker ran are run.
    """

    name: str
    task: str
    timetable: Timetable
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    overlap: str = "queue"
    catch_up: str = "one"

    @classmethod
    def read(cls, name: Any, given: Any) -> RecurringOptions:
        """Read an entry of ``recurring``. Raises ``TypeError`` or ``ValueError`` for an invalid one."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"the name must be 1 to 60 letters, digits, '-' or '_', not {name!r}")
        if not isinstance(given, Mapping):
            raise TypeError(f"it must be a dict, not {type(given).__name__}")
        known = {one.name for one in fields(cls)} - {"name", "timetable"} | {"cron", "every", "timezone"}
        if unknown := sorted(given.keys() - known):
            raise TypeError(f"unknown key {unknown[0]!r}; the keys are: {', '.join(sorted(known))}")
        if not isinstance(given.get("task"), str):
            raise TypeError("task must be the import path of a task")
        if not isinstance(given.get("queue"), str | None):
            raise TypeError(f"queue must be a str, not {type(given['queue']).__name__}")
        if given.get("priority") is not None:
            check_priority(given["priority"])
        for key, choices in (("overlap", OVERLAP), ("catch_up", CATCH_UP)):
            if given.get(key, choices[0]) not in choices:
                raise ValueError(f"{key} must be one of {', '.join(choices)}, not {given[key]!r}")
        own = {key: value for key, value in given.items() if key not in ("cron", "every", "timezone")}
        if not isinstance(own.get("args", ()), (list, tuple)):
            raise TypeError(f"args must be a list or tuple, not {type(own['args']).__name__}")
        arguments = {
            "args": normalize_json(list(own.get("args", ()))),
            "kwargs": normalize_json(dict(own.get("kwargs", {}))),
        }
        return cls(name, timetable=Timetable.read(given), **{**own, **arguments})


@dataclass(frozen=True)
class BackendOptions:
    """The ``OPTIONS`` of a backend. ``job``: the options of jobs whose task does not set them."""

    job: JobOptions
    recurring: Mapping[str, RecurringOptions] = field(default_factory=dict)
    low_priority_share: float = 0.0
    max_result_bytes: int = RESULT_BYTES

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> BackendOptions:
        """Read ``OPTIONS``. Raises ``TypeError`` or ``ValueError`` for invalid ones."""
        own, of_jobs = {one.name for one in fields(cls)} - {"job"}, {one.name for one in fields(JobOptions)}
        if unknown := sorted(given.keys() - own - of_jobs):
            names = ", ".join(sorted(own | of_jobs))
            raise TypeError(f"unknown option {unknown[0]!r}; the options are: {names}")
        job = JobOptions(**checked({name: given[name] for name in given.keys() & of_jobs}))
        found = cls(job, **{name: given[name] for name in given.keys() & own})
        if not isinstance(found.recurring, Mapping):
            raise TypeError(f"recurring must be a dict, not {type(found.recurring).__name__}")
        recurring = {}
        for name, entry in found.recurring.items():
            try:
                recurring[name] = RecurringOptions.read(name, entry)
            except (TypeError, ValueError) as error:
                raise type(error)(f"recurring[{name!r}]: {error}") from error
        found = replace(found, recurring=recurring)
        check_count("max_result_bytes", found.max_result_bytes)
        check_share(found.low_priority_share)
        return found

    def of_function(self, function: Any) -> JobOptions:
        """Return the options for jobs of a task's function."""
        return replace(self.job, **getattr(function, ATTRIBUTE, {}))
