"""Results of jobs: ``TaskResult`` values from the rows of a job, or for a job that runs here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from .. import conf
from ..messages import Message
from ..policy.errors import error_name, is_class
from ..policy.names import scheduled_topic
from ..policy.outcomes import PARKED_AT
from ..store.connection import session
from ..store.queries import job_rows
from ..store.queries.message_rows import to_datetime
from .compat import InvalidTask, Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from .context import Progress, is_note, progress_in
from .job_ids import GROUP, JobId

Row = Mapping[str, Any]
BACKEND = "task-backend"
"""The header of a job's message with the alias of the backend."""
LIMIT = "task-limit"
"""The header of a job with the key of its limit."""
UNKNOWN_ERROR = "django_mqueue.exceptions.MQueueError"
"""The class in a ``TaskError`` for an error without exception, for example because the worker died."""


class UnknownTask(Exception):
    """This process has no task with the job's name. An older version of the code may run here."""


def plain_task(path: str) -> Task[..., Any]:
    """Return the task at an import path. Raises ``UnknownTask`` if there is none, or if its module is broken."""
    try:
        found = import_string(path)
    except BaseException as error:  # The module may raise anything, also SystemExit.
        raise UnknownTask(f"task {path!r} cannot be imported: {error}") from error
    if not isinstance(found, Task):
        raise UnknownTask(f"{path!r} is no task, but {type(found).__name__}")
    return found


def task_of(path: str, **values: Any) -> Task[..., Any]:
    """Return the task at an import path, with the queue, priority and other values of one job.

    Raises ``UnknownTask`` if there is no task.
    """
    found = plain_task(path)
    if all(getattr(found, name) == value for name, value in values.items()):
        return found
    try:
        return found.using(**values)
    except (InvalidTask, ImproperlyConfigured) as error:
        raise UnknownTask(f"task {path!r} cannot run as it was enqueued: {error}") from error


def row_of(using: str, id: JobId) -> Row | None:
    """Return the newest row of a job, by ``job_rows.COLUMNS``. One to four statements.

    None if there is none, and if a ``reset`` of the group has passed the job: its state is deleted, and it never runs.
    """
    with session.raises_not_migrated(using):
        row = job_rows.by_id(using, GROUP, (id.topic, scheduled_topic(id.topic)), id.partition, str(id))
        if row is None:
            # Read before the copies, because a promotion turns a parked retry into a copy.
            row = job_rows.parked(using, GROUP, id.topic, id.partition, str(id))
        has_failed = row is not None and row["acked"] and _status(row) != TaskResultStatus.SUCCESSFUL
        if row is None or has_failed or row["is_before_start"]:
            # A retry that was parked, or a redrive, continues the job as another message.
            row = job_rows.newest_copy(using, GROUP, id.topic, str(id)) or row
    return None if row is None or row["is_before_start"] else row


def job_of(using: str, text: object) -> tuple[JobId, Row] | None:
    """Return the id and the newest row of a job by the text of its id; None if there is none."""
    id = JobId.parse(text) if isinstance(text, str) else None
    row = None if id is None else row_of(using, id)
    return None if id is None or row is None else (id, row)


def progress_of(result: TaskResult[Any]) -> Progress | None:
    """Return the last progress that a job has reported. None: it reported none, or it has a return value."""
    job = job_of(conf.database(None), result.id)
    return None if job is None else progress_in(job[1]["result"])


def is_open(row: Row) -> bool:
    """Return whether the job of this row has not ended."""
    return _status(row) in (TaskResultStatus.READY, TaskResultStatus.RUNNING)


def job_is_open(using: str, id: object) -> bool:
    """Return whether there is a job with this id that has not ended."""
    job = job_of(using, id)
    return job is not None and is_open(job[1])


def has_not_begun(using: str, id: object) -> bool:
    """Return whether there is a job with this id that has not ended, and no attempt of it has begun."""
    job = job_of(using, id)
    return job is not None and is_open(job[1]) and not (job[1]["retry_count"] or job[1]["handed"])


def backend_of(row: Row) -> str | None:
    """Return the alias of the backend that enqueued a job."""
    alias = json.loads(row["metadata"])["headers"].get(BACKEND)
    return alias if isinstance(alias, str) else None


