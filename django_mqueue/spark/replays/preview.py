"""Show what a replay or a backfill would store, without any change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...policy.durations import moment
from ..collecting import collect_all
from ..reader.conditions import evaluated
from .message_filter import MessageFilter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS, SAMPLE, CUT = 20, 5, 200
"""The number of keys, of sample messages, and of characters of a sample's payload, in a preview."""


@dataclass(frozen=True)
class End:
    """The first or the last of the chosen messages."""

    offset: int
    published_at: datetime


@dataclass(frozen=True)
class Preview:
    """The messages that a replay or a backfill would store. The values of each mapping are numbers of messages."""

    name: str
    topic: str
    to: str
    groups: tuple[str, ...]  # The groups that would get the copies.
    total: int
    first: End | None
    last: End | None
    kinds: dict[str, int] = field(default_factory=dict)
    hours: dict[datetime, int] = field(default_factory=dict)  # By hour of publication, in UTC.
    keys: dict[str | None, int] = field(default_factory=dict)  # Only the most frequent keys. None: no key.
    sample: tuple[dict[str, Any], ...] = ()
    stored: int = 0  # How many of them an earlier run of this name has stored.


def preview(
    message_filter: MessageFilter,
    frame: DataFrame,
    *,
    name: str,
    topic: str,
    to: str,
    groups: list[str],
    stored: int,
) -> Preview:
    """Return the preview of the messages that are chosen from the frame. Spark reads it three times."""
    from pyspark.sql import functions as f

    from ..reader.columns import VALUE

    at = f.unix_millis("published_at")
    hour = f.floor(at / 3_600_000).alias("hour")
    end = f.struct("offset", at.alias("at"))
    with evaluated(frame.sparkSession, message_filter.where):
        chosen = message_filter.of(frame)
        counted = collect_all(
            chosen.groupBy("kind", hour).agg(
                f.count("*").alias("n"), f.min(end).alias("first"), f.max(end).alias("last")
            )
        )
        by_key = collect_all(chosen.groupBy("key").count().orderBy(f.desc("count"), "key").limit(KEYS))
        cut = f.substring(VALUE, 1, CUT).alias("payload")
        columns = chosen.select("offset", "key", "id", "kind", at.alias("published_at"), cut)
        sample = collect_all(columns.orderBy("offset").limit(SAMPLE))
    kinds: Counter[str] = Counter()
    hours: Counter[datetime] = Counter()
    for row in sorted(counted, key=lambda row: row["hour"]):
        kinds[row["kind"] or ""] += row["n"]
        hours[moment(row["hour"] * 3_600_000)] += row["n"]
    return Preview(
        name=name,
        topic=topic,
        to=to,
        groups=tuple(groups),
        total=kinds.total(),
        first=_end(min((row["first"] for row in counted), default=None)),
        last=_end(max((row["last"] for row in counted), default=None)),
        kinds=dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        hours=dict(hours),
        keys={row["key"]: row["count"] for row in by_key},
        sample=tuple({**row.asDict(), "published_at": moment(row["published_at"])} for row in sample),
        stored=stored,
    )


def _end(found: Any) -> End | None:
    return None if found is None else End(int(found["offset"]), moment(found["at"]))
