"""The peers: what pip installs for each, and where it stores its messages."""

from __future__ import annotations

from dataclasses import dataclass

DATABASE = "database"


@dataclass(frozen=True)
class Peer:
    """``module``: the adapter. ``store``: the database server, or a key of ``brokers.BROKERS``.

    ``count``: the messages of a drain. ``has_results``: it keeps finished jobs. ``python``: the oldest Python that it
    supports.
    """

    name: str
    module: str
    environment: str
    requirements: tuple[str, ...]
    store: str = DATABASE
    count: int = 2_000
    has_results: bool = False
    django: str = "5.2"
    python: tuple[int, int] = (3, 11)


DJANGO_TASKS = ("6.0", (3, 12))
"""The first Django with ``django.tasks``, and its oldest Python."""

PEERS = (
    Peer(
        "django_mqueue, jobs", "mqueue_jobs", "mqueue-jobs", ("cronsim>=2.7,<3",), DATABASE, 5_000, True, *DJANGO_TASKS
    ),
    Peer("dj-queue", "dj_queue", "dj-queue", ("dj-queue>=0.14,<1",), DATABASE, 2_000, True, *DJANGO_TASKS),
    Peer(
        "django-tasks-db", "django_tasks_db", "django-tasks-db", ("django-tasks-db>=0.13,<1",), DATABASE, 1_000, True,
        *DJANGO_TASKS,
    ),
    Peer("huey (SqlHuey)", "huey_sql", "huey", ("huey>=3.5,<4", "peewee>=4.5,<5")),
    *(
        Peer(f"Celery, {title}", "celery_worker", "celery", ("celery[redis]>=5.5,<6",), store, 5_000)
        for title, store in (
            ("Redis, appendfsync always", "redis-always"),
            ("Redis, default settings", "redis"),
            ("RabbitMQ, persistent and confirmed", "rabbitmq"),
        )
    ),
)  # fmt: skip
