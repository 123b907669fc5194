"""Delivery history of which archive and log each have a part.

It is archived when all groups are done, or after a while; then groups go on with messages that the log still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..collecting import collect_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ONE = ["topic", "offset", "reader"]


def large(frame: DataFrame) -> DataFrame:
    """A side of a join that is never to be held in memory as a whole.

    Spark would do so where it takes a table for small by its files, in which many rows may need little.
    """
    return frame.hint("merge")


def completed(archived: DataFrame, held: DataFrame) -> DataFrame:
    """What was ``archived``, but of deliveries that were open then, or had not begun, what the log has of them now.

    ``held``: the log's, of messages whose history is archived. What had ended by then stays as it was archived: a
    ``reset`` takes it out of the log, but not out of what happened.
    """
    lowest = collect_all(held.agg({"offset": "min"}))[0][0]
    if lowest is None:
        return archived
    held = held.selectExpr("*", "true AS archived")
    before = archived.where(f"done OR `offset` < {lowest}")
    late = archived.where(
        f"`offset` >= {lowest}"
    )  # The log holds little of what is archived: so is little joined.
    still_open = late.where("NOT done").join(large(held.select(*_ONE)), _ONE, "left_anti")
    since = held.join(large(late.where("done").select(*_ONE)), _ONE, "left_anti")
    return before.unionByName(still_open).unionByName(since)
