"""Restore the database to an earlier state: all tables of the queue, and the counter of offsets."""

from __future__ import annotations

from django.db import connections, models, transaction

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.policy.names import ACTIONS_TOPIC

from .threads import raw_connection

TABLES: tuple[type[models.Model], ...] = (Message, DeliveryState, PartitionLease, Offset, SubscriberHeartbeat)


class Earlier:
    """A copy of the tables as they are now."""

    def __init__(self, using: str = "default") -> None:
        self.using = using
        with raw_connection(using) as snapshot:
            snapshot.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            snapshot.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            self.rows = {
                table: snapshot.execute(f"SELECT {_columns(table)} FROM {table._meta.db_table}")
                for table in TABLES
            }
            snapshot.execute(
                "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
                " created_at, published_at) VALUES ('nobody', '', '', '', '1', '{}', 1, 1, 1)"
            )
            self._counter = int(snapshot.execute("SELECT LAST_INSERT_ID()")[0][0])
            snapshot.rollback()
        self.newest = max((row[0] for row in self.rows[Message] if ACTIONS_TOPIC not in row), default=0)
        """The last offset, without the records of actions."""

    def set_back(self) -> None:
        """Restore the tables while other processes work, as a failover behind a proxy does."""
        with transaction.atomic(using=self.using), connections[self.using].cursor() as cursor:
            for table, rows in self.rows.items():
                cursor.execute(f"DELETE FROM {table._meta.db_table}")
                if rows:
                    marks = ", ".join(["%s"] * len(rows[0]))
                    cursor.executemany(
                        f"INSERT INTO {table._meta.db_table} ({_columns(table)}) VALUES ({marks})", rows
                    )
        with connections[self.using].cursor() as cursor:
            cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {self._counter + 1:d}")


def _columns(table: type[models.Model]) -> str:
    names = [field.column for field in table._meta.concrete_fields if field.column]
    return ", ".join(f"`{name}`" for name in names)
