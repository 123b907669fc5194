"""An archive that is opened: its topics, files and rows, and errors for what is no archive."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.spark import Archive
from django_mqueue.spark.archives import parquet
from django_mqueue.spark.archives.catalog import frame
from django_mqueue.spark.archives.locations import check_location
from django_mqueue.spark.archives.parquet import arrow_schema, files_of, folder_of
from django_mqueue.spark.archives.storage import ObjectStorage, storage_at
from django_mqueue.spark.archives.tables import create_table
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic, OptionError
from django_mqueue.spark.sql.bulk import Last

from .archives import DATE, add, batch, begin, data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.once]

ODD = "a/b %2F [x] {y}=ß?*"
"""A topic's name, of which no character may be a part of the file's path as it is."""
POOLS: list[pa.MemoryPool] = []
"""Memory pools of tests. Threads of pyarrow still use a pool after the test, and crash if it is gone."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return begin(tmp_path / "the [old] archive, {a,b} ?*")


def test_the_tables_tell_what_belongs_to_an_archive(folder: Path) -> None:
    assert Archive.open(folder).topics() == []
    batch(folder, "orders", [1, 2, 5])
    batch(folder, "orders", [6, 9])
    batch(folder, ODD, [3])
    batch(folder, "letters", [4], table="dead_letters")
    data(folder, "orders", [10])
    found = Archive.open(folder)
    assert found.topics() == sorted([ODD, "letters", "orders"])
    assert (found.upto("orders"), found.upto("orders", "dead_letters"), found.upto("none")) == (9, 0, 0)
    told = [
        (entry.topic, entry.date, entry.first, entry.last, entry.rows) for entry in found.entries("orders")
    ]
    assert told == [("orders", "2026-11-21", 1, 5, 3), ("orders", "2026-11-21", 6, 9, 2)]
    for entry in found.entries("orders") + found.entries(ODD):
        assert (folder / entry.path).stat().st_size == entry.bytes
    assert found.entries("orders", "deliveries") == found.entries("none") == []
    assert (found.last("orders"), found.last("none")) == (Last(9, "id-9"), None)
    assert found.select_topics(None) == found.topics()
    assert found.select_topics(["orders"]) == found.select_topics("orders") == ["orders"]
    assert found.select_topics(["orders", "orders"]) == ["orders"], "its rows are read once"


def test_a_topic_without_any_row_is_known(folder: Path) -> None:
    """All its messages were deleted before they could be archived."""
    add(folder, "orders", [], upto=7)
    found = Archive.open(folder)
    assert (found.topics(), found.select_topics("orders"), found.upto("orders")) == ([], ["orders"], 7)


def test_what_was_opened_stays_as_it_was_until_it_is_opened_again(folder: Path, spark: SparkSession) -> None:
    """Also when a file that it names was replaced."""
    first = batch(folder, "orders", [1])
    found = Archive.open(folder)
    batch(folder, "orders", [2])
    again = Archive.open(folder)
    again.snapshots["messages"].commit({}, [data(folder, "orders", [1])], [first])
    assert (found.upto("orders"), found.entries("orders")) == (1, [first])
    assert (again.upto("orders"), len(again.entries("orders"))) == (2, 2)
    assert [row.offset for row in found.frame(spark, "orders").collect()] == [1]
    assert first not in Archive.open(folder).entries("orders")


