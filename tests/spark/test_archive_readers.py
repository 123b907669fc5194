"""Other tools read an archive's tables: Polars, pandas, pyarrow, DuckDB. They get the same rows as Spark.

Python objects of all columns are compared, also after a compaction and an erasure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import Message
from django_mqueue.spark import Archive, archive, compact, erase, verify
from tests.support.subscribers import QUICK, in_log, poll_until

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.one_server]

TOPICS = (
    "orders",
    "a b/c",
    "Käse & Brötchen?#=",
    "100%",
    "100%25",
    "a%20b%2Fc",
    "ä",
    "ae",
    "'quoted\"",
    "日本",
)
"""The last parts of folders. Tools quote and unquote some of these characters in paths of Delta tables."""

TABLES = ("messages", "dead_letters", "deliveries")
DAY = 86_400_000

Row = tuple[Any, ...]
Tool = Callable[[Path], list[dict[str, Any]]]


def delta(table: Path) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(str(table))


def by_polars(table: Path) -> list[dict[str, Any]]:
    import polars

    return list(polars.scan_delta(str(table)).collect().to_dicts())


def by_pandas(table: Path) -> list[dict[str, Any]]:
    found = delta(table).to_pandas()
    return list(found.astype(object).where(found.notna(), None).to_dict("records"))


def by_pyarrow(table: Path) -> list[dict[str, Any]]:
    return list(delta(table).to_pyarrow_dataset().to_table().to_pylist())


def by_duckdb(table: Path) -> list[dict[str, Any]]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", delta(table).to_pyarrow_dataset())
        return list(connection.sql("SELECT * FROM rows").to_arrow_table().to_pylist())


TOOLS: tuple[Tool, ...] = (by_polars, by_pandas, by_pyarrow, by_duckdb)


def comparable(rows: list[dict[str, Any]]) -> list[Row]:
    """Return sorted rows without the date, with all times as microseconds in UTC."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):  # pandas has a subclass.
            return round(value.timestamp() * 1_000_000)
        return int(value) if isinstance(value, float) else value

    names = sorted({name for row in rows for name in row} - {"date"})
    return sorted((tuple(plain(row[name]) for name in names) for row in rows), key=repr)


def check_all(spark: SparkSession, folder: Path, tools: Sequence[Tool] = TOOLS) -> dict[str, int]:
    """Compare the rows that each tool reads with the rows that Spark reads. Return the number of rows by table."""
    counts = {}
    for name in TABLES:
        found = Archive.open(folder)
        frame = found.frame(spark, found.topics(), name)  # type: ignore[arg-type]
        wanted = comparable([row.asDict() for row in in_microseconds(frame).collect()])
        counts[name] = len(wanted)
        for tool in tools:
            rows = tool(folder / name)
            assert comparable(rows) == wanted, f"{tool.__name__}, {name}"
            entries = [entry for topic in found.topics() for entry in found.entries(topic, name)]  # type: ignore[arg-type]
            assert {str(row["date"])[:10] for row in rows} == {entry.date for entry in entries}
    return counts


def in_microseconds(frame: Any) -> Any:
    """Return the frame with numbers as times. Spark returns times without a time zone."""
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampType

    for field in frame.schema:
        if isinstance(field.dataType, TimestampType):
            frame = frame.withColumn(field.name, functions.unix_micros(field.name))
    return frame


