"""``MQueueBackend``: enqueue jobs, and find their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.utils.timezone import get_default_timezone, is_naive, make_aware

from .. import conf
from ..browse import operations
from ..exceptions import MQueueError
from ..messages import OutgoingMessage
from ..policy.ids import uuid7
from ..policy.message_query import SCHEDULED, message_query
from ..policy.names import KIND_MAX, check_publish_topic
from ..service.publish import check_transaction, publish_new, publish_once
from ..service.registration import subscribe
from ..service.scheduling import change_row
from ..store.connection import session
from ..store.connection.second_connection import outside_snapshot
from ..store.queries import job_rows
from ..store.queries.group_rows import now_ms
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_backends,
    task_enqueued,
)
from .context import ask_to_stop
from .job_ids import GROUP, JobId, topic_of
from .options import ATTRIBUTE, BackendOptions, JobOptions, RecurringOptions
from .results import (
    BACKEND,
    LIMIT,
    UnknownTask,
    backend_of,
    is_open,
    job_of,
    new_result,
    plain_task,
    result_of,
    row_of,
    task_of,
)
from .unique import JobExists, following
from .unique import newest as newest_of

TRIES = 100
"""Maximum number of ids that a unique job tries, if other transactions are faster."""
STOP_TRIES = 3
"""Maximum attempts to stop a job that is promoted, starts or ends an attempt meanwhile."""

Call: TypeAlias = "tuple[Task[..., Any], Sequence[Any], Mapping[str, Any]]"
"""A task, and the positional and keyword arguments of one job."""


class MQueueBackend(BaseTaskBackend):
    """A backend for ``TASKS``. Its jobs are messages in the database ``MQUEUE["DATABASE"]``.

    Raises ``ImproperlyConfigured`` for invalid ``OPTIONS`` or names of ``QUEUES``.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self.mqueue_options = BackendOptions.read(self.options)
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error
        if not self.queues:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['QUEUES'] is empty: name the queues, because workers run only jobs of known queues"
            )
        for queue in self.queues:
            try:
                check_publish_topic(topic_of(queue), conf.dead_letter_suffixes())
            except (TypeError, ValueError) as error:
                raise ImproperlyConfigured(f"TASKS[{alias!r}]['QUEUES']: {queue!r}: {error}") from error
        self._job_options: dict[Any, tuple[Any, JobOptions]] = {}

    @property
    def using(self) -> str:
        return conf.database(None)

    def options_of(self, function: Any) -> JobOptions:
        """Return the options of a task's function."""
        given = getattr(function, ATTRIBUTE, None)
        found = self._job_options.get(function)
        # With ``job_options`` above ``task``, ``validate_task`` calls this before the options are set.
        if found is None or found[0] is not given:
            found = self._job_options[function] = given, self.mqueue_options.of_function(function)
        return found[1]

    def new_id(
        self,
        task: Task[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        suffix: str,
        spread: int | None = None,
    ) -> JobId:
        """Return a new job id that ends in ``suffix``. ``spread``: the number of partitions, by default ``SPREAD``."""
        limit = self.options_of(task.func).limit
        if limit is not None:
            return JobId(
                task.queue_name, task.priority, 1, limit.part_of_id(limit.key_of(task, args, kwargs), suffix)
            )
        spread = spread or conf.get("SPREAD", topic_of(task.queue_name))
        return JobId(task.queue_name, task.priority, spread, suffix)

    def new_message(
        self, id: JobId, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], **more: Any
    ) -> OutgoingMessage:
        """Return the message of a job. ``more``: further parts of the payload."""
        limit, headers = self.options_of(task.func).limit, {BACKEND: self.alias}
        if limit is not None:
            headers[LIMIT] = limit.key_of(task, args, kwargs)
        due = task.run_after
        return OutgoingMessage(
            {"args": list(args), "kwargs": dict(kwargs), **more},
            id=str(id),
            kind=task.module_path,
            headers=headers,
            # Without USE_TZ, Django's datetimes are naive, in the zone TIME_ZONE.
            at=make_aware(due, get_default_timezone()) if due is not None and is_naive(due) else due,
            priority=task.priority,
        )

    def recurring_task(self, options: RecurringOptions) -> Task[..., Any]:
        """Return the task of a recurring job, with its queue and priority. Raises ``UnknownTask``."""
        given = {"queue_name": options.queue, "priority": options.priority}
        values = {name: value for name, value in given.items() if value is not None}
        return task_of(options.task, backend=self.alias, **values)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise ``InvalidTask`` for a task that this backend cannot run."""
        super().validate_task(task)
        if len(task.module_path) > KIND_MAX:
            raise InvalidTask(f"The import path of a task may have at most {KIND_MAX} characters.")
        for path in self.options_of(task.func).hooks:
            try:
                hook = plain_task(path)
            except UnknownTask as error:
                raise InvalidTask(f"A hook of {task.module_path}: {error}") from error
            if not isinstance(hook.get_backend(), MQueueBackend):
                raise InvalidTask(
                    f"A hook of {task.module_path}: task {path!r} has a backend that is no MQueueBackend."
                )

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        """Enqueue a job with one statement. It exists if and only if the caller's transaction commits.

        A unique job has two statements or more. Raises ``JobExists`` with ``on_conflict="raise"`` if there is another
        job of its key. Raises ``NoTransaction`` outside a transaction if the setting ``REQUIRE_TRANSACTION`` holds for
        the queue's topic. Raises ``InvalidTask`` for an invalid task, and ``TypeError`` or ``ValueError`` for arguments
        that JSON cannot represent or that are too long.
        """
        return self.enqueue_all([(task, args, kwargs)])[0]

    def enqueue_all(self, calls: Iterable[Call]) -> list[TaskResult[Any]]:
        """Enqueue many jobs: all or none. Return their results in the same order.

        ``calls``: for each job its task, its positional arguments (a list or tuple) and its keyword arguments (a
        mapping). One statement stores up to 500 jobs of a queue; a job with a limit has its own, a unique one two or
        more. Raises what ``enqueue`` raises.
        """
        results: list[TaskResult[Any]] = []
        messages: dict[str, list[OutgoingMessage]] = {}
        placed: list[tuple[JobId, OutgoingMessage]] = []
        unique: list[int] = []
        for task, args, kwargs in calls:
            self.validate_task(task)
            args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
            id = self.new_id(task, args, kwargs, uuid7())
            check_transaction(id.topic, self.using)
            options = self.options_of(task.func)
            if options.unique is not None:
                unique.append(len(results))
            elif options.limit is not None:
                placed.append((id, self.new_message(id, task, args, kwargs)))
            else:
                messages.setdefault(id.topic, []).append(self.new_message(id, task, args, kwargs))
            results.append(new_result(task, id, args, kwargs))
        several = len(messages) + len(placed) + len(unique) > 1
        existing = set()
        with transaction.atomic(using=self.using) if several else nullcontext():
            for topic, some in messages.items():
                publish_new(topic, some, self.using)
            for id, message in placed:
                publish_once(id.topic, message, id.partition, self.using)
            for number in unique:
                results[number], created = self._enqueue_unique(results[number])
                if not created:
                    existing.add(number)
        for number, result in enumerate(results):
            if number not in existing:
                task_enqueued.send(type(self), task_result=result)
        return results

    def _enqueue_unique(self, result: TaskResult[Any]) -> tuple[TaskResult[Any], bool]:
        """Enqueue a unique job. Return (the result of the new or the kept job, whether there is a new one)."""
        task, args, kwargs = result.task, result.args, result.kwargs
        unique = self.options_of(task.func).unique
        assert unique is not None
        first = unique.first_id(task, args, kwargs)
        for _ in range(TRIES):
            found_id = newest_of(self.using, first)
            newest = found_id and JobId.parse(found_id.id)
            if newest is not None and unique.on_conflict != "replace":
                found = self._conflicting(newest, unique.within_ms)
                if found is not None and unique.on_conflict == "raise":
                    raise JobExists(str(newest))
                if found is not None:
                    return found, False
            id = first if newest is None else following(newest)
            message = self.new_message(id, task, args, kwargs)
            deletes = found_id is not None and found_id.is_scheduled and unique.on_conflict == "replace"
            if self._store(id, message, newest if deletes else None):
                return new_result(task, id, args, kwargs), True
        raise MQueueError(
            f"job {first} was not enqueued: other transactions took each id of its key, {TRIES} times"
        )

    def _store(self, id: JobId, message: OutgoingMessage, scheduled: JobId | None) -> bool:
        """Publish a unique job. Return False if another transaction has taken its id.

        ``scheduled``: a scheduled job that it replaces. Delete it, because the new job may end, and be deleted, before
        that one is due.
        """
        publish = partial(publish_once, id.topic, message, id.partition, self.using)
        if scheduled is None:
            return publish().created

        def work(cursor: CursorWrapper) -> bool:
            self.unschedule(scheduled)
            return publish().created

        return session.run(self.using, work)

    def _conflicting(self, id: JobId, within_ms: int) -> TaskResult[Any] | None:
        """Return the result of a job that has not ended, or that was enqueued within these milliseconds."""
        with outside_snapshot(self.using) as fresh:
            # Only the caller's connection sees what its own transaction did to the job, such as a cancel.
            rows = [row for using in dict.fromkeys((fresh, self.using)) if (row := row_of(using, id))]
            if not rows:
                return None
            row = rows[0]
            if all(map(is_open, rows)) or (within_ms and now_ms(fresh) < row["created_at"] + within_ms):
                return result_of(id, str(backend_of(row)), row)  # Another backend may have the same queue.
        return None

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """Return the result of a job, with one to four statements.

        Raises ``TaskResultDoesNotExist`` if there is no such job of this backend, or if it was deleted ``RETENTION``
        seconds after it was enqueued. Raises ``UnknownTask`` if this process does not have its task.
        """
        if (job := job_of(self.using, result_id)) is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job[0], self.alias, job[1])

    def cancel(self, result_id: str) -> bool:
        """Cancel a job that waits for a worker or a retry. Return True if cancelled.

        False: a worker has claimed it, it has ended, or another transaction has locked it. A scheduled job is
        deleted; any other ends as FAILED. In a transaction, workers claim no job of the queue until that
        transaction ends. Raises ``TaskResultDoesNotExist`` as ``get_result`` does.
        """
        job = job_of(self.using, result_id)
        if job is None or backend_of(job[1]) != self.alias:
            raise TaskResultDoesNotExist(result_id)
        id, row = job
        if row["topic"] != id.topic:
            return self.unschedule(id)
        parked = bool(row["acked"]) and is_open(row)
        which: dict[str, Any] = {"id": str(id)} if parked else {"offset": row["offset"]}
        subscribe(id.topic, GROUP, "earliest", using=self.using)  # It may be that no worker has run yet.
        query = message_query(id.topic, {"group": GROUP, **which})
        status = SCHEDULED if parked else None
        return operations.move(self.using, operations.REMOVE, query, status, limit=None, dry_run=False) > 0

    def stop(self, result_id: str) -> bool:
        """Cancel a job that waits, or ask a running one to stop. Return False if it has ended.

        A task with ``takes_context`` sees that by ``context.is_stopping()``; others run to their end. Commit soon: the
        job cannot end before that commit. Raises ``TaskResultDoesNotExist`` as ``get_result`` does.
        """
        for _ in range(STOP_TRIES):
            if self.cancel(result_id):
                return True
            if (job := job_of(self.using, result_id)) is None:
                return False
            id, row = job
            if ask_to_stop(self.using, job_rows.RunningJob(GROUP, id.topic, id.partition, row["offset"])):
                return True
            if not is_open(row):
                return False
        return False

    def unschedule(self, id: JobId) -> bool:
        """Delete a scheduled message. Return whether it was still scheduled."""
        return change_row(id.topic, id.message_key, None, using=self.using)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the problems of the project's settings."""
        found: list[CheckMessage] = []
        if not apps.is_installed("django_mqueue"):
            text = f"TASKS[{self.alias!r}] uses MQueueBackend, but 'django_mqueue' is not in INSTALLED_APPS"
            found.append(Error(text, id="django_mqueue.E004"))
        for name, options in sorted(self.mqueue_options.recurring.items()):
            try:
                self.recurring_task(options)
            except UnknownTask as error:
                text = f"TASKS[{self.alias!r}]['OPTIONS']['recurring'][{name!r}]: {error}"
                found.append(Error(text, id="django_mqueue.E005"))
        for other in task_backends.all():
            if isinstance(other, MQueueBackend) and other.alias < self.alias:
                for name, _ in sorted(self._firings().items() & other._firings().items()):
                    text = f"TASKS[{self.alias!r}]['OPTIONS']['recurring'][{name!r}]: TASKS[{other.alias!r}] has a job"
                    text += " of this name, queue and priority, so only one of them would fire: rename one"
                    found.append(Error(text, id="django_mqueue.E005"))
        return found

    def _firings(self) -> dict[str, JobId]:
        """Return what the ids of the firings of each recurring job have in common."""
        found = {}
        for name, options in self.mqueue_options.recurring.items():
            # ``check`` reports a wrong task. A limit's function for the key may raise anything.
            with suppress(Exception):
                task = self.recurring_task(options)
                found[name] = self.new_id(task, options.args, options.kwargs, name, spread=1)
        return found


def backend_named(alias: Any) -> MQueueBackend:
    """Return the ``MQueueBackend`` with this alias in ``TASKS``. Raises ``UnknownTask`` if there is none."""
    try:
        found = task_backends[str(alias)]
    except ImproperlyConfigured as error:
        raise UnknownTask(f"there is no backend {alias!r}: {error}") from error
    if not isinstance(found, MQueueBackend):
        raise UnknownTask(f"TASKS[{alias!r}] is no MQueueBackend")
    return found
