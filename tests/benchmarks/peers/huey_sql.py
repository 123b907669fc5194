"""huey's ``SqlHuey`` with a consumer of four threads.

An idle thread polls after 0.1 s, and later after up to 10 s (defaults). huey
deletes a message before the handler runs, so a killed worker loses what it held.
"""

from __future__ import annotations

import os
from typing import Any

from huey.contrib.sql_huey import SqlHuey
from peewee import MySQLDatabase

from .adapter import handled

huey = SqlHuey(
    "bench",
    database=MySQLDatabase(
        os.environ["MQUEUE_BENCH_DATABASE"], user="root", unix_socket=os.environ["MQUEUE_BENCH_SOCKET"]
    ),
    results=False,
)


@huey.task()
def handle(payload: dict[str, Any]) -> None:
    handled(payload)


def prepare() -> None:
    """The import has created the tables."""


def send(payload: dict[str, Any]) -> None:
    handle(payload)


def work() -> None:
    huey.create_consumer(workers=4, worker_type="thread", periodic=False).run()
