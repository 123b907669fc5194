"""Hooks of jobs: enqueue a task in the transaction that ends a job, or that settles a failed attempt of it."""

from __future__ import annotations

import hashlib
import json
import logging
from functools import partial

from ..protocol.delivery import Delivery
from ..service.publish import publish_once
from ..store.queries import job_rows
from .backend import backend_named
from .compat import task_enqueued
from .job_ids import GROUP
from .options import JobOptions
from .results import BACKEND, new_result, plain_task

logger = logging.getLogger("django_mqueue")


def on_success(options: JobOptions, delivery: Delivery) -> None:
    """Let the ack of a job enqueue its hook."""
    if options.on_success is not None:
        event = f"{delivery.id} success {delivery.offset}"
        delivery.status.then = partial(_enqueue, options.on_success, delivery.id, event)


def after_failure(using: str, offset: int, is_final: bool) -> None:
    """Enqueue the hook for a failed attempt. ``is_final``: the job has failed for good."""
    row = job_rows.by_offset(using, GROUP, offset)
    if row is None:
        return
    try:
        metadata = json.loads(row["metadata"])
        backend = backend_named(metadata["headers"].get(BACKEND))
        options = backend.options_of(plain_task(metadata["kind"]).func)
    except Exception as error:  # For example because ``publish`` did not write the metadata.
        logger.error("hook not enqueued: job %s: %s", row["id"], error)
        return
    path = options.on_failure if is_final else options.on_retry
    if path is not None:
        _enqueue(path, row["id"], f"{row['id']} failure {offset} {row['failure_count']}")


def _enqueue(path: str, job: str, event: str) -> None:
    """Enqueue a hook once for each event, also if the transaction is tried again after an unknown commit.

    Only database errors are raised. Others would roll back the ends of all jobs of this transaction.
    """
    digest = hashlib.sha256(event.encode()).hexdigest()[:32]
    try:
        task = plain_task(path)
        backend = backend_named(task.backend)
        id = backend.new_id(task, [job], {}, digest)
        message = backend.new_message(id, task, [job], {})
    except Exception as error:  # For example from the function for the key of a limit.
        logger.error("hook not enqueued: job %s: %s: hook %s: %s", job, type(error).__name__, path, error)
        return
    if publish_once(id.topic, message, id.partition, backend.using).created:
        task_enqueued.send_robust(type(backend), task_result=new_result(task, id, [job], {}))