@pytest.fixture
def folder(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Path:
    """Return an archive of all topics, with messages of two days, dead letters and deliveries."""
    for topic in TOPICS:
        with Subscription(topic, "billing") as subscription:
            publish(topic, {"topic": topic}, key="ada", id=f"{topic}-1", kind="placed", headers={"by": "web"})
            publish(topic, b"\x00\xff", id=f"{topic}-2")
            publish_many(topic, [OutgoingMessage(n, key=f"k{n % 3}") for n in range(6)])
            offsets = in_log(topic)
            Message.objects.filter(offset__in=offsets[:4]).update(published_at=20_000 * DAY + 123)
            Message.objects.filter(offset__in=offsets[4:]).update(published_at=20_001 * DAY)
            first, *others = poll_until(subscription, len(offsets))
            first.reject("no such customer: 'ä'")
            for other in others:
                other.ack()
    folder = tmp_path / "archive"
    archive(spark, TOPICS, str(folder), options=options, history_after=0)
    publish_many(TOPICS[0], range(3))
    publish_many(TOPICS[1], range(3))
    archive(spark, TOPICS, str(folder), options=options, history_after=0)
    return folder


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_all_tools_read_the_same_rows(spark: SparkSession, folder: Path) -> None:
    count = len(TOPICS)
    whole = {"messages": 8 * count + 6, "dead_letters": count, "deliveries": 8 * count}
    assert check_all(spark, folder) == whole
    assert sum(each.files - each.files_now for each in compact(spark, str(folder))) > 0
    assert check_all(spark, folder) == whole
    for topic in TOPICS:
        erased = erase(spark, str(folder), topic, key="ada", keep_hours=0)
        assert erased.rows == {"messages": 1, "dead_letters": 1, "deliveries": 1}
    after = {"messages": 7 * count + 6, "dead_letters": 0, "deliveries": 7 * count}
    assert check_all(spark, folder) == after
    assert all(found.problems == [] for found in verify(spark, str(folder), clean=True, keep_hours=0))
    assert check_all(spark, folder) == after
    moved = folder.rename(folder.with_name("ein Archiv & 100% ä"))
    others = [tool for tool in TOOLS if tool is not by_polars]
    assert check_all(spark, moved, others) == after, "Polars cannot read tables in folders of such names"


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_tools_read_only_the_files_of_a_topic_or_day(folder: Path) -> None:
    """Topic and date are the partitions of the tables. Offsets have bounds in each file."""
    import polars
    import pyarrow.dataset as ds

    table = delta(folder / "messages")
    dataset = table.to_pyarrow_dataset()
    for topic in TOPICS:
        wanted = 11 if topic in TOPICS[:2] else 8
        assert dataset.to_table(filter=ds.field("topic") == topic).num_rows == wanted
        lazy = polars.scan_delta(str(folder / "messages")).filter(polars.col("topic") == topic)
        assert lazy.collect().height == wanted
        entries = Archive.open(folder).entries(topic)
        uris = table.file_uris(file_pruning_predicate=[("topic", "=", topic)])
        assert sorted(uri.rpartition("/")[2] for uri in uris) == sorted(
            entry.path.rpartition("/")[2] for entry in entries
        )
    first_day = dataset.to_table(filter=ds.field("date") == date(2024, 10, 4))
    assert first_day.num_rows == 4 * len(TOPICS)
    last = max(entry.last for topic in TOPICS for entry in Archive.open(folder).entries(topic))
    fragments = list(dataset.get_fragments(filter=ds.field("offset") == last))
    assert len(fragments) == 1, "the other files cannot have the row, as their bounds show"


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_polars_reads_the_date(folder: Path) -> None:
    """Polars takes values of partitions from folders with names such as ``date=2024-10-04``."""
    import polars

    rows = polars.scan_delta(str(folder / "messages"))
    assert rows.filter(polars.col("date").is_null()).collect().height == 0
    first_day = rows.filter(polars.col("date") == date(2024, 10, 4))
    assert first_day.collect().height == 4 * len(TOPICS)


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_all_tools_read_the_same_topic_of_a_dead_letter(spark: SparkSession, folder: Path) -> None:
    """Filters by topic must find the same rows with each tool."""
    frame = Archive.open(folder).frame(spark, TOPICS, "dead_letters")
    wanted = {row["topic"] for row in frame.collect()}
    for tool in TOOLS:
        assert {row["topic"] for row in tool(folder / "dead_letters")} == wanted, tool.__name__
