"""Build Arrow record batches from pages of the log, column by column, without a Python loop over the values."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..sql.pages import BETWEEN, NULL, Block

COMPUTED_FROM: Mapping[str, Sequence[str]] = {
    "key": ["partition"],
    "kind": ["metadata"],
    "encoding": ["metadata"],
    "headers": ["metadata"],
    "retry_of": ["metadata", "original_id"],
    "first_published_at": ["metadata", "original_id"],
}
"""Columns that the tables do not store, and the fields from which each is computed."""

BINARIES = ("payload", "last_error", "errors")
Fields = Mapping[str, pa.Array]


# As published: "encoding" is the last member, and no header has braces. Other metadata is parsed as JSON.
_KIND = r'\{"kind": ?"(?P<kind>[^"\\]*)", ?'
_ENCODING = r'"encoding": ?"(?P<encoding>[^"\\]*)"\}'
_PLAIN = rf"^{_KIND}(?s:.*){_ENCODING}$"
_WITH_HEADERS = rf'^{_KIND}"headers": ?(?P<headers>\{{[^{{}}]*\}}), ?{_ENCODING}$'


class UnparsableBlock(Exception):
    """A block that cannot be split into rows: the server cut it off, or a value contains a separator."""


class BatchMaker:
    """Builds record batches. ``constants``: columns that have the same text in all rows; they are not read.

    ``fields``: the fields to read. ``binaries``: the fields of these that may hold any bytes (see ``pages``).
    """

    def __init__(self, schema: StructType, constants: Mapping[str, str]) -> None:
        self._schema, self._constants = to_arrow_schema(schema, timezone="UTC"), constants
        names = [name for name in self._schema.names if name not in constants]
        needed = [field for name in names for field in COMPUTED_FROM.get(name, [name])]
        self.fields = tuple(dict.fromkeys(needed))
        self.binaries = tuple(name for name in self.fields if name in BINARIES)
        kinds = {field.name: _read_as(field.type) for field in self._schema}
        self._kinds = {name: kinds.get(name, pa.string()) for name in self.fields}

    def of_rows(self, rows: Sequence[Sequence[bytes | None]]) -> pa.RecordBatch:
        """Return a batch of these rows. Each row has the offset first, then the fields."""
        columns = list(zip(*rows, strict=True))[1:]
        fields = {
            name: pa.array(values, kind if pa.types.is_binary(kind) else pa.string()).cast(kind)
            for (name, kind), values in zip(self._kinds.items(), columns, strict=True)
        }
        return self._batch(fields, len(rows))

    def of_block(self, block: Block) -> pa.RecordBatch:
        """Return a batch of the rows in a block, sorted by offset. Raises ``UnparsableBlock``."""
        offsets, fields = self._parsed(block)
        batch = self._batch(fields, block.rows)
        if pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
            return batch
        return batch.take(pc.sort_indices(offsets))  # The server may return rows in any order.

    def _parsed(self, block: Block) -> tuple[pa.Array, Fields]:
        """Return the offsets and the fields of a block. Raises ``UnparsableBlock``."""
        kinds: dict[str, pa.DataType] = {"offset": pa.int64()}
        for name, kind in self._kinds.items():
            if name in self.binaries:
                kinds[_length(name)] = pa.int64()
            if name not in self.binaries or block.binaries is None:
                kinds[name] = kind
        try:
            table = csv.read_csv(
                pa.BufferReader(block.lines),
                csv.ReadOptions(
                    use_threads=False, block_size=len(block.lines) + 1, column_names=[*kinds, "end"]
                ),
                csv.ParseOptions(delimiter=BETWEEN, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types=kinds,
                    include_columns=list(kinds),
                    null_values=[NULL],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise UnparsableBlock(str(error)) from error
        if table.num_rows != block.rows:
            raise UnparsableBlock(f"{table.num_rows} lines for {block.rows} rows")
        fields = {name: table.column(name).combine_chunks() for name in kinds}
        for n, name in enumerate(self.binaries):
            lengths = fields.pop(_length(name))
            if block.binaries is None:
                fields[name] = _check_lengths(fields[name], lengths)
            else:
                fields[name] = _cut(block.binaries[n], lengths, self._kinds[name])
        return fields["offset"], fields

    def _batch(self, fields: Fields, rows: int) -> pa.RecordBatch:
        columns = {**fields, **{name: pa.repeat(value, rows) for name, value in self._constants.items()}}
        names = set(self._schema.names)
        if "key" in names:
            columns["key"] = _key(fields["partition"])
        if texts := names & {"kind", "encoding", "headers"}:
            columns |= _from_metadata(fields["metadata"], texts)
        if retries := names & {"retry_of", "first_published_at"}:
            columns |= _from_retries(fields["metadata"], fields["original_id"], retries)
        arrays = [_finished(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow parses from text, for a column of type ``kind``."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int8() if pa.types.is_boolean(kind) else kind


def _finished(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        array = pc.multiply(array, 1000)  # From milliseconds to microseconds.
    return array.cast(kind)


def _key(partition: pa.Array) -> pa.Array:
    """Return the keys. A partition that begins with a blank has no key."""
    keyless = pc.starts_with(partition, " ")
    if not pc.any(keyless).as_py():
        return partition
    return pc.if_else(keyless, pa.scalar(None, pa.string()), partition)


def _length(binary: str) -> str:
    return f"length of {binary}"


def _check_lengths(values: pa.Array, lengths: pa.Array) -> pa.Array:
    """Return the values, null for a null length. Raises ``UnparsableBlock`` if a value does not have its length."""
    found = pc.binary_length(values).fill_null(-1)  # A value equal to ``NULL`` was parsed as null.
    if not pc.all(pc.equal(found, lengths), min_count=0).as_py():
        raise UnparsableBlock("a value that is shorter than it should be")
    if not lengths.null_count:
        return values
    return pc.if_else(lengths.is_valid(), values, pa.scalar(None, values.type))


def _cut(joined: bytes, lengths: pa.Array, kind: pa.DataType) -> pa.Array:
    """Split joined values by their lengths in bytes. Raises ``UnparsableBlock`` if the lengths do not add up."""
    ends = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths.fill_null(0))])
    if ends[-1].as_py() != len(joined):
        raise UnparsableBlock(f"{len(joined)} bytes of {ends[-1]}")
    valid = pa.array(lengths.is_valid()).buffers()[1] if lengths.null_count else None
    buffers = [valid, ends.cast(pa.int32()).buffers()[1], pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _from_metadata(metadata: pa.Array, names: Collection[str]) -> dict[str, pa.Array]:
    """Return the wanted columns of kind, encoding and headers, as texts. Each distinct metadata is parsed once."""
    texts = metadata.dictionary_encode()
    found = pc.extract_regex(texts.dictionary, _WITH_HEADERS if "headers" in names else _PLAIN)
    columns = {name: pc.struct_field(found, name) for name in names}
    if found.null_count:
        odd = pc.is_null(found)
        parsed = [_parsed_metadata(text) for text in texts.dictionary.filter(odd).to_pylist()]
        for name in names:
            values = pa.array([row[name] for row in parsed], pa.string())
            columns[name] = pc.replace_with_mask(columns[name], odd, values)
    return {name: column.take(texts.indices) for name, column in columns.items()}


def _from_retries(metadata: pa.Array, original_ids: pa.Array, names: Collection[str]) -> dict[str, pa.Array]:
    """Return, for a parked retry, the offset of its previous row and the time of its first publication; else null."""
    has_original = pc.is_valid(original_ids)
    retries = [_retry(text) for text in metadata.filter(has_original).to_pylist()]
    columns = dict.fromkeys(names, pa.nulls(len(metadata), pa.int64()))
    for name in names if retries else ():
        member = {"retry_of": "offset", "first_published_at": "published_at"}[name]
        values = pa.array([_whole(retry.get(member)) for retry in retries], pa.int64())
        columns[name] = pc.replace_with_mask(columns[name], has_original, values)
    return columns


def _parsed_metadata(text: str) -> dict[str, str | None]:
    value = json.loads(text)
    found = value if isinstance(value, dict) else {}
    headers = found.get("headers")
    return {
        "kind": _text(found.get("kind")),
        "encoding": _text(found.get("encoding")),
        "headers": None if headers is None else json.dumps(headers, ensure_ascii=False),
    }


def _retry(text: str) -> Mapping[str, object]:
    """Return the record of a message's parked retries; empty if ``publish`` did not write the metadata like this."""
    value = json.loads(text)
    found = value.get("retry") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _whole(value: object) -> int | None:
    """Return the value if it is a whole number of 64 bits."""
    return value if type(value) is int and value.bit_length() < 64 else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