def result_of(id: JobId, alias: str, row: Row) -> TaskResult[Any]:
    """Return the result of a job from its row. ``alias``: the alias of the backend that the caller asks.

    Raises ``TaskResultDoesNotExist`` for a job of another backend, and ``UnknownTask`` if this process does not have
    its task.
    """
    metadata, payload = json.loads(row["metadata"]), json.loads(row["payload"])
    if backend_of(row) != alias:
        raise TaskResultDoesNotExist(str(id))
    status, errors = _status(row), json.loads(row["errors"] or "[]")
    run_after = (
        _as_django(to_datetime(row["available_at"])) if row["available_at"] > row["created_at"] else None
    )
    task = task_of(
        metadata["kind"], priority=id.priority, queue_name=id.queue, run_after=run_after, backend=alias
    )
    finished = status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
    attempt = int(row["retry_count"] or 0) + int(row["handed"] or 0)
    attempts = [error for error in errors if error.get("by")]  # Without the note that the job was removed.
    starts = [_as_django(to_datetime(error.get("since", error["at"]))) for error in attempts]
    if row["handed"] and row["delivered_to"]:
        starts.append(_as_django(to_datetime(row["delivered_at"])))
    result: TaskResult[Any] = TaskResult(
        task=task,
        id=str(id),
        status=status,
        enqueued_at=_as_django(to_datetime(row["created_at"])),
        started_at=min(starts, default=None),
        finished_at=_as_django(to_datetime(row["acked_at"])) if finished else None,
        last_attempted_at=max(starts, default=None),
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=task.backend,
        errors=[_error(error["error"]) for error in errors],
        worker_ids=_workers(attempt, errors, row),
    )
    if status == TaskResultStatus.SUCCESSFUL and row["result"] and not is_note(row["result"]):
        object.__setattr__(result, "_return_value", json.loads(row["result"]))
    return result


def running_result(message: Message, worker: str) -> TaskResult[Any]:
    """Return the result of a job that runs here now. Raises ``UnknownTask``, and ``ValueError`` if it is no job."""
    id = JobId.parse(message.id)
    if id is None or BACKEND not in message.headers or not isinstance(message.payload, dict):
        raise ValueError("the message is no job: enqueue jobs with a task, and do not publish to this topic")
    now = timezone.now()
    task = task_of(message.kind, priority=id.priority, queue_name=id.queue, backend=message.headers[BACKEND])
    return replace(
        new_result(task, id, message.payload["args"], message.payload["kwargs"]),
        status=TaskResultStatus.RUNNING,
        enqueued_at=_as_django(message.published_at),
        started_at=now,
        last_attempted_at=now,
        errors=[_error(message.last_error)] if message.last_error else [],
        worker_ids=[*[""] * (message.attempt - 1), worker],
    )


def new_result(
    task: Task[..., Any], id: JobId, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TaskResult[Any]:
    """Return the result of a job that was enqueued now."""
    return TaskResult(
        task=task,
        id=str(id),
        status=TaskResultStatus.READY,
        enqueued_at=timezone.now(),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def _as_django(at: datetime) -> datetime:
    """Return a time as ``timezone.now()`` would: without time zone if ``USE_TZ`` is False."""
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())


def _status(row: Row) -> TaskResultStatus:
    if not row["acked"]:
        return TaskResultStatus.RUNNING if row["in_flight"] and row["handed"] else TaskResultStatus.READY
    if row["invisible_until"] == PARKED_AT:
        return TaskResultStatus.READY
    # The statement that dead-letters or removes a message also adds its error, with the same time.
    last = json.loads(row["errors"] or "[]")[-1:]
    failed = bool(last) and last[0]["at"] == row["acked_at"]
    return TaskResultStatus.FAILED if failed else TaskResultStatus.SUCCESSFUL


def _workers(attempts: int, errors: Sequence[Mapping[str, Any]], row: Row) -> list[str]:
    """Return the worker of each attempt; '' for attempts whose errors are no longer kept."""
    by_attempt = {error["attempt"]: error["by"] for error in errors}
    if row["handed"]:
        by_attempt[attempts] = row["delivered_to"]
    return [by_attempt.get(number, "") for number in range(1, attempts + 1)]


def _error(text: str) -> TaskError:
    """Return a ``TaskError``. ``text``: the exception's own line, an empty line, and the traceback."""
    name, (_, _, trace) = error_name(text), text.partition("\n\n")
    path = name if "." in name else f"builtins.{name}"
    return TaskError(
        exception_class_path=path if name and is_class(name) else UNKNOWN_ERROR, traceback=trace or text
    )
