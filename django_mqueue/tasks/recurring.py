"""Recurring jobs: the jobs in ``OPTIONS["recurring"]`` of a backend.

Each firing is a scheduled job. Its id contains the due time, so that all workers together enqueue it once. A worker
enqueues the next firing before it runs one, and also each minute, in case that a firing was removed.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db import DatabaseError, transaction

from .. import conf
from ..exceptions import Postpone
from ..messages import Message, OutgoingMessage
from ..policy.durations import moment
from ..policy.names import scheduled_topic
from ..service.publish import publish_once
from ..store import schedule
from ..store.connection import errors, session
from ..store.queries import job_rows
from ..store.queries.group_rows import now_ms
from .backend import MQueueBackend
from .compat import Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from .job_ids import GROUP, PAUSED, JobId
from .options import RecurringOptions
from .results import has_not_begun, is_open, job_is_open, job_of, new_result

logger = logging.getLogger("django_mqueue")

NAME, PREVIOUS = "task-recurring", "task-previous"
"""Headers of a firing: the name of its recurring job, and the id of the firing before it."""
WAIT = 5.0
"""Seconds between two checks of the previous firing while it has not ended."""
SKIPPED_MOST = 3
"""The maximum number of earlier firings to check for one that has not ended."""
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
"""The due time of the scheduled message that marks a paused job. No worker ever promotes it."""


@dataclass(frozen=True)
class RecurringJob:
    """A recurring job, and what an operator does with it. Each method runs in the caller's transaction."""

    backend: MQueueBackend
    options: RecurringOptions

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def schedule(self) -> str:
        """Return the due times as text."""
        return str(self.options.timetable)

    @property
    def task(self) -> Task[..., Any]:
        """Return the task, with the queue and the priority of the job. Raises ``UnknownTask``."""
        return self.backend.recurring_task(self.options)

    @property
    def is_paused(self) -> bool:
        return bool(schedule.by_key(self._using, self._paused.topic, self._paused.message_key))

    @property
    def next_due(self) -> datetime | None:
        """Return the next due time; None while the job is paused."""
        return None if self.is_paused else self.options.timetable.next_after(self._now())

    @property
    def last_result(self) -> TaskResult[Any] | None:
        """Return the result of the last due firing; None if there is none, or if it was deleted.

        If that firing has returned None, it may have been skipped because an earlier one has not ended. Then return
        the result of the earlier one.
        """
        last = str(self.firing(self.options.timetable.last_before(self._now())))
        try:
            result = self.backend.get_result(last)
            has_value = result.status != TaskResultStatus.SUCCESSFUL or result.return_value is not None
            earlier = None if has_value else self._open_before(last)
            return self.backend.get_result(earlier) if earlier else result
        except TaskResultDoesNotExist:
            return None

    def pause(self) -> None:
        """Enqueue no more firings until ``resume``. A firing that is due meanwhile does not run."""
        marker = self._paused
        message = OutgoingMessage(
            "paused", id=str(marker), headers={NAME: self.name}, at=NEVER, priority=marker.priority
        )
        publish_once(marker.topic, message, marker.partition, self._using)

    def resume(self) -> None:
        """Continue with the next due time."""
        self.backend.unschedule(self._paused)
        self.enqueue_next()

    def run_now(self) -> TaskResult[Any]:
        """Enqueue one more job, also while paused. Return its result; with ``unique``, perhaps that of another job.

        Raises ``JobExists`` as ``enqueue`` does.
        """
        # In a transaction, because the setting REQUIRE_TRANSACTION is for the project's own calls.
        with transaction.atomic(using=self._using):
            return self.task.enqueue(*self.options.args, **self.options.kwargs)

    def enqueue_next(self) -> None:
        """Enqueue the next firing, unless it was enqueued, the job is paused, or a due firing will enqueue it."""
        now, options = self._now(), self.options
        if self.is_paused or (options.overlap != "allow" and job_is_open(self._using, self._last_due(now))):
            return
        previous = options.timetable.last_before(now)
        self._enqueue(options.timetable.next_after(now), str(self.firing(previous)))

    def _last_due(self, now: datetime) -> str | None:
        """Return the id of the last firing that exists and is due. Due times without a running worker may have none.

        None for a limit with several permits: a hash of the firing's id selects its partition.
        """
        limit = self.backend.options_of(self.task.func).limit
        if limit is not None and limit.running > 1:
            return None
        until = self.firing(now)
        topics = until.topic, scheduled_topic(until.topic)
        found = job_rows.newest_id(self._using, topics, until.partition, str(self._id("@")), str(until))
        return found and found.id

    def firing(self, due: datetime) -> JobId:
        """Return the id of the firing with this due time."""
        return self._id(f"@{due:%Y%m%dT%H%M%SZ}")

    def begin(self, message: Message, now: datetime) -> bool:
        """Enqueue the firing after this one. Return whether this one runs; False if it is skipped.

        Raises ``Postpone`` if it waits for the end of the previous firing.
        """
        due, previous = _due(message), message.headers.get(PREVIOUS)
        if due is None:
            return True
        is_first = message.attempt == 1  # A firing that has begun is retried whatever happened since.
        if self.is_paused:
            return not is_first or self._is_copy(message) or self._log_skip(message, "it is paused")
        options = self.options
        waits_for = self._open_before(previous) if is_first else None
        # One firing waits at a time. With ``catch_up="all"``, each has its turn.
        merges = waits_for and options.catch_up != "all" and has_not_begun(self._using, waits_for)
        skips = waits_for and (merges or options.overlap == "skip")
        after = due if options.catch_up == "all" else max(due, now)
        if not is_first:
            # The next firing may have been enqueued by the first attempt, and deleted since.
            after = max(after, now - timedelta(seconds=conf.get("RETENTION", message.topic)))
        following = options.timetable.next_after(after)
        latest = self._last_due(max(due, now)) or str(self.firing(options.timetable.last_before(following)))
        # This firing may have waited past the due time of a later one. Then ``following`` waits for the later one.
        last = latest if latest != message.id and job_is_open(self._using, latest) else message.id
        self._enqueue(following, waits_for if waits_for and skips else last)
        is_late = options.catch_up == "none" and is_first and options.timetable.next_after(due) <= now
        # If the previous one is open, this one must wait for it: the next firing waits only for the end of this one.
        if is_late and not waits_for and not self._is_copy(message):
            return self._log_skip(message, "it is late, and the next one is due")
        if skips:
            return self._log_skip(message, f"{waits_for} has not ended")
        if waits_for:
            raise Postpone(WAIT)
        return True

    def _open_before(self, previous: Any) -> str | None:
        """Return the id of the firing whose end a firing waits for; None if that has ended, or if firings may overlap.

        ``previous``: the header. If that firing was skipped after it had enqueued this one, this one waits for the same
        firing as that one did.
        """
        if self.options.overlap == "allow":
            return None
        for _ in range(SKIPPED_MOST):
            job = job_of(self._using, previous)
            if job is None:
                return None
            if is_open(job[1]):
                return str(job[0])
            previous = json.loads(job[1]["metadata"])["headers"].get(PREVIOUS)
        return None

    def _is_copy(self, message: Message) -> bool:
        """Return whether an operator has sent the firing again. It then runs, whatever its due time was."""
        return job_rows.newest_copy(self._using, GROUP, message.topic, message.id) is not None

    def _log_skip(self, message: Message, reason: str) -> Literal[False]:
        """Log why a firing does not run. Return False."""
        logger.info("recurring job skipped: %s: %s", message.id, reason)
        return False

    def _enqueue(self, due: datetime, previous: str) -> None:
        id, task = self.firing(due), self.task.using(run_after=due)
        args, kwargs = self.options.args, self.options.kwargs
        message = self.backend.new_message(id, task, args, kwargs)
        message = replace(message, headers={**(message.headers or {}), NAME: self.name, PREVIOUS: previous})
        if publish_once(id.topic, message, id.partition, self._using).created:
            task_enqueued.send_robust(type(self.backend), task_result=new_result(task, id, args, kwargs))

    @property
    def _paused(self) -> JobId:
        return self._id(PAUSED)

    def _id(self, suffix: str) -> JobId:
        args, kwargs = self.options.args, self.options.kwargs
        return self.backend.new_id(self.task, args, kwargs, self.name + suffix, spread=1)

    @property
    def _using(self) -> str:
        return self.backend.using

    def _now(self) -> datetime:
        with session.raises_not_migrated(self._using):
            return moment(now_ms(self._using))


