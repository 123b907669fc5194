"""Run jobs in a worker, with a context that reports their progress."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.utils import timezone

from ..exceptions import Postpone, Reject
from ..messages import Message
from ..policy.durations import moment
from ..protocol.delivery import Delivery
from ..store.delivery_state import WORKER_DIED
from ..workers.handler_calls import Exhausted
from ..workers.registry import Limits
from .backend import MQueueBackend, backend_named
from .compat import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from .context import Notes
from .groups import JobGroup, group_of, wait_for_others
from .hooks import on_success
from .job_ids import GROUP
from .options import ATTEMPTS_MAX, JobExpired, JobOptions
from .recurring import recurring_job_of
from .results import BACKEND, UnknownTask, backend_of, job_of, plain_task, result_of, running_result
from .unique import is_replaced

logger = logging.getLogger("django_mqueue")

POSTPONE_UNKNOWN = 60.0
"""Seconds until a job is tried again whose task this process does not have."""
UNLIMITED = JobOptions(max_attempts=ATTEMPTS_MAX).limits
TEXT_MAX = 200


class JobFailed(Exception):
    """A job has failed for good. Its text is the traceback of the last attempt."""


@dataclass(frozen=True, kw_only=True)
class JobContext(TaskContext):
    """The first argument of a task with ``takes_context=True``."""

    notes: Notes = field(repr=False)
    group: JobGroup | None = None
    """The group, if this is its last job."""

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Report that ``done`` of ``total`` units of work are done. ``text``: up to 200 characters about it.

        It is stored at the first call, and then once a second at most. It is committed at once, also if the job is in
        a transaction. ``progress_of`` and the admin show it. Raises ``ValueError`` for bad arguments.
        """
        for name, value in (("done", done), ("total", 0 if total is None else total)):
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= sys.float_info.max
            ):
                raise ValueError(f"{name} must be a number that is not negative, not {value!r}")
        if not isinstance(text, str) or len(text) > TEXT_MAX:
            raise ValueError(f"text must be a string of at most {TEXT_MAX} characters")
        self.notes.write({"done": done, "total": total, "text": text})

    async def aprogress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Do the same as ``progress``, in an asynchronous job."""
        await sync_to_async(self.progress)(done, total, text)

    def is_stopping(self) -> bool:
        """Return whether ``stop`` was called for this job. It reads the database once a second at most.

        A job that is asked to stop cleans up, and then returns or raises ``JobStopped``.
        """
        return self.notes.asks_to_stop()

    async def ais_stopping(self) -> bool:
        """Do the same as ``is_stopping``, in an asynchronous job."""
        return await sync_to_async(self.is_stopping)()


def run_job(delivery: Delivery) -> Awaitable[None] | None:
    """Run the job of a message. The handler of each queue is this function."""
    state = delivery.status.acknowledger.state
    try:
        result = running_result(delivery, state.holder.name)
        backend = backend_named(result.backend)
        options = backend.options_of(result.task.func)
        for hook in options.hooks:
            plain_task(hook)
    except UnknownTask as error:
        logger.warning(
            "job postponed for %g s: topic %s, id %s: %s. Restart the worker with the code that enqueued it",
            POSTPONE_UNKNOWN, delivery.topic, delivery.id, error,
        )  # fmt: skip
        raise Postpone(POSTPONE_UNKNOWN) from error
    except ValueError as error:
        raise Reject(str(error)) from error
    task = result.task
    recurring = recurring_job_of(backend, delivery)
    if recurring is not None and not recurring.begin(delivery, moment(state.clock.now())):
        return None
    unique = options.unique
    if unique is not None and unique.on_conflict == "replace" and is_replaced(backend.using, delivery.id):
        logger.info("job skipped, because a newer job replaces it: %s", delivery.id)
        return None
    notes = Notes(delivery)
    wait_for_others(delivery, notes, moment(state.clock.now()))
    if delivery.status.failures >= options.max_attempts:
        raise Exhausted(WORKER_DIED)
    if options.expires is not None and delivery.attempt == 1:
        since = delivery.published_at
        if (job := job_of(backend.using, delivery.id)) is not None:
            # A scheduled job that no worker promoted in time was published later than it was due.
            since = min(since, moment(max(job[1]["created_at"], job[1]["available_at"])))
        if moment(state.clock.now()) - since > timedelta(seconds=options.expires):
            raise JobExpired(options.expires)
    on_success(options, delivery)
    task_started.send_robust(type(backend), task_result=result)
    context = JobContext(task_result=result, notes=notes, group=group_of(delivery))
    args = [context, *result.args] if task.takes_context else result.args
    value = task.func(*args, **result.kwargs)
    if iscoroutinefunction(task.func):
        return _await(backend, delivery, result, cast("Awaitable[Any]", value))
    _keep(backend, delivery, result, value)
    task_finished.send_robust(type(backend), task_result=result)
    return None


async def _await(
    backend: MQueueBackend, delivery: Delivery, result: TaskResult[Any], value: Awaitable[Any]
) -> None:
    _keep(backend, delivery, result, await value)
    await task_finished.asend_robust(type(backend), task_result=result)


def _keep(backend: MQueueBackend, delivery: Delivery, result: TaskResult[Any], value: Any) -> None:
    """Mark the result as successful, and give the return value to the delivery, whose ack stores it.

    Raises ``TypeError`` or ``ValueError`` if the return value cannot be stored.
    """
    returned = normalize_json(value)
    if returned is not None:
        encoded = json.dumps(returned, ensure_ascii=False, separators=(",", ":")).encode()
        if len(encoded) > (limit := backend.mqueue_options.max_result_bytes):
            raise ValueError(
                f"the return value is {len(encoded)} bytes encoded, over max_result_bytes ({limit}): store it elsewhere"
                " and return a reference, or raise the limit"
            )
        delivery.status.result = encoded
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "_return_value", returned)


def report_failure(*, using: str, group: str, id: str | None, **details: Any) -> None:
    """Send ``task_finished`` for a job that has failed for good. A receiver of ``dead_lettered``."""
    job = job_of(using, id) if group == GROUP else None
    if job is None:
        return
    try:
        backend = backend_named(backend_of(job[1]))
        result = result_of(job[0], backend.alias, job[1])
    except UnknownTask as error:
        logger.warning("task_finished not sent: id %s: %s", id, error)
        return
    try:
        raise JobFailed(result.errors[-1].traceback if result.errors else "")
    except JobFailed:
        # Django's receiver logs the exception that is being handled.
        task_finished.send_robust(type(backend), task_result=result)


def limits_of(message: Message) -> Limits:
    """Return the limits of a job's attempts. Never raises: without the task or valid options, ``UNLIMITED``."""
    try:
        return backend_named(message.headers.get(BACKEND)).options_of(plain_task(message.kind).func).limits
    except (UnknownTask, ValueError):
        return UNLIMITED
