"""Surprising behaviour of Spark's Python data sources: Spark still behaves so, and our code avoids the trap.

Tests named ``test_spark_…`` fail when PySpark has changed. The code next to them can then be simplified, or must be
reviewed. The other tests fail when our own code falls into the trap. Names without a file are in this file.

| Trap | Spark still behaves so | Our code avoids it |
|---|---|---|
| 1. Filters that are pushed down stay for the next query on the same frame | `test_spark_leaks_pushed_filters` | `test_no_filters_are_pushed_down` |
| 2. Spark calls `commit` one batch late, and never for the last batch | `test_spark_commits_late_and_never_the_last_batch` | `test_streams.py::test_a_query_to_the_end_reads_all_and_its_group_is_done_with_all`, `test_streams.py::test_a_query_that_runs_on_has_done_its_last_batch_too`, `test_streams.py::test_a_batch_that_fails_is_not_done_and_comes_again` |
| 3. A read must not end at the newest offset: messages below it may still commit | | `test_batch.py::test_nothing_is_read_that_a_transaction_may_still_commit_below`, `test_streams.py::test_what_may_still_commit_is_waited_for`, `test_following.py::test_a_batch_does_not_pass_what_may_still_commit` |
| 4. Workers run the first `python3` on `PATH` | | `test_launching.py::test_workers_are_of_this_interpreter_and_find_what_they_need`, `test_launching.py::test_workers_run_the_python_of_this_process` |
| 6. Spark's file sink leaves files that do not count, and syncs none | | `test_archive_runs.py::test_a_run_that_ended_anywhere_is_gone_on_with`, `test_archive_storage.py::test_files_are_whole_and_never_replaced`, `test_archive_storage.py::test_a_local_file_is_synced_before_it_has_its_name`, `test_archive_catalog.py::test_all_rows_are_read_that_the_tables_name` |
| 7. A stream without new messages asks for them without a pause | `test_spark_asks_for_news_without_a_pause` | `test_a_stream_without_news_asks_a_few_times_a_second` |
| 8. Spark calls `read` even without partitions | `test_spark_reads_where_there_is_nothing` | `test_where_there_is_nothing_nothing_is_read` |
| 8. Arrow's schema must be exactly the same | `test_spark_refuses_another_time_zone` | `test_batches_have_the_schema_that_spark_wants` |
| 8. Spark compares offsets as text | | `test_ranges.py::test_the_text_of_offsets_does_not_depend_on_how_they_came_about` |
| 8. The limit's field is `max_rows` | `test_spark_names_the_limit_of_rows` | `test_streams.py::test_a_query_to_the_end_reads_all_and_its_group_is_done_with_all` |
| 9. Spark asks a writer to overwrite | | `test_sink.py::test_what_cannot_be_written_is_refused`, `test_a_stream_in_complete_mode_is_refused` |
| 9. `write` receives neither query nor batch; the task's properties have them | | `test_sink.py::test_a_batch_of_a_stream_that_comes_again_stores_nothing_twice` |
| 10. Spark writes and shows its configuration | `test_secrets.py::test_the_password_is_in_nothing_that_spark_writes_down` | `test_secrets.py::test_the_password_is_in_nothing_that_spark_writes_down`, `test_launching.py::test_the_password_is_in_no_plan_and_no_configuration`, `test_options.py::test_what_cannot_be_is_refused` |
| 11. MySQL rewrites the text of a JSON column | `test_payloads_are_read_byte_for_byte_and_headers_as_the_server_has_them` | `test_payloads_are_read_byte_for_byte_and_headers_as_the_server_has_them` |
| 12. An open statement holds a read view | | `test_no_statement_is_open_between_pages` |

Trap 5 and half of trap 12 concern other ways to read the rows (JDBC, connectorx). Only benchmarks use them.
"""  # noqa: E501

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import MySQLdb.cursors
import pytest
from django.db import connection, connections
from django.test import override_settings

from django_mqueue import publish, publish_many
from django_mqueue.policy.encoding import JsonText
from django_mqueue.spark import connecting
from django_mqueue.spark.reader.options import read_options

from . import both_ways
from .streams import committed, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def probes(spark: SparkSession) -> SparkSession:
    from .probes import ALL

    for probe in ALL:
        spark.dataSource.register(probe)
    return spark


