"""Replace the rows of 8 gates by rows of 64 gates. A migration that changes the gates again does the same.

The new rows have new names. An INSERT of a process with the old code finds no row to lock and fails. A worker with the
old code asks for old rows; missing rows do not count as free, so it settles nothing. New code beside old rows fails in
the same two ways.

DELETE waits until each transaction that holds an old row has ended. A publisher that comes to a deleted row meanwhile
waits, and its INSERT fails when this transaction commits. So when a worker first sees a new row, all transactions that
published under an old row have ended. What was settled with old rows stays settled. If an open transaction lasts longer
than the lock wait timeout, or ends in a deadlock with this one, the migration fails and changes nothing: run it again.
"""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from django.db.migrations.state import StateApps

from django_mqueue.store import gates

OLD, NEW = "gate-__-slot-__", "gate-___-slot-___"


def delete(cursor: CursorWrapper, names: str) -> None:
    cursor.execute(
        "DELETE FROM queue_offsets WHERE consumer_group = '' AND topic = '' AND partition_key LIKE %s",
        [names],
    )


def forwards(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        delete(cursor, OLD)
        gates.ensure(cursor)


def backwards(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rows = [
        f"('', '', 'gate-{gate:02d}-slot-{slot:02d}', 0, 0, 0, 0)" for gate in range(8) for slot in range(64)
    ]
    with schema_editor.connection.cursor() as cursor:
        delete(cursor, NEW)
        cursor.execute(
            "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
            f" updated_at) VALUES {', '.join(rows)}"
        )


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0003_operators_rights"),
    ]

    operations = [
        migrations.RunPython(forwards, backwards),
    ]
