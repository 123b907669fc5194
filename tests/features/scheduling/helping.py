"""Helpers for scheduled messages: the database's time, and the ids that wait."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from django_mqueue import scheduled
from django_mqueue.models import Message
from django_mqueue.policy.durations import moment
from django_mqueue.store.connection.dialect import NOW_MS


def now() -> datetime:
    """Return the time of the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NOW_MS}")
        return moment(int(cursor.fetchone()[0]))


def waiting(topic: str) -> list[str]:
    """Return the ids of the scheduled messages, the next due first."""
    return [message.id for message in scheduled(topic)]


def ids_in_log(topic: str) -> list[str]:
    return list(Message.objects.filter(topic=topic).order_by("offset").values_list("message_id", flat=True))
