"""The job of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_mqueue.tasks import JobContext
from django_mqueue.tasks.compat import task
from tests.proof.worker_app.acting import act, given


@task(takes_context=True)  # type: ignore[arg-type]
def work(context: JobContext, payload: dict[str, Any]) -> None:
    message = replace(context.notes.delivery, payload=payload)
    given(message)
    act(message)