def test_the_table_names_tests_that_there_are() -> None:
    assert __doc__ is not None
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", __doc__.split("|---", 1)[1])
    assert len(named) > 20
    for file, name in named:
        text = Path(__file__).with_name(file or Path(__file__).name).read_text()
        assert f"def {name}(" in text, f"{file} has no {name}"


def test_spark_leaks_pushed_filters(probes: SparkSession) -> None:
    """When this fails, a source may push filters down."""
    name = "spark.sql.python.filterPushdown.enabled"
    probes.conf.set(name, "true")
    try:
        numbers = probes.read.format("probe_filters").load()
        assert numbers.filter("x >= 990").count() == 10
        assert numbers.count() == 10, "of 1,000"
    finally:
        probes.conf.unset(name)


def test_no_filters_are_pushed_down(spark: SparkSession, options: dict[str, str]) -> None:
    from pyspark.sql.datasource import DataSourceReader

    from django_mqueue.spark.reader.source import Reader

    assert Reader.pushFilters is DataSourceReader.pushFilters
    offsets = [each.offset for each in publish_many("orders", range(100))]
    frame = spark.read.format("mqueue").options(**options, topic="orders").load()
    assert frame.filter(f"offset >= {offsets[90]}").count() == 10
    assert frame.count() == 100
    assert frame.filter(f"offset < {offsets[5]}").count() == 5


