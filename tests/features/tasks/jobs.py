"""Tasks for the tests. They are imported with the default backend of Django."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from django_mqueue import Retry
from django_mqueue.tasks import Unique, job_options
from django_mqueue.tasks.compat import TaskContext, task

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
@job_options(expires=timedelta(seconds=1))
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


not_a_task = seen
