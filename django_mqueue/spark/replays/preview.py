"""Show what a replay would store, without any change."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..collecting import collect_all
from .choice import MessageFilter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS, SAMPLE, CUT = 20, 5, 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class End:
    """The first or the last of the chosen messages."""

    offset: int
    published_at: datetime


@dataclass(frozen=True)
class Preview:
    """The messages that a replay would store.

    * ``groups``: the groups that would get the copies.
    * ``total``: the number of messages.
    * ``kinds``, ``hours``, ``keys``: numbers by kind, by hour of publication (UTC), and by key. ``keys`` has only the
      most frequent keys; None: no key.
    * ``stored``: how many of the messages an earlier run of this name has stored.
    """

    name: str
    topic: str
    to: str
    groups: tuple[str, ...]
    total: int
    first: End | None
    last: End | None
    kinds: dict[str, int] = field(default_factory=dict)
    hours: dict[datetime, int] = field(default_factory=dict)
    keys: dict[str | None, int] = field(default_factory=dict)
    sample: tuple[dict[str, Any], ...] = ()
    stored: int = 0


def preview(
    choice: MessageFilter, frame: DataFrame, *, name: str, topic: str, to: str, groups: list[str], stored: int
) -> Preview:
    """Return the preview of the messages that are chosen from the frame. Spark reads the frame three times.

    Raises ``OptionError``.
    """
    with choice.asked(frame.sparkSession):
        return _preview(choice.of(frame), name=name, topic=topic, to=to, groups=groups, stored=stored)


def _preview(frame: DataFrame, *, name: str, topic: str, to: str, groups: list[str], stored: int) -> Preview:
    from pyspark.sql import functions as f

    hour = f.floor(f.unix_millis("published_at") / 3_600_000).alias("hour")
    at = f.unix_millis("published_at")
    counted = collect_all(
        frame.groupBy("kind", hour).agg(
            f.count("*").alias("n"),
            f.min(f.struct("offset", at.alias("at"))).alias("first"),
            f.max(f.struct("offset", at.alias("at"))).alias("last"),
        )
    )
    kinds: dict[str, int] = {}
    hours: dict[datetime, int] = {}
    for row in sorted(counted, key=lambda row: (row["hour"], row["kind"] or "")):
        kinds[row["kind"] or ""] = kinds.get(row["kind"] or "", 0) + row["n"]
        began = EPOCH + timedelta(hours=row["hour"])
        hours[began] = hours.get(began, 0) + row["n"]
    keys = collect_all(frame.groupBy("key").count().orderBy(f.desc("count"), "key").limit(KEYS))
    return Preview(
        name=name,
        topic=topic,
        to=to,
        groups=tuple(groups),
        total=sum(kinds.values()),
        first=_end(min((row["first"] for row in counted), default=None)),
        last=_end(max((row["last"] for row in counted), default=None)),
        kinds=dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        hours=hours,
        keys={row["key"]: row["count"] for row in keys},
        sample=tuple(_sample(frame)),
        stored=stored,
    )


def _sample(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    from ..reader.columns import VALUE

    at = f.unix_millis("published_at").alias("published_at")
    cut = f.substring(VALUE, 1, CUT).alias("payload")
    rows = collect_all(frame.select("offset", "key", "id", "kind", at, cut).orderBy("offset").limit(SAMPLE))
    return [{**row.asDict(), "published_at": _time(row["published_at"])} for row in rows]


def _end(found: Any) -> End | None:
    return None if found is None else End(int(found["offset"]), _time(found["at"]))


def _time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)
