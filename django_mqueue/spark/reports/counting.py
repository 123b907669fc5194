"""Count the tables in Spark. Only counts return to the driver, and they are as small as the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...policy import errors as alike_errors
from ..collecting import collect_all
from ..errors import OptionError
from .backlogs import AFTER, BEFORE
from .both import never_broadcast
from .facts import facts_of, letters_alone, size, standing, starts_of
from .figures import ACCURACY, PERCENTILES
from .reading import Read
from .requests import ReportRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX = 200_000
"""The maximum number of rows that the driver accepts for each table."""

_POINTS = f"array({', '.join(str(point / 100) for point in PERCENTILES)})"


@dataclass
class Counted:
    """Rows that Spark has counted, as small dicts. Steps are numbered from 1970 on.

    * ``held``: messages that groups are done with, and that are archived and still in the log. They are counted by the
      step in which a group was done.
    * ``known``: ends of deleted messages that are known, by the step in which the messages were published.
    """

    published: list[dict[str, Any]]
    delivered: list[dict[str, Any]]
    ended: list[dict[str, Any]]
    held: list[dict[str, Any]]
    known: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    letters: list[dict[str, Any]]
    totals: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    keys: list[dict[str, Any]]
    key_totals: list[dict[str, Any]]


def counted(spark: SparkSession, read: Read, wanted: ReportRequest, step: Callable[[], None]) -> Counted:
    """Return all counts. Raises ``OptionError`` if a table has too many rows."""

    def collected(frame: DataFrame | None) -> list[dict[str, Any]]:
        if frame is None:
            step()
            return []
        rows = collect_all(frame.limit(ROWS_MAX + 1))
        if len(rows) > ROWS_MAX:
            way = "by='day', " if wanted.by == "hour" else ""
            raise OptionError(
                f"the report would have more than {ROWS_MAX:,} rows in one of its tables: ask for {way}fewer topics,"
                " or a shorter time (since, until)"
            )
        step()
        return [row.asDict() for row in rows]

    facts, letters = facts_of(spark, read).persist(), letters_alone(read).persist()
    try:
        return Counted(
            published=collected(_published(spark, read, wanted)),
            delivered=collected(_delivered(facts, wanted)),
            ended=collected(_ended(facts, wanted)),
            held=collected(_held(spark, read, wanted) if "deliveries" in read.held else None),
            known=collected(_known(facts, wanted) if read.held else None),
            failures=collected(_failures(facts, letters, wanted)),
            letters=collected(_letters(letters, wanted)),
            totals=collected(_totals(facts, wanted)),
            errors=collected(_errors(facts, letters, wanted)),
            keys=collected(_keys(read, wanted)),
            key_totals=collected(_key_totals(read, wanted)),
        )
    finally:
        letters.unpersist()
        facts.unpersist()


def _step(moment: str, wanted: ReportRequest) -> str:
    """Return an SQL expression: the number of the step that contains a moment."""
    found = f"CAST(floor({moment} / {wanted.step}) AS BIGINT)"
    if wanted.until is not None:
        found = f"IF({moment} >= {wanted.until}, {AFTER}L, {found})"
    if wanted.since is not None:
        found = f"IF({moment} < {wanted.since}, {BEFORE}L, {found})"
    return found


def _within(moment: str, wanted: ReportRequest) -> str:
    found = [f"{moment} IS NOT NULL"]
    if wanted.since is not None:
        found.append(f"{moment} >= {wanted.since}")
    if wanted.until is not None:
        found.append(f"{moment} < {wanted.until}")
    return " AND ".join(found)


def _percentiles(time: str, test: str) -> str:
    return f"percentile_approx({time}, {_POINTS}, {ACCURACY}) FILTER (WHERE {test})"


def _published(spark: SparkSession, read: Read, wanted: ReportRequest) -> DataFrame:
    """Count messages. ``above``: the number of distinct starts of the topic's groups that lie below them."""
    from pyspark.sql import functions as f

    starts = starts_of(spark, read).groupBy("topic").agg(f.collect_set("start").alias("starts"))
    rows = standing(read).join(f.broadcast(starts), "topic", "left")
    return (
        rows.selectExpr(
            "topic", "target", f"{_step('published', wanted)} AS step", "came", "there",
            f"{size('filter(starts, start -> start < `offset`)')} AS above", "published",
        )
        .groupBy("topic", "target", "step", "came", "there", "above")
        .agg(f.count("*").alias("rows"), f.min("published").alias("low"), f.max("published").alias("high"))
    )  # fmt: skip


