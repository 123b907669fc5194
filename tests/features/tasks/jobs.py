"""Tasks for the tests. They are imported with the default backend of Django."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, connections

from django_mqueue import Retry
from django_mqueue.store.connection.second_connection import second_connection
from django_mqueue.tasks import JobContext, JobStopped, Limit, MQueueBackend, Unique, job_options, progress_of
from django_mqueue.tasks.compat import TaskContext, task
from django_mqueue.tasks.context import INTERVAL, progress_in
from django_mqueue.tasks.job_ids import JobId
from django_mqueue.tasks.results import row_of
from tests.support.running import wait_until_extended

seen: list[Any] = []
"""What the jobs have noted; each test empties it."""


@task
def add(a: int, b: int) -> int:
    seen.append((a, b))
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    seen.append((args, kwargs))
    return [list(args), kwargs]


@task
async def double(number: int) -> int:
    seen.append(number)
    return 2 * number


@task
def fail(text: str = "no") -> None:
    seen.append(text)
    raise ValueError(text)


@task(takes_context=True)
def number_of_attempt(context: TaskContext) -> int:
    seen.append(context.attempt)
    if context.attempt < 3:
        raise OSError(f"attempt {context.attempt}")
    return context.attempt


@job_options(max_attempts=3, backoff=[600])
@task(takes_context=True)
def succeeds_later(context: TaskContext) -> None:
    """Fail at the first attempt of the first call."""
    seen.append(context.attempt)
    if seen == [1]:
        raise OSError("not yet")


@task
@job_options(unique=Unique())
def refresh_prices(article: str) -> str:
    seen.append(article)
    return article


@task
@job_options(unique=Unique())
def enqueues_itself() -> str:
    return enqueues_itself.enqueue().id


@job_options(max_attempts=1)
@task
def fails_for_good() -> None:
    seen.append("failed")
    raise OSError("no")


@task
@job_options(unique=Unique())
def fails_alone() -> None:
    raise OSError("no")


@task
@job_options(unique=Unique(key=lambda customer, text: customer, on_conflict="raise"))
def call_customer(customer: str, text: str) -> None:
    seen.append((customer, text))


@task
@job_options(unique=Unique(within=timedelta(days=1)))
def greet_daily() -> None:
    seen.append("hello")


@task
@job_options(unique=Unique(key=lambda article, text: article, on_conflict="replace"))
def index(article: str, text: str) -> str:
    seen.append(text)
    return text


@task
@job_options(unique=Unique(key=lambda number: number))
def numbered(number: int) -> None:
    seen.append(number)


@task(takes_context=True)
def cancels_itself(context: TaskContext) -> bool:
    cancelled: bool = context.task_result.task.get_backend().cancel(context.task_result.id)  # type: ignore[attr-defined]
    return cancelled


@task
def return_a_set() -> Any:
    return {1}


@task
def return_many(count: int) -> str:
    return "x" * count


@job_options(max_attempts=3, backoff=[0], retry_on=OSError)
@task
def patient(error: str) -> None:
    seen.append(error)
    raise OSError(error) if error.startswith("os") else ValueError(error)


@task
@job_options(expires=timedelta(hours=1))
def fresh() -> str:
    return "in time"


@task
@job_options(timeout=0.2)
async def sleeps() -> None:
    import asyncio

    seen.append("asleep")
    await asyncio.sleep(60)


@task
def asks_again() -> None:
    seen.append("again")
    raise Retry("later", delay=0)


@task
def note(id: str) -> None:
    """A hook."""
    seen.append(("hook", id))


@task
def note_failure(id: str) -> None:
    """A hook."""
    seen.append(("failed", id))


@job_options(on_failure=note_failure)
@task
def kills_its_worker(path: str) -> None:
    with open(path, "a") as file:
        file.write("started\n")
    os._exit(9)


@task
def hangs_once(path: str) -> str:
    """Hang at the first run, until the worker is killed."""
    first = not os.path.exists(path)
    with open(path, "a") as file:
        file.write("started\n")
    while first:
        time.sleep(1)
    return "done"


@job_options(
    max_attempts=2, backoff=[0], on_success=note, on_failure=f"{__name__}.note_failure", on_retry=note
)
@task(takes_context=True)
def has_hooks(context: TaskContext, failures: int) -> int:
    seen.append(context.attempt)
    if context.attempt <= failures:
        raise OSError("no")
    return failures


@job_options(atomic=True, max_attempts=2, backoff=[0])
@task(takes_context=True)
def enqueues_once(context: TaskContext) -> str:
    """Enqueue another job. Fail at the first attempt, after that."""
    result = note.enqueue(f"attempt {context.attempt}")
    if context.attempt == 1:
        raise OSError("no")
    return result.id


@task(takes_context=True)  # type: ignore[arg-type]
def reports(context: JobContext, *steps: float) -> None:
    """Report the steps, each after what the test noted for it."""
    for number, step in enumerate(steps, 1):
        context.progress(step, 10, f"step {number}")
        seen.append(progress_of(context.task_result))


@job_options(max_attempts=3, backoff=[0])
@task(takes_context=True)  # type: ignore[arg-type]
def stops(context: JobContext) -> None:
    """Ask itself to stop, as another process would."""
    seen.append(context.is_stopping())
    backend = context.task_result.task.get_backend()
    assert isinstance(backend, MQueueBackend)
    seen.append(backend.stop(context.task_result.id))
    context.progress(5)
    context.notes.read_at = -INTERVAL  # A second later.
    if context.is_stopping():
        raise JobStopped("stopped after half")


@job_options(atomic=True)
@task(takes_context=True)  # type: ignore[arg-type]
def reports_in_a_transaction(context: JobContext) -> None:
    context.progress(1)
    seen.append(context.is_stopping())
    with second_connection("default") as beside:
        row = row_of(beside, JobId.parse(context.task_result.id))  # type: ignore[arg-type]
    assert row is not None
    seen.append(str(progress_in(row["result"])))


@task(takes_context=True)  # type: ignore[arg-type]
async def reports_asynchronously(context: JobContext) -> None:
    await context.aprogress(3)
    seen.append(await context.ais_stopping())
    seen.append(str(await sync_to_async(progress_of)(context.task_result)))


@task(takes_context=True)  # type: ignore[arg-type]
def adds_up(context: JobContext, start: int) -> int:
    """Add the results of a group."""
    assert context.group is not None
    found = context.group.results()
    return start + sum(int(result.return_value or 0) for result in found if result.status == "SUCCESSFUL")


@job_options(on_success=f"{__name__}.missing")
@task
def hook_is_missing() -> None: ...


@job_options(atomic=True)
@task
def is_disconnected_once() -> None:
    """End the connection of its transaction at the first run."""
    seen.append("run")
    if seen == ["run"]:
        with connection.cursor() as cursor, second_connection("default") as beside:
            cursor.execute("SELECT CONNECTION_ID()")
            with connections[beside].cursor() as other:
                other.execute("KILL %s", cursor.fetchone())
            cursor.execute("SELECT 1")


@job_options(limit=Limit(2, key=lambda customer, *rest: customer))
@task
def call_limited(customer: str, number: int = 0) -> int:
    seen.append((customer, number))
    return number


@job_options(limit=Limit(1, key="courier"), max_attempts=3, backoff=[0])
@task
def hangs_alone(path: str) -> str:
    """Hang at the first run, until the worker is killed."""
    return hangs_once.func(path)


@job_options(limit=Limit(1, key="courier"))
@task
def notes_alone(path: str) -> None:
    with open(path, "a") as file:
        file.write("other\n")


@job_options(limit=Limit(1))
@task
def fails_limited(failures: int) -> None:
    if failures:
        raise OSError("no")


@task
def rests(text: str) -> None:
    """Take ten milliseconds."""
    time.sleep(0.01)
    seen.append(text)


@task
def meets(folder: str, count: int) -> int:
    """Wait until ``count`` processes have begun such a job. Return the id of this one."""
    Path(folder, str(os.getpid())).touch()
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)
    return os.getpid()


@job_options(limit=Limit(2, key="api", every=timedelta(minutes=1)))
@task
def call_api(number: int) -> None:
    seen.append(number)


@job_options(limit=Limit(1, key=lambda customer: customer, every=timedelta(minutes=1)))
@task
def call_once_a_minute(customer: str) -> None:
    seen.append(customer)


@task
@job_options(unique=Unique(key=lambda article: article, on_conflict="replace"), on_success=note)
def index_and_tell(article: str) -> None:
    seen.append(article)


@task
def waits_for_extension() -> None:
    wait_until_extended(600)


not_a_task = seen
