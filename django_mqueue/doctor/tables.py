"""The queue's tables: migrations, engines, collations, indexes as the models say and as the server uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connections, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from .. import conf
from ..models import BINARY, DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from ..store.connection.session import raises_not_migrated
from ..store.gates import GATES, SLOTS
from ..store.server import plans, tables
from .findings import ERROR, INFO, WARNING, Finding

MODELS: tuple[type[models.Model], ...] = (Message, DeliveryState, PartitionLease, Offset, SubscriberHeartbeat)
LABELS = ("django_mqueue", "mqueue_worklists")


def migrations(using: str) -> list[Finding]:
    """Return the finding about migrations that are not applied."""
    with raises_not_migrated(using):
        lacks = tables.missing_privileges(using, {MigrationRecorder.Migration._meta.db_table: ["SELECT"]})
    if lacks:
        return [
            Finding(
                INFO, "migrations", "the account may not see which migrations are applied",
                "Workers do not need this table.",
                f"Run manage.py showmigrations --database {using} with the account that runs migrate.",
            )
        ]  # fmt: skip
    executor = MigrationExecutor(connections[using])
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] in LABELS]
    pending = [f"{migration.app_label}.{migration.name}" for migration, _ in executor.migration_plan(targets)]
    if not pending:
        return []
    return [
        Finding(
            ERROR, "migrations", f"migrations are not applied: {', '.join(pending)}",
            "Statements fail that need the new tables, columns or indexes.", f"manage.py migrate --database {using}",
        )
    ]  # fmt: skip


def findings(using: str) -> Iterator[Finding]:
    """Yield what differs between the models and the server's tables."""
    for model in MODELS:
        table = model._meta.db_table
        found = tables.indexes(using, table)
        if found is None:
            yield Finding(
                ERROR, "tables", f"the table {table} does not exist", "The queue cannot work.",
                f"manage.py migrate --database {using}",
            )  # fmt: skip
            continue
        if (engine := tables.engine(using, table)) not in ("InnoDB", ""):
            yield Finding(
                ERROR, "tables", f"the engine of {table} is {engine}",
                "Only InnoDB has the row locks and transactions that the promises need.",
                f"ALTER TABLE {table} ENGINE = InnoDB;",
            )  # fmt: skip
        yield from _indexes(using, model, found)
        yield from _collations(using, model)
    yield from _gates(using)


def _indexes(using: str, model: type[models.Model], found: dict[str, tables.Index]) -> Iterator[Finding]:
    table = model._meta.db_table
    for name, (columns, is_unique) in _wanted(model).items():
        index = found.get(name)
        add = f"ADD {'UNIQUE ' * is_unique}INDEX {name} ({', '.join(f'`{column}`' for column in columns)});"
        why = "Statements of the queue name this index, and fail without it." + (
            " It also keeps two messages, leases or registrations from having the same key."
            if is_unique
            else ""
        )
        if index is None:
            yield Finding(
                ERROR, "indexes", f"the index {name} of {table} is missing", why, f"ALTER TABLE {table} {add}"
            )
        elif (index.columns, index.is_unique) != (columns, is_unique):
            has, wanted = _words(index.columns, index.is_unique), _words(columns, is_unique)
            what = f"the index {name} of {table} {has}; in the model, it {wanted}"
            yield Finding(
                ERROR, "indexes", what, "Statements of the queue name this index. They are slow, or lock other rows.",
                f"ALTER TABLE {table} DROP INDEX {name}, {add}",  # In one statement: running workers name the index.
            )  # fmt: skip
        elif not index.is_visible:
            word = "NOT IGNORED" if getattr(connections[using], "mysql_is_mariadb", False) else "VISIBLE"
            repair = f"ALTER TABLE {table} ALTER INDEX {name} {word};"
            yield Finding(ERROR, "indexes", f"the index {name} of {table} is hidden", why, repair)


def _words(columns: Sequence[str], is_unique: bool) -> str:
    return f"is {'unique' if is_unique else 'not unique'} and has the columns {', '.join(columns)}"


def _wanted(model: type[models.Model]) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return the columns of each index of a model, and whether it is unique."""
    meta = model._meta
    columns = {field.name: str(field.column) for field in meta.local_concrete_fields}
    unique = [one for one in meta.constraints if isinstance(one, models.UniqueConstraint)]
    return {
        one.name: (tuple(columns[name] for name in one.fields), one in unique)
        for one in (*meta.indexes, *unique)
    }


def _collations(using: str, model: type[models.Model]) -> Iterator[Finding]:
    table, found = model._meta.db_table, tables.collations(using, model._meta.db_table)
    for field in model._meta.local_concrete_fields:
        column = str(field.column)
        if getattr(field, "db_collation", None) == BINARY and found.get(column, BINARY) != BINARY:
            yield Finding(
                ERROR, "collations", f"the collation of {table}.{column} is {found[column]}",
                "Names that differ only in case or accents would be one topic, group, key or id.",
                f"ALTER TABLE {table} MODIFY `{column}` {_definition(using, model, field)};",
            )  # fmt: skip


def _definition(using: str, model: type[models.Model], field: Any) -> str:
    """Return the definition of a column in SQL, also with its default."""
    with connections[using].schema_editor(collect_sql=True, atomic=False) as editor:
        sql, params = editor.column_sql(model, field)
        return str(sql) % tuple(map(editor.quote_value, params or ()))


def _gates(using: str) -> Iterator[Finding]:
    there, needed = tables.gate_rows(using), GATES * SLOTS
    if there != needed:
        yield Finding(
            ERROR, "gates", f"{Offset._meta.db_table} has {there} rows of gates; there must be {needed}",
            "Publishing to a topic whose gate is missing fails. The rows were deleted by hand, or by a restore.",
            f"manage.py migrate --database {using}",
        )  # fmt: skip


def plan_findings(using: str, topic: str, group: str) -> Iterator[Finding]:
    """Yield a finding for each frequent statement that does not use the index that it names."""
    for one in plans.of_reads(using, group, topic, " 0000", conf.lease_ms(topic)):
        if one.reads_all or (one.used and one.used not in one.named):
            used = one.used or "no index"
            yield Finding(
                WARNING, "plans", f"the statement for {one.statement} reads {one.table} with {used},"
                f" not with {' or '.join(one.named)}",
                "It is slow when there are many messages, and becomes slower with each.",
                f"ANALYZE TABLE {one.table};",
            )  # fmt: skip
