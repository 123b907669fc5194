"""Pages of the log made into Arrow's batches, column by column: no value is taken in hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..store.pages import BETWEEN, NULL, Block
from .metadata import of_retries, taken_out

MADE_OF: Mapping[str, Sequence[str]] = {
    "key": ["partition"],
    "kind": ["metadata"],
    "encoding": ["metadata"],
    "headers": ["metadata"],
    "retry_of": ["metadata", "original_id"],
    "first_published_at": ["metadata", "original_id"],
}
"""Columns that no field of the tables holds, and the fields that they are made of."""

LUMPS = ("payload", "last_error", "errors")
Fields = Mapping[str, pa.Array]


class Unclear(Exception):
    """A block whose lines do not tell its rows: something was cut off, or holds what should stand between values."""


class Batches:
    """Makes batches of a schema."""

    def __init__(self, schema: StructType) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")

    def maker(self, constants: Mapping[str, str]) -> Maker:
        """``constants``: columns that all rows have the same text in, and are not read."""
        return Maker(self.schema, constants)


class Maker:
    """Makes batches of what was read: ``fields``."""

    def __init__(self, schema: pa.Schema, constants: Mapping[str, str]) -> None:
        self._schema, self._constants = schema, constants
        wanted = [name for name in schema.names if name not in constants]
        needed = [field for name in wanted for field in MADE_OF.get(name, [name])]
        self.fields = tuple(dict.fromkeys(needed))
        kinds = {field.name: _read_as(field.type) for field in schema}
        self._kinds = {name: kinds.get(name, pa.string()) for name in self.fields}

    def of_rows(self, rows: Sequence[Sequence[bytes | None]]) -> pa.RecordBatch:
        """``rows``: the offset, then the fields."""
        columns = list(zip(*rows, strict=True))[1:]
        fields = {}
        for (name, kind), values in zip(self._kinds.items(), columns, strict=True):
            array = pa.array(values, kind if pa.types.is_binary(kind) else pa.string())
            fields[name] = array.cast(kind)
        return self._batch(fields, len(rows))

    def of_block(self, block: Block) -> pa.RecordBatch:
        """The same, by offset. Raises ``Unclear``."""
        offsets, fields = self._parsed(block)
        batch = self._batch(fields, block.rows)
        if pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
            return batch
        return batch.take(pc.sort_indices(offsets))  # The server may walk through them as it likes.

    def _parsed(self, block: Block) -> tuple[pa.Array, Fields]:
        lumps = [name for name in self.fields if name in LUMPS]
        kinds = {
            str(n): pa.int64() if name in LUMPS else kind
            for n, (name, kind) in enumerate(self._kinds.items())
        }
        names = ["above", *kinds, "end"]
        try:
            table = csv.read_csv(
                pa.BufferReader(block.lines),
                csv.ReadOptions(use_threads=False, block_size=len(block.lines) + 1, column_names=names),
                csv.ParseOptions(delimiter=BETWEEN, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={"above": pa.int64(), **kinds},
                    include_columns=names[:-1],
                    null_values=[NULL],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise Unclear(str(error)) from error
        if table.num_rows != block.rows:
            raise Unclear(f"{table.num_rows} lines for {block.rows} rows")
        found = [column.combine_chunks() for column in table.columns]
        fields = dict(zip(self.fields, found[1:], strict=True))
        for name, joined in zip(lumps, block.lumps, strict=True):
            fields[name] = _cut(joined, fields[name], self._kinds[name])
        return found[0], fields

    def _batch(self, fields: Fields, rows: int) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {name: pa.repeat(value, rows) for name, value in self._constants.items()}
        wanted = [name for name in self._schema.names if name not in made]
        if "key" in wanted:
            made["key"] = _key(fields["partition"])
        if texts := [name for name in wanted if name in ("kind", "encoding", "headers")]:
            made |= taken_out(fields["metadata"], texts)
        if retries := [name for name in wanted if name in ("retry_of", "first_published_at")]:
            made |= of_retries(fields["metadata"], fields["original_id"], retries)
        arrays = [
            _finished(made.get(field.name, fields.get(field.name)), field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """What Arrow reads a text as, for a column of that type."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int8() if pa.types.is_boolean(kind) else kind


def _finished(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        array = pc.multiply(array, 1000)  # Milliseconds, in microseconds.
    return array.cast(kind)


def _key(partition: pa.Array) -> pa.Array:
    """Partitions without a key begin with a blank."""
    keyless = pc.starts_with(partition, " ")
    if not pc.any(keyless).as_py():
        return partition
    return pc.if_else(keyless, pa.scalar(None, pa.string()), partition)


def _cut(joined: bytes, lengths: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of which so many bytes each were joined; null where the length is."""
    ends = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths.fill_null(0))])
    if ends[-1].as_py() != len(joined):
        raise Unclear(f"{len(joined)} bytes of {ends[-1]}")
    valid = pa.array(lengths.is_valid()).buffers()[1] if lengths.null_count else None
    buffers = [valid, ends.cast(pa.int32()).buffers()[1], pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)
