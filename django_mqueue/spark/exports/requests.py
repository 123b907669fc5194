"""The arguments of an export, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import OptionError
from ..launching import check_pyspark
from ..reader.options import ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)


@dataclass(frozen=True)
class ExportRequest:
    """The checked arguments of an export: read options, columns and compression of the files."""

    options: ReadOptions
    schema: StructType
    compression: Compression


def export_request(
    options: Mapping[str, str], columns: Sequence[str] | None, compression: str
) -> ExportRequest:
    """Check the arguments of an export, and return them.

    Raises ``OptionError``, or ``NoSpark`` if PySpark cannot be used. Most checks do not need PySpark, and come first.
    """
    if compression not in COMPRESSIONS:
        raise OptionError(f"compression is {compression!r}, but must be one of {', '.join(COMPRESSIONS)}")
    found = read_options(options, streaming=False)
    if isinstance(columns, str):
        raise OptionError(f"columns is {columns!r}, but must be a list of names")
    if columns is not None and not len(set(columns)) == len(columns) > 0:
        raise OptionError(f"columns is {list(columns)!r}, but must name at least one, and none twice")
    check_pyspark()
    return ExportRequest(found, _schema(found, columns), compression)


def _schema(options: ReadOptions, columns: Sequence[str] | None) -> StructType:
    from pyspark.sql.types import StructType

    from ..reader.columns import schema_of

    if columns is None:
        return schema_of(options)
    known = {field.name: field for field in schema_of(replace(options, include_headers=True))}
    for name in columns:
        if name not in known:
            raise OptionError(
                f"columns: table {options.table!r} has no column {name!r}; it has {', '.join(known)}"
            )
    return StructType([known[name] for name in columns])