def _delivered(facts: DataFrame, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        facts.where(f"waited IS NOT NULL AND {_within('delivered', wanted)}")
        .withColumn("step", f.expr(_step("delivered", wanted)))
        .groupBy("topic", "reader", "step")
        .agg(f.expr(f"{_percentiles('waited', 'true')} AS waited"), f.count("*").alias("of"))
    )


FINISHED = "ending = 'finished'"

_ENDS = (
    "count_if(ending = 'finished') AS finished",
    "count_if(ending = 'dead') AS dead",
    "count_if(ending = 'removed') AS removed",
    "coalesce(sum(attempts) FILTER (WHERE ending IN ('finished', 'dead')), 0) AS attempts",
    "coalesce(max(attempts) FILTER (WHERE ending IN ('finished', 'dead')), 0) AS most_attempts",
    "count_if(ending = 'finished' AND attempts > 1) AS retried",
    f"{_percentiles('took', FINISHED)} AS took",
    "count(took) FILTER (WHERE ending = 'finished') AS took_of",
)


_COUNTED = ("count_if(counts) AS counted", "count_if(counts AND there) AS counted_there")


def _ended(facts: DataFrame, wanted: ReportRequest) -> DataFrame:
    """Count ends.

    ``counted``: ends of messages that the backlog includes. ``counted_there``: only if the log still holds them.
    """
    from pyspark.sql import functions as f

    return (
        facts.where("ending <> 'open' AND ended IS NOT NULL")
        .withColumn("step", f.expr(_step("ended", wanted)))
        .groupBy("topic", "reader", "step")
        .agg(*(f.expr(one) for one in (*_ENDS, *_COUNTED)))
    )