def test_the_reason_is_told_if_there_is_no_archive(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NoArchive, match=r"no archive at .*/nothing: it holds no file, but no Delta table messages"
    ):
        Archive.open(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises((NoArchive, ArchiveError), match="file"):
        Archive.open(tmp_path / "file")
    (tmp_path / "others").mkdir()
    for name in "abcdef":
        (tmp_path / "others" / name).write_text("")
    with pytest.raises(NoArchive, match=r"it holds a, b, c, d, e and more, but no Delta table messages"):
        Archive.open(tmp_path / "others")
    shutil.rmtree(folder / "messages")  # A killed run may have left the folder so.
    with pytest.raises(
        NoArchive, match=r"it holds dead_letters/_delta_log/0+\.json, .*but no Delta table messages"
    ):
        Archive.open(folder)
    with pytest.raises(OptionError, match="location is empty"):
        Archive.open("")
    with pytest.raises(OptionError, match="has three slashes: give file:///folder"):
        Archive.open("file://host/archive")


@pytest.mark.parametrize("place", ["hdfs://namenode/x", "viewfs:///x", "hadoop+s3a://bucket/x", "zz://x/y"])
def test_other_schemes_are_refused(place: str) -> None:
    with pytest.raises(OptionError, match=r"is not supported: give a path .* that begins with s3://, "):
        Archive.open(place)


def test_an_archive_that_cannot_be_read_is_told(folder: Path) -> None:
    shutil.rmtree(folder / "deliveries")
    with pytest.raises(ArchiveError, match="the table deliveries is missing: restore it from a copy"):
        Archive.open(folder)
    (folder / "messages/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(ArchiveError, match="table messages cannot be read"):
        Archive.open(folder)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    create_table(storage_at(tmp_path), "messages", {"mqueue.format": "2"})
    with pytest.raises(
        ArchiveError, match=r"the archive's format is 2, but .* supports 1: upgrade django_mqueue"
    ):
        Archive.open(tmp_path)


def test_a_table_of_others_is_not_taken_for_an_archive(tmp_path: Path) -> None:
    create_table(storage_at(tmp_path), "messages", {})
    with pytest.raises(ArchiveError, match=r"is not an archive: its Delta table messages has no property"):
        Archive.open(tmp_path)


def test_only_the_last_id_is_read_for_the_last_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 1)
    rows = [data(folder, "orders", [n], payload=bytes(1_000_000)) for n in range(1, 21)]
    with files_of(storage_at(folder), "messages", "orders", arrow_schema("messages")) as files:
        for entry in rows:
            files.put(DATE, pq.ParquetFile(folder / entry.path).read())
    add(folder, "orders", files.entries)
    found, usual = Archive.open(folder), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        assert found.last("orders") == Last(20, "id-20")
    finally:
        pa.set_memory_pool(usual)
    assert 0 < (pool.max_memory() or 0) < 1_000_000


@given(st.text(min_size=1, max_size=128), st.text(min_size=1, max_size=128))
def test_folders_of_topics_are_names_that_no_reader_takes_for_something_else(one: str, two: str) -> None:
    try:
        folder, other = folder_of(one), folder_of(two)
    except UnicodeEncodeError:
        return  # A topic's name cannot contain lone surrogates.
    assert len(folder) <= 80
    assert folder.replace("-", "").isascii()
    assert folder.replace("-", "").isalnum()
    assert folder[0] != "-"
    assert (folder == other) == (one == two)


def test_folders_of_topics_are_as_documented() -> None:
    assert folder_of("orders") == "orders-feb5cde47057"
    assert folder_of("shop/orders 1").startswith("shop-orders-1-")
    assert folder_of("ß").isalnum()


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("s3://me:secret@bucket/x", "s3://…@bucket/x"),
        ("s3://me:se/secret/cret@bucket/x?region=eu", "s3://…@bucket/x"),
        ("s3://me:se@secret/c@bucket/x", "s3://…@bucket/x"),
        ("s3://me:secret?#/et@bucket/x", "s3://…@bucket/x"),
        ("s3://me:0/secret@bucket", "s3://…@bucket"),
        ("s3://me%3Asecret@bucket/x", "s3://…@bucket/x"),
        ("s3://me:secret", "s3://…"),
        ("s3a://me:7/secret@bucket/x", "s3a://…@bucket/x"),
        ("abfs://:secret@account.blob.core.windows.net/box", "abfs://…@account.blob.core.windows.net/box"),
        ("abfs://box:sec/secret==@account.dfs.core.windows.net/x", "abfs://…@account.dfs.core.windows.net/x"),
        (
            "abfs://box@account.dfs.core.windows.net/x?sv=1&sig=secret",
            "abfs://…@account.dfs.core.windows.net/x",
        ),
        (
            "abfs://box@account.dfs.core.windows.net/x?client_secret=secret",
            "abfs://…@account.dfs.core.windows.net/x",
        ),
        ("s3://bucket/x?secret_key=secret&region=eu", "s3://…"),
        ("s3://bucket/x?AccessKey=secret", "s3://…"),
        ("s3://bucket/x?session%5Ftoken=secret", "s3://…"),
        ("s3://bucket/x?endpoint=http://me:secret@minio:9000", "s3://…@minio:9000"),
    ],
)
def test_a_place_with_keys_is_refused_and_they_are_not_repeated(place: str, shown: str) -> None:
    for refuse in (check_location, storage_at, Archive.open):
        with pytest.raises(OptionError, match="the location must not contain keys") as refused:
            refuse(place)
        told = str(refused.value)
        assert told.startswith(f"{shown}: ")
        assert refused.value.__cause__ is None
        assert "secret" not in told.removeprefix(shown)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("/srv/a:b@c", "/srv/a:b@c"),
        ("file:///srv/a:b@c", "/srv/a:b@c"),
        ("file:/srv/x", "/srv/x"),
        ("s3://bucket/day 12:00/a@b/", "s3://bucket/day 12:00/a@b"),
        ("s3://anonymous@bucket/x", "s3://anonymous@bucket/x"),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("abfs://box@account.dfs.core.windows.net/x", "abfs://box@account.dfs.core.windows.net/x"),
    ],
)
def test_a_place_without_keys_is_named_as_the_stores_name_it(given: str, place: str) -> None:
    assert check_location(given) == place


