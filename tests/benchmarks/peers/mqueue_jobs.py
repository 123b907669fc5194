"""The jobs of this project, with one worker process of four threads."""

from __future__ import annotations

from .django_settings import set_up

set_up("django_mqueue", "django_mqueue.tasks.MQueueBackend")

from django.db import connection  # noqa: E402 - needs the settings

from .django_jobs import copy_rows, look_up, prepare, send, send_many  # noqa: E402 - needs the settings

__all__ = ["fill", "finished", "look_up", "prepare", "send", "send_many", "work"]

PARTITION = "CONCAT(' ', LPAD(MOD(CRC32(id), 16), 4, '0'))"


def finished(count: int) -> list[str]:
    from django_mqueue.models import DeliveryState, Message

    done = DeliveryState.objects.filter(acked=True).order_by("-message_offset")
    offsets = list(done.values_list("message_offset", flat=True)[:count])
    return list(Message.objects.filter(offset__in=offsets).values_list("message_id", flat=True))


def fill(count: int) -> None:
    from django_mqueue.models import DeliveryState, Message

    columns = [str(field.column) for field in Message._meta.concrete_fields if not field.primary_key]
    copy_rows("queue_messages", columns, count, id="CONCAT('default.0.16.', UUID())")
    state = [str(field.column) for field in DeliveryState._meta.concrete_fields if field.column]
    own = {"topic": "m.topic", "partition_key": "m.partition_key", "message_offset": "m.`offset`"}
    into = ", ".join(f"`{column}`" for column in state)
    values = ", ".join(own.get(column, f"s.`{column}`") for column in state)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE queue_messages SET partition_key = {PARTITION}")
        cursor.execute(
            "CREATE TEMPORARY TABLE one AS SELECT * FROM queue_delivery_state WHERE acked = 1 LIMIT 1"
        )
        cursor.execute("DELETE FROM queue_delivery_state")
        cursor.execute(
            f"INSERT INTO queue_delivery_state ({into}) SELECT {values} FROM queue_messages m JOIN one s"
            " WHERE m.topic = 'tasks.default'"
        )


def work() -> None:
    from django.core.management import call_command

    call_command("runconsumer", tasks=[], threads=4, verbosity=0)