def _held(spark: SparkSession, read: Read, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    done = read.held["deliveries"].where("done AND ended IS NOT NULL")
    return (
        done.join(
            never_broadcast(standing(read).where("there").select("topic", "offset")), ["topic", "offset"]
        )
        .join(f.broadcast(starts_of(spark, read)), ["topic", "reader"])
        .where("`offset` > start")
        .withColumn("step", f.expr(_step("ended", wanted)))
        .groupBy("topic", "reader", "step")
        .agg(f.count("*").alias("rows"))
    )


def _known(facts: DataFrame, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        facts.where("ending <> 'open' AND ended IS NOT NULL AND counts AND NOT there")
        .withColumn("step", f.expr(_step("published", wanted)))
        .groupBy("topic", "reader", "step")
        .agg(f.count("*").alias("rows"))
    )


def _totals(facts: DataFrame, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    ended = f"ending <> 'open' AND {_within('ended', wanted)}"
    delivered = _within("delivered", wanted)
    waited = f"waited IS NOT NULL AND {delivered}"
    # Counts of ends leave out deliveries that ended outside of the requested time.
    seen = facts.withColumn("ending", f.expr(f"IF(ending = 'open' OR ({ended}), ending, 'outside')"))
    return seen.groupBy("topic", "reader").agg(
        *(f.expr(one) for one in _ENDS),
        f.expr(f"{_percentiles('waited', waited)} AS waited"),
        f.expr(f"count_if({waited}) AS waited_of"),
        f.expr(f"count_if(several AND {delivered}) AS several"),
        f.expr("count_if(ending = 'open' AND in_flight) AS in_flight"),
        f.expr("count_if(ending = 'open' AND NOT in_flight) AS waiting"),
        f.expr(
            "coalesce(sum(greatest(failed - kept, 0)) FILTER (WHERE ending NOT IN ('aside', 'outside')), 0)"
            " AS not_kept"
        ),
    )


def _attempts(facts: DataFrame, letters: DataFrame, wanted: ReportRequest) -> DataFrame:
    """Return the failed attempts whose errors are known: topic, reader, at, error."""
    own = facts.selectExpr("topic", "reader", "explode(own) AS failure").selectExpr(
        "topic", "reader", "failure.at AS at", "failure.error AS error"
    )
    last = letters.selectExpr("topic", "reader", "ended AS at", "error")
    return own.unionByName(last).where(_within("at", wanted))


def _failures(facts: DataFrame, letters: DataFrame, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    found = _attempts(facts, letters, wanted).withColumn("step", f.expr(_step("at", wanted)))
    return found.groupBy("topic", "reader", "step").agg(f.count("*").alias("failures"))


def _letters(letters: DataFrame, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    found = letters.where(_within("ended", wanted)).withColumn("step", f.expr(_step("ended", wanted)))
    return found.groupBy("topic", "reader", "step").agg(f.count("*").alias("dead"))


def _errors(facts: DataFrame, letters: DataFrame, wanted: ReportRequest) -> DataFrame:
    """Return the most frequent kinds of errors for each group."""
    from pyspark.sql import functions as f

    found = _attempts(facts, letters, wanted).mapInArrow(
        kinds, "topic STRING, reader STRING, at BIGINT, error STRING, is_class BOOLEAN, line STRING"
    )
    each = found.groupBy("topic", "reader", "error", "is_class").agg(
        f.count("*").alias("count"),
        f.min("at").alias("first"),
        f.max("at").alias("last"),
        f.max_by("line", "at").alias("example"),
    )
    return _top(each, ("topic", "reader"), ("count", "error"), wanted.top)


ONCE = "came IN ('new', 'back')"
"""Excludes retries that come into the log again, and copies that give a group the past."""


def _keys(read: Read, wanted: ReportRequest) -> DataFrame:
    each = _each_key(read, wanted).where("key IS NOT NULL")
    return _top(each, ("topic",), ("count", "key"), wanted.top)


def _each_key(read: Read, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    messages = read.tables["messages"].where(f"{ONCE} AND {_within('published', wanted)}")
    return messages.groupBy("topic", "key").agg(f.count("*").alias("count"))


def _key_totals(read: Read, wanted: ReportRequest) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        _each_key(read, wanted)
        .groupBy("topic")
        .agg(
            f.count("key").alias("keys"),
            f.expr("coalesce(sum(count) FILTER (WHERE key IS NULL), 0) AS without_key"),
        )
    )


def _top(frame: DataFrame, of: Sequence[str], by: tuple[str, str], most: int) -> DataFrame:
    """Return the ``most`` rows of each group of rows.

    Rows are sorted by the first column of ``by``, the highest first, and then by the second column, the lowest first.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    window = Window.partitionBy(*of).orderBy(f.desc(by[0]), f.asc(by[1]))
    return frame.withColumn("place", f.row_number().over(window)).where(f"place <= {most}")


def kinds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace errors by their class. An error without a class becomes its first line, with # for numbers.

    This runs on executors.
    """
    import pyarrow as pa

    for batch in batches:
        found = [_kind(error) for error in batch.column("error").to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [
                batch.column("topic"),
                batch.column("reader"),
                batch.column("at"),
                pa.array([kind for kind, _, _ in found], pa.string()),
                pa.array([is_class for _, is_class, _ in found], pa.bool_()),
                pa.array([line for _, _, line in found], pa.string()),
            ],
            ["topic", "reader", "at", "error", "is_class", "line"],
        )


def _kind(error: str | None) -> tuple[str, bool, str]:
    alike = alike_errors.alike(error)
    is_class = alike_errors.is_class(alike.name)
    return (alike.name if is_class else alike.line), is_class, alike.line
