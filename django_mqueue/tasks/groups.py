"""Groups of jobs: several jobs, and one more that starts when all of them have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from .. import conf
from ..exceptions import Postpone
from ..messages import Message
from ..policy.ids import uuid7
from ..service.publish import check_transaction, publish_once
from .backend import Call, MQueueBackend
from .compat import TaskResult, TaskResultStatus, normalize_json, task_enqueued
from .context import Notes
from .job_ids import topic_of
from .results import backend_of, job_is_open, job_of, new_result, result_of

MEMBERS = "group"
"""The part of a job's payload with the ids of the jobs whose ends it waits for."""
SHORTEST_WAIT, LONGEST_WAIT, GROWTH = 0.2, 5.0, 0.1
"""Seconds between two checks of the jobs: a tenth of the group's age, within these bounds."""


@dataclass(frozen=True)
class JobGroup:
    """The jobs of a group, by their ids."""

    ids: Sequence[str]

    def results(self) -> list[TaskResult[Any]]:
        """Return the results of the jobs, in the order in which they were enqueued. One to four statements for each.

        Jobs that were deleted after ``RETENTION`` are left out. Raises ``UnknownTask`` as ``get_result`` does.
        """
        using, found = conf.database(None), []
        for text in self.ids:
            if job := job_of(using, text):
                id, row = job
                found.append(result_of(id, str(backend_of(row)), row))
        return found

    def counts(self) -> dict[TaskResultStatus, int]:
        """Return how many jobs have each status."""
        return dict(Counter(result.status for result in self.results()))


def enqueue_group(calls: Iterable[Call], then: Call) -> tuple[JobGroup, TaskResult[Any]]:
    """Enqueue jobs, and one more that starts when all of them have ended: all or none, in the caller's transaction.

    ``calls``: for each job its task, its positional arguments (a list or tuple) and its keyword arguments (a mapping).
    ``then``: the same for the last job, which also starts if some of the others have failed. With ``takes_context`` it
    finds their results by ``context.group``. It starts up to five seconds after their end; in the group's first two
    seconds, up to 0.2 seconds. Returns the group, and the result of the last job.

    Raises what ``enqueue_all`` raises, ``ValueError`` if the task of ``then`` is unique, and ``TypeError`` if
    the tasks have several backends.
    """
    last, args, kwargs = then
    backend = last.get_backend()
    members = list(calls)
    if not isinstance(backend, MQueueBackend) or {task.backend for task, _, _ in members} - {backend.alias}:
        raise TypeError(
            f"all jobs of a group must have the same MQueueBackend; the last has {last.backend!r}"
        )
    if backend.options_of(last.func).unique is not None:
        raise ValueError(f"the last job of a group cannot be unique, but {last.module_path} is")
    backend.validate_task(last)
    args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
    for task in [last, *(member for member, _, _ in members)]:
        check_transaction(topic_of(task.queue_name), backend.using)
    with transaction.atomic(using=backend.using):
        ids = [result.id for result in backend.enqueue_all(members)]
        id = backend.new_id(last, args, kwargs, uuid7())
        message = backend.new_message(id, last, args, kwargs, **{MEMBERS: ids})
        publish_once(id.topic, message, id.partition, backend.using)
    result = new_result(last, id, args, kwargs)
    task_enqueued.send(type(backend), task_result=result)
    return JobGroup(ids), result


def group_of(message: Message) -> JobGroup | None:
    """Return the group if this message is its last job; otherwise None."""
    ids = message.payload.get(MEMBERS)
    return JobGroup(ids) if isinstance(ids, list) else None


def wait_for_others(message: Message, notes: Notes, now: datetime) -> None:
    """Raise ``Postpone`` if the message is the last job of a group, and another job of it has not ended.

    The note stores the number of leading jobs that have ended. Later checks skip them.
    """
    group = group_of(message)
    if group is None:
        return
    using, known = conf.database(None), int(notes.content().get("ended", 0))
    ended = known
    while ended < len(group.ids) and not job_is_open(using, group.ids[ended]):
        ended += 1
    if ended < len(group.ids):
        if ended > known:
            notes.change(ended=ended)
        age = (now - message.published_at).total_seconds()
        raise Postpone(min(max(age * GROWTH, SHORTEST_WAIT), LONGEST_WAIT))
