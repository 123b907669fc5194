"""The columns of each table, with their Spark types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark.sql.types as t

from ..errors import OptionError
from .options import ReadOptions, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE = "value"
"""The name of a column for conditions (see ``with_value``)."""

_TEXT, _LONG, _TIME, _INT = t.StringType(), t.LongType(), t.TimestampType(), t.IntegerType()

_MESSAGES: dict[str, t.DataType] = {
    "topic": _TEXT, "partition": _TEXT, "key": _TEXT, "offset": _LONG, "id": _TEXT, "kind": _TEXT, "encoding": _TEXT,
    "payload": t.BinaryType(), "headers": _TEXT, "target": _TEXT, "published_at": _TIME, "created_at": _TIME,
}  # fmt: skip
_RETRIES: dict[str, t.DataType] = {"original_id": _TEXT, "retry_of": _LONG, "first_published_at": _TIME}
_FAILURES: dict[str, t.DataType] = {
    "original_topic": _TEXT, "original_id": _TEXT, "failed_group": _TEXT, "failed_at": _TIME, "failure_count": _INT,
    "last_error": _TEXT,
}  # fmt: skip
_DELIVERIES: dict[str, t.DataType] = {
    "topic": _TEXT, "partition": _TEXT, "offset": _LONG, "group": _TEXT, "done": t.BooleanType(),
    "in_flight": t.BooleanType(), "redeliveries": _INT, "failure_count": _INT, "delivered_to": _TEXT,
    "delivered_at": _TIME, "done_at": _TIME, "due_at": _TIME, "errors": _TEXT,
}  # fmt: skip
_TABLES: dict[Table, dict[str, t.DataType]] = {
    "messages": _MESSAGES | _RETRIES,
    "dead_letters": _MESSAGES | _FAILURES,
    "deliveries": _DELIVERIES,
}


def schema_of(options: ReadOptions) -> t.StructType:
    """Return all columns of the table that is read; ``headers`` only if the options include it."""
    return t.StructType(
        [
            t.StructField(name, kind)
            for name, kind in _TABLES[options.table].items()
            if name != "headers" or options.include_headers
        ]
    )


def with_value(frame: DataFrame) -> DataFrame:
    """Add the column ``value`` for conditions: the payload as text; null for a payload that was published as bytes."""
    from pyspark.sql import functions as f

    text = f.when(f.col("encoding") == "json", f.col("payload").cast("string"))
    return frame.withColumn(VALUE, text)


def check_schema(schema: t.StructType, options: ReadOptions) -> None:
    """Raise ``OptionError`` if the table lacks a column of the user's schema, or has it with another type."""
    known = _TABLES[options.table]
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(
                f"schema: table {options.table!r} has no column {field.name!r}; it has {', '.join(known)}"
            )
        expected = known[field.name]
        if field.dataType != expected:
            raise OptionError(
                f"schema: column {field.name!r} is {expected.simpleString()}, not {field.dataType.simpleString()}:"
                " use this type, then cast"
            )
