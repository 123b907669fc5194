"""Run jobs in a worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..exceptions import Postpone, Reject
from ..messages import Message
from ..policy.durations import moment
from ..protocol.delivery import Delivery
from ..store.failures import WORKER_DIED
from ..workers.registry import Limits
from .backend import MQueueBackend
from .compat import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from .job_ids import GROUP, JobId
from .options import ATTEMPTS_MAX, JobExpired, JobOptions
from .results import BACKEND, UnknownTask, backend_of, plain_task, result_of, row_of, running_result

logger = logging.getLogger("django_mqueue")

POSTPONE_UNKNOWN = 60.0
"""Seconds until a job is tried again whose task this process does not have."""
UNLIMITED = JobOptions(max_attempts=ATTEMPTS_MAX)


def run_job(delivery: Delivery) -> Awaitable[None] | None:
    """Run the job of a message. The handler of each queue is this function."""
    options = _options(delivery)
    if delivery.status.failures >= options.max_attempts:
        raise Reject(WORKER_DIED)
    age = moment(delivery.status.acknowledger.context.clock.now()) - delivery.published_at
    if options.expires is not None and delivery.attempt == 1 and age > timedelta(seconds=options.expires):
        raise JobExpired(options.expires)
    try:
        result = running_result(delivery, delivery.status.acknowledger.context.holder.name)
    except UnknownTask as error:
        logger.warning(
            "job postponed for %g s: topic %s, id %s: %s. Restart the worker with the code that enqueued it",
            POSTPONE_UNKNOWN, delivery.topic, delivery.id, error,
        )  # fmt: skip
        raise Postpone(POSTPONE_UNKNOWN) from error
    except ValueError as error:
        raise Reject(str(error)) from error
    task = result.task
    sender = type(task.get_backend())
    task_started.send_robust(sender, task_result=result)
    args = [TaskContext(task_result=result), *result.args] if task.takes_context else result.args
    value = task.func(*args, **result.kwargs)
    if iscoroutinefunction(task.func):
        return _await(delivery, result, cast("Awaitable[Any]", value))
    _keep(delivery, result, value)
    task_finished.send_robust(sender, task_result=result)
    return None


async def _await(delivery: Delivery, result: TaskResult[Any], value: Awaitable[Any]) -> None:
    _keep(delivery, result, await value)
    await task_finished.asend_robust(type(result.task.get_backend()), task_result=result)


def _keep(delivery: Delivery, result: TaskResult[Any], value: Any) -> None:
    """Leave the return value for the ack. Raises ``TypeError`` or ``ValueError`` if it cannot be stored."""
    returned = normalize_json(value)
    encoded = json.dumps(returned, ensure_ascii=False, separators=(",", ":")).encode()
    limit = _backend(result.backend).mqueue_options.max_result_bytes
    if len(encoded) > limit:
        raise ValueError(
            f"the return value is {len(encoded)} bytes encoded, over max_result_bytes ({limit}): store it elsewhere"
            " and return a reference, or raise the limit"
        )
    delivery.status.result = None if returned is None else encoded
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "_return_value", returned)


def report_failure(*, using: str, group: str, id: str | None, **details: Any) -> None:
    """Send ``task_finished`` for a job that has failed for good. A receiver of ``dead_lettered``."""
    job = JobId.parse(id or "")
    row = row_of(using, job) if job is not None and group == GROUP else None
    if job is None or row is None:
        return
    try:
        backend = _backend(backend_of(row) or "")
        result = result_of(job, backend.alias, row)
    except UnknownTask as error:
        logger.warning("task_finished not sent: id %s: %s", id, error)
        return
    task_finished.send_robust(type(backend), task_result=result)


def limits_of(message: Message) -> Limits:
    """Return the limits of a job's attempts. Never raises."""
    return _options(message).limits


def _options(message: Message) -> JobOptions:
    """Return the options of a job. If this process does not have its task, there is no limit."""
    try:
        return _backend(message.headers.get(BACKEND, "")).options_of(plain_task(message.kind).func)
    except UnknownTask:
        return UNLIMITED


def _backend(alias: str) -> MQueueBackend:
    try:
        found = task_backends[alias]
    except ImproperlyConfigured as error:
        raise UnknownTask(f"there is no backend {alias!r}: {error}") from error
    if not isinstance(found, MQueueBackend):
        raise UnknownTask(f"TASKS[{alias!r}] is no MQueueBackend")
    return found