@pytest.mark.parametrize("is_store", [False, True], ids=["Spark reads the files", "Python reads the files"])
def test_all_rows_are_read_that_the_tables_name(folder: Path, spark: SparkSession, is_store: bool) -> None:
    """Older files lack the newest columns. Python reads the files of an object store, for which a folder stands."""
    topics = ["orders", ODD, "k=v", "_hidden"]
    for topic in topics:
        batch(folder, topic, [1, 2], columns=7)
        batch(folder, topic, [3])
    data(folder, "orders", [4])
    archive = Archive.open(folder)
    live = spark.read.format("mqueue").option("topic", "orders").option("includeHeaders", "true").load()
    rows = archive.frame(spark, topics)
    if is_store:
        entries = [entry for topic in topics for entry in archive.entries(topic)]
        rows = frame(spark, ObjectStorage(str(folder)), "messages", entries)
    assert rows.schema == live.schema
    found = rows.orderBy("topic", "offset").collect()
    assert [(row.topic, row.offset) for row in found] == [(t, o) for t in sorted(topics) for o in (1, 2, 3)]
    assert {row.offset for row in found if row.payload is None} == {1, 2}
    assert archive.frame(spark, "orders", "deliveries").count() == 0
    with pytest.raises(NoSuchTopic, match="has no topic 'order'; it has "):
        archive.frame(spark, "order")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "file:///etc/passwd", "orders/../secret.parquet", "../secret/a/b.parquet"]
)
def test_a_table_that_names_files_elsewhere_is_refused(folder: Path, path: str) -> None:
    """Who can write the table's log could have any file read, or deleted by a compaction."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    table = DeltaTable(f"{folder}/messages")
    statistics = '{"numRecords": 1, "minValues": {"offset": 9}, "maxValues": {"offset": 9}}'
    action = AddAction(path, 1, {"topic": "orders", "date": "2026-11-21"}, 0, True, statistics)
    table.create_write_transaction([action], "append", table.schema(), ["topic", "date"])
    with pytest.raises(ArchiveError, match="which does not belong to this archive"):
        Archive.open(folder).entries("orders")
