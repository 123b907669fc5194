"""The columns of each table as Spark sees them, and rows made into Arrow's batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..store.session import Row
from .errors import OptionError
from .options import ReadOptions, Table

_TEXT, _LONG, _TIME, _INT = StringType(), LongType(), TimestampType(), IntegerType()

_MESSAGES: dict[str, DataType] = {
    "topic": _TEXT,
    "partition": _TEXT,
    "key": _TEXT,
    "offset": _LONG,
    "id": _TEXT,
    "kind": _TEXT,
    "encoding": _TEXT,
    "payload": BinaryType(),
    "headers": _TEXT,
    "target": _TEXT,
    "published_at": _TIME,
    "created_at": _TIME,
}
_AGAIN: dict[str, DataType] = {
    "original_id": _TEXT,
    "retry_of": _LONG,
    "first_published_at": _TIME,
}
_LETTERS: dict[str, DataType] = {
    "original_topic": _TEXT,
    "original_id": _TEXT,
    "failed_group": _TEXT,
    "failed_at": _TIME,
    "failure_count": _INT,
    "last_error": _TEXT,
}
_DELIVERIES: dict[str, DataType] = {
    "topic": _TEXT,
    "partition": _TEXT,
    "offset": _LONG,
    "group": _TEXT,
    "done": BooleanType(),
    "in_flight": BooleanType(),
    "redeliveries": _INT,
    "failure_count": _INT,
    "delivered_to": _TEXT,
    "delivered_at": _TIME,
    "done_at": _TIME,
    "due_at": _TIME,
    "errors": _TEXT,
}
_TABLES: dict[Table, dict[str, DataType]] = {
    "messages": _MESSAGES | _AGAIN,
    "dead_letters": _MESSAGES | _LETTERS,
    "deliveries": _DELIVERIES,
}


def schema_of(options: ReadOptions) -> StructType:
    """All columns of what is read, but ``headers`` where they were not asked for."""
    return StructType(
        [
            StructField(name, kind)
            for name, kind in _TABLES[options.table].items()
            if name != "headers" or options.include_headers
        ]
    )


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise ``OptionError`` for a schema, as given by ``.schema(…)``, with columns that there are not."""
    known = _TABLES[options.table]
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(
                f"schema: table {options.table!r} has no column {field.name!r}; it has {', '.join(known)}"
            )
        wanted = known[field.name]
        if field.dataType != wanted:
            raise OptionError(
                f"schema: column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}:"
                " read it so, and cast it"
            )


class Batches:
    """Makes batches of rows, whose values are those of ``names`` behind the offset."""

    def __init__(self, schema: StructType) -> None:
        self.names = schema.fieldNames()
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def of(self, rows: Sequence[Row]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True))[1:]
        arrays = [_array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pc.multiply(pa.array(values, pa.int64()), 1000).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    return pa.array(values, kind)
