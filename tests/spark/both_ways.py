"""Read a topic as rows and as blocks, which must give the same result. Needs PySpark, but no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from django_mqueue.spark.reader.batches import BatchMaker, UnparsableBlock
from django_mqueue.spark.reader.columns import schema_of
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.sql.pages import Pages

EVERYTHING = 2**62


def read(
    topic: str, group: str | None = None, *, table: str = "messages", dense: bool = False
) -> list[dict[str, Any]]:
    """Return all columns of a topic.

    Read them as rows and as blocks, and check that both are equal. If a value contains a separator, a block that has
    the values inside its lines must raise ``UnparsableBlock``.
    """
    options = read_options({"topic": topic, "table": table, "includeHeaders": "true"})
    made = BatchMaker(schema_of(options), {"topic": topic} | ({"group": group} if group else {}))
    pages = Pages(topic, made.fields, None, group, dense)
    rows, _ = pages.rows("default", 0, EVERYTHING, 100_000, 2**30)
    found = made.of_rows(rows)
    found.validate(full=True)
    told: list[dict[str, Any]] = found.to_pylist()
    joined = made.of_block(pages.block("default", 0, EVERYTHING, separate=True))
    joined.validate(full=True)
    assert joined.to_pylist() == told
    binaries = [row[name] or b"" for row in told for name in made.binaries]
    within = pages.block("default", 0, EVERYTHING)
    if any(_between(binary) for binary in binaries):
        with pytest.raises(UnparsableBlock):
            made.of_block(within)
    else:
        joined = made.of_block(within)
        joined.validate(full=True)
        assert joined.to_pylist() == told
    return told


def _between(binary: bytes | str) -> bool:
    """Return True if the value contains a separator of lines or values, or is the sign for null."""
    raw = binary.encode() if isinstance(binary, str) else binary
    return raw == b"\x1e" or any(end in raw for end in (b"\n", b"\r", b"\x1f"))