def jobs_of(backend: MQueueBackend) -> list[RecurringJob]:
    """Return the recurring jobs of a backend, by name."""
    return [RecurringJob(backend, one) for _, one in sorted(backend.mqueue_options.recurring.items())]


def recurring_job_of(backend: MQueueBackend, message: Message) -> RecurringJob | None:
    """Return the recurring job of a firing. None for other messages, and if the job was removed from the settings."""
    options = backend.mqueue_options.recurring.get(str(message.headers.get(NAME)))
    return None if options is None else RecurringJob(backend, options)


def enqueue_firings(backend: MQueueBackend, queue: str) -> None:
    """Enqueue the next firing of each recurring job of a queue, unless it was enqueued."""
    for job in jobs_of(backend):
        try:
            if job.task.queue_name == queue:
                job.enqueue_next()
        except Exception as error:  # Also from the function for the key of a limit.
            # Another open transaction is storing this firing. Do not wait: the worker must renew its leases.
            if isinstance(error, DatabaseError) and errors.is_lock_wait(error):
                continue
            if errors.is_temporary(error):
                raise
            logger.error("recurring job not enqueued: %s: %s", job.name, error)


def _due(message: Message) -> datetime | None:
    """Return the due time in a firing's id; None for another id."""
    try:
        return datetime.strptime(message.id.rpartition("@")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
