"""The options of a backend (``OPTIONS``) and of a task (``@job_options``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from ..policy.backoff import ExponentialBackoff, Policy, RetryOn, RetryPolicy, policy_of
from ..policy.durations import to_ms
from ..service.subscription import check_count
from ..workers.registry import Limits, check_share

ATTRIBUTE = "mqueue_job_options"
"""The attribute of a task's function that holds its options."""
ATTEMPTS_MAX = 1000
RESULT_BYTES = 65_536

Target = TypeVar("Target")


class JobExpired(Exception):
    """A job was not started within its ``expires`` seconds. It has failed, and its function did not run."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the job was not started within {seconds:g} s after it was enqueued")


@dataclass(frozen=True)
class JobOptions:
    """The options of a job; times in seconds. None: no limit."""

    max_attempts: int = 1
    backoff: Policy = field(default_factory=lambda: policy_of(ExponentialBackoff()))
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    timeout: float | None = None
    expires: float | None = None

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.max_attempts, self._retry(), self.timeout)

    def _retry(self) -> Policy:
        policy = RetryOn(*self.retry_on, policy=self.backoff)
        return lambda attempt, error: None if isinstance(error, JobExpired) else policy(attempt, error)


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
) -> Callable[[Target], Target]:
    """Set options of a task's jobs. Use it below or above ``@task``. None: the option of the backend.

    - ``max_attempts``: the number of failed attempts after which a job has failed.
    - ``backoff``: the waits between attempts: a retry policy, or a list of waits.
    - ``retry_on``: retry only after exceptions of these types.
    - ``timeout``: seconds or a ``timedelta`` after which an attempt fails, as with ``max_runtime`` of a handler.
    - ``expires``: seconds or a ``timedelta`` after which a job that has not started fails with ``JobExpired``.

    Raises ``TypeError`` or ``ValueError`` for invalid values.
    """
    given = {
        "max_attempts": max_attempts, "backoff": backoff, "retry_on": retry_on, "timeout": timeout,
        "expires": expires,
    }  # fmt: skip
    found = checked({name: value for name, value in given.items() if value is not None})

    def set_options(target: Target) -> Target:
        setattr(getattr(target, "func", target), ATTRIBUTE, found)
        return target

    return set_options


@dataclass(frozen=True)
class BackendOptions:
    """The ``OPTIONS`` of a backend. ``job``: the options of jobs whose task does not set them."""

    job: JobOptions
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
        check_count("max_result_bytes", found.max_result_bytes)
        check_share(found.low_priority_share)
        return found

    def of_function(self, function: Any) -> JobOptions:
        """Return the options for jobs of a task's function."""
        return replace(self.job, **getattr(function, ATTRIBUTE, {}))
