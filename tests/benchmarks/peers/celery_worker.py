"""Celery with four prefork processes (``-c 4``), which acknowledge after the handler (``acks_late``). No results.

On RabbitMQ, the queue is durable, messages are persistent, and a publish waits for the broker's confirmation.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from .adapter import handled

BROKER = os.environ["MQUEUE_BENCH_BROKER"]

app = Celery("bench", broker=BROKER)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True} if BROKER.startswith("amqp") else {},
    task_acks_late=True,
    task_default_delivery_mode="persistent",
    task_ignore_result=True,
    worker_hijack_root_logger=False,
)


@app.task
def handle(payload: dict[str, Any]) -> None:
    handled(payload)


def prepare() -> None:
    """The broker is new and empty."""


def send(payload: dict[str, Any]) -> None:
    handle.delay(payload)


def work() -> None:
    app.worker_main(["worker", "-c", "4", "--without-mingle", "--without-gossip", "-l", "ERROR"])
