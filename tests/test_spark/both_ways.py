"""What is read of a topic, as rows and as a block, which must be the same. Needs PySpark, but no JVM."""

from __future__ import annotations

from typing import Any

from django_mqueue.spark.batches import Batches
from django_mqueue.spark.columns import schema_of
from django_mqueue.spark.options import read_options
from django_mqueue.store.pages import Pages, prepare

EVERYTHING = 2**62


def read(
    topic: str, group: str | None = None, *, table: str = "messages", dense: bool = False
) -> list[dict[str, Any]]:
    """All columns. The first way is the server's bytes value by value, the second a few long values."""
    options = read_options({"topic": topic, "table": table, "includeHeaders": "true"})
    made = Batches(schema_of(options)).maker({"topic": topic} | ({"group": group} if group else {}))
    pages = Pages(topic, made.fields, None, group, dense)
    prepare("default")
    rows, _ = pages.rows("default", 0, EVERYTHING, 100_000, 2**30)
    found = made.of_rows(rows)
    found.validate(full=True)
    joined = made.of_block(pages.block("default", 0, EVERYTHING))
    joined.validate(full=True)
    told: list[dict[str, Any]] = found.to_pylist()
    assert joined.to_pylist() == told
    return told