def test_spark_commits_late_and_never_the_last_batch(
    probes: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    """The start of each batch is durable. Spark calls ``commit`` later, after it has planned the next batch."""
    assert [
        line for line in _noted(probes, checkpoint, tmp_path) if not line.startswith("latest from 3")
    ] == [
        "latest from 0, planned -1, done -1",
        "latest from 1, planned 0, done 0",
        "commit of 1, planned 1, done 0",
        "latest from 2, planned 1, done 1",
        "commit of 2, planned 2, done 1",
    ]
    assert committed(checkpoint) == 2


def test_spark_asks_for_news_without_a_pause(probes: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    """When this fails, a reader need not wait by itself. Spark's own pause is a setting of ten milliseconds."""
    jvm = probes._jvm
    conf = jvm.org.apache.spark.sql.internal.SQLConf.get()
    assert conf.streamingPollingDelay() == 10
    asked = sum(line.startswith("latest from 3") for line in _noted(probes, checkpoint, tmp_path, idle=60))
    assert asked >= 60


def _noted(spark: SparkSession, checkpoint: str, place: Path, idle: int = 1) -> list[str]:
    """Return Spark's calls in their order, until it has asked ``idle`` times for more after the last batch."""
    notes = place / "notes"
    reader = spark.readStream.format("probe_steps").options(notes=str(notes), checkpoint=checkpoint)
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.start()
    try:
        eventually(lambda: notes.exists() and notes.read_text().count("latest from 3") >= idle, "it is idle")
    finally:
        query.stop()
    return notes.read_text().splitlines()


def test_a_stream_without_news_asks_a_few_times_a_second(
    probes: SparkSession, options: dict[str, str], checkpoint: str, tmp_path: Path
) -> None:
    publish("orders", 1)
    notes = tmp_path / "notes"
    reader = probes.readStream.format("probe_counted").options(**options, topic="orders", notes=str(notes))
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.start()
    try:
        eventually(lambda: committed(checkpoint) == 0, "the message is read")
        begun, before = time.monotonic(), _lines(notes)
        eventually(lambda: _lines(notes) >= before + 10, "it goes on asking")
        assert time.monotonic() - begun > 1, "five times a second"
    finally:
        query.stop()


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_spark_reads_where_there_is_nothing(probes: SparkSession) -> None:
    assert [row.asked for row in probes.read.format("probe_nothing").load().collect()] == ["None"]


def test_where_there_is_nothing_nothing_is_read(spark: SparkSession, options: dict[str, str]) -> None:
    publish("orders", 1)
    reader = spark.read.format("mqueue").options(**options, topic="orders", startingOffsets="latest")
    assert reader.load().collect() == []


def test_spark_refuses_another_time_zone(probes: SparkSession) -> None:
    def count(zone: str) -> int:
        return int(probes.read.format("probe_moments").option("zone", zone).load().count())

    assert count("UTC") == 1
    with pytest.raises(Exception, match=r"(?i)schema"):
        count("Europe/Berlin")


@pytest.mark.parametrize("table", ["messages", "dead_letters", "deliveries"])
def test_batches_have_the_schema_that_spark_wants(table: str) -> None:
    """Each column has a row with a value and a row without."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from django_mqueue.spark.reader.batches import BatchMaker
    from django_mqueue.spark.reader.columns import schema_of

    schema = schema_of(read_options({"topic": "orders", "table": table, "includeHeaders": "true"}))
    made = BatchMaker(schema, {"topic": "orders"})
    metadata = {"metadata": b'{"kind": "a", "headers": {}, "encoding": "json"}'}
    row = (b"7", *(metadata.get(field, b"1") for field in made.fields))
    nothing = (b"8", *(metadata.get(field) for field in made.fields))
    found = made.of_rows([row, nothing])
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


def test_spark_names_the_limit_of_rows() -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    assert ReadMaxRows(5).max_rows == 5


def test_a_stream_in_complete_mode_is_refused(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """Spark asks the writer to overwrite, and our writer refuses."""
    publish("orders", 1)
    stream = spark.readStream.format("mqueue").options(**options, topic="orders").load()
    counted = stream.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS payload")
    writer = counted.writeStream.format("mqueue").options(**options, topic="counts").outputMode("complete")
    with pytest.raises(Exception, match="can only be appended"):
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


TEXT = '{"b": 959.50, "a":1,"a": 1E2, "ü": "\\u00fc"}'


def test_payloads_are_read_byte_for_byte_and_headers_as_the_server_has_them(options: dict[str, str]) -> None:
    """MySQL's JSON type keeps values only. MariaDB's JSON type is text."""
    publish("orders", JsonText(TEXT), headers={"b": 959.50, "a": 1})
    (row,) = both_ways.read("orders")
    headers = row["headers"]
    assert row["payload"] == TEXT.encode()
    as_published = '{"b":959.5,"a":1}'
    assert json.loads(headers) == json.loads(as_published)
    mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
    assert (headers.replace(" ", "") == as_published) is mariadb, "when MySQL keeps their order too"


@override_settings(MQUEUE={"WAKE_WORKERS": "never"})  # A waking publisher opens another connection.
def test_no_statement_is_open_between_pages(options: dict[str, str]) -> None:
    """Spark may take long with a page. Meanwhile no result is half read, and no transaction is open."""
    from pyspark.sql.types import BinaryType, StructType

    from django_mqueue.spark.reader.planning import batch
    from django_mqueue.spark.reader.reading import FIRST_ROWS, read

    publish_many("orders", [b"x" * 8000 for _ in range(FIRST_ROWS + 500)])
    wanted = read_options({**options, "topic": "orders"})
    (planned,) = batch("default", wanted)
    pages = read(planned, StructType().add("payload", BinaryType()), wanted)
    assert next(pages).num_rows == FIRST_ROWS
    assert _at_work() == (set(), 0)
    assert next(pages).num_rows > 100
    assert _at_work() == (set(), 0)
    assert sum(page.num_rows for page in pages) < 500
    with connecting.connected(wanted.connecting) as using:
        streaming = connections[using].connection.cursor(MySQLdb.cursors.SSCursor)
        streaming.execute("SELECT payload FROM queue_messages")
        assert _at_work()[0] == {"Query"}, "an open statement would be seen"
        connections[using].close()
        connections[using].ensure_connection()
        connections[using].set_autocommit(False)
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM queue_messages FOR UPDATE")
        assert _at_work()[1] == 1, "an open transaction would be seen"


def _at_work() -> tuple[set[str], int]:
    """Return the commands of other active connections to this database, and the number of open transactions."""
    Event().wait(0.15)  # Servers refresh this list every 0.1 seconds.
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID(), DATABASE()")
        me, database = cursor.fetchone()
        cursor.execute("SHOW PROCESSLIST")
        others = {row[0]: row[4] for row in cursor.fetchall() if row[3] == database and row[0] != me}
        cursor.execute("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx")
        return set(others.values()) - {"Sleep"}, len({row[0] for row in cursor.fetchall()} & others.keys())
