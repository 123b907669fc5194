"""Combine delivery history from the archive and from the log.

History is archived when all groups are done, or after a while. In the second case, groups continue with messages that
the log still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..collecting import collect_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ONE = ["topic", "offset", "reader"]


def never_broadcast(frame: DataFrame) -> DataFrame:
    """Mark one side of a join, so that Spark never holds all of it in memory.

    Spark would do this for a table with small files, even if these hold many rows.
    """
    return frame.hint("merge")


def merge_history(archived: DataFrame, held: DataFrame) -> DataFrame:
    """Return the archived history, with the newer state of the log for unfinished deliveries.

    These deliveries were open when their history was archived, or had not begun. ``held``: the log's history of
    archived messages. A delivery that had ended stays as it was archived: a ``reset`` removes it from the log, but it
    did happen.
    """
    lowest = collect_all(held.agg({"offset": "min"}))[0][0]
    if lowest is None:
        return archived
    held = held.selectExpr("*", "true AS archived")
    before = archived.where(f"done OR `offset` < {lowest}")
    late = archived.where(
        f"`offset` >= {lowest}"
    )  # Few archived messages are still in the log, so the join is small.
    still_open = late.where("NOT done").join(never_broadcast(held.select(*_ONE)), _ONE, "left_anti")
    since = held.join(never_broadcast(late.where("done").select(*_ONE)), _ONE, "left_anti")
    return before.unionByName(still_open).unionByName(since)
