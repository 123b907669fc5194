"""What the backends of Django's Tasks have in common. Import it after ``set_up``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.tasks import default_task_backend, task

from .adapter import handled
from .django_settings import migrate


@task
def handle(payload: dict[str, Any]) -> None:
    handled(payload)


def prepare() -> None:
    migrate()


def send(payload: dict[str, Any]) -> str:
    return str(handle.enqueue(payload).id)


def send_many(payloads: Sequence[dict[str, Any]]) -> None:
    """Enqueue with one call if the backend can, otherwise one by one."""
    if hasattr(default_task_backend, "enqueue_all"):
        default_task_backend.enqueue_all([(handle, [payload], {}) for payload in payloads])
    else:
        for payload in payloads:
            send(payload)


def look_up(id: str) -> None:
    assert default_task_backend.get_result(id).is_finished


def copy_rows(table: str, columns: Sequence[str], count: int, **changed: str) -> None:
    """Copy the rows of a table until it has ``count``. ``changed``: SQL for the columns whose values must differ."""
    others = [f"`{column}`" for column in columns if column not in changed]
    into = ", ".join([*others, *(f"`{column}`" for column in changed)])
    values = ", ".join([*others, *changed.values()])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        there = cursor.fetchone()[0]
        while there < count:
            limit = min(there, count - there, 100_000)
            cursor.execute(f"INSERT INTO {table} ({into}) SELECT {values} FROM {table} LIMIT {limit}")
            there += cursor.rowcount


def copy_model(model: Any, count: int) -> None:
    """Copy the rows of a model whose primary key is a UUID."""
    uuid = "UUID()" if connection.features.has_native_uuid_field else "REPLACE(UUID(), '-', '')"
    columns = [field.column for field in model._meta.concrete_fields]
    copy_rows(model._meta.db_table, columns, count, **{model._meta.pk.column: uuid})
