"""Compaction loses and doubles nothing. Verification finds damage, and deletes only what is not in use."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from django_mqueue.spark import Archive, compact
from django_mqueue.spark import verify as verify_all
from django_mqueue.spark.archives import parquet, rewriting, verifying
from django_mqueue.spark.archives.parquet import arrow_schema, problem
from django_mqueue.spark.errors import ArchiveError, NoSuchTopic, OptionError

from .archives import add, age, batch, begin, data, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archives.verifying import Verified

pytestmark = [pytest.mark.spark, pytest.mark.once]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an archive of seven messages in three files."""
    folder = begin(tmp_path / "archive")
    for offsets in ([1, 2, 4], [5, 6], [8, 9]):
        batch(folder, "orders", offsets)
    return folder


def verify(spark: SparkSession, folder: Path, **more: Any) -> Verified:
    (found,) = verify_all(spark, str(folder), **more)
    return found


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def test_files_become_one_and_nothing_changes(folder: Path, spark: SparkSession) -> None:
    before, version = rows(folder), Archive.open(folder).snapshots["messages"].version
    (done,) = compact(spark, str(folder))
    assert (done.topic, done.files, done.files_now, done.rows) == ("orders", 3, 1, 7)
    assert rows(folder) == before
    assert Archive.open(folder).upto("orders") == 9
    was = Archive.open(folder, as_of=version)
    assert [row.offset for row in was.frame(spark, "orders").orderBy("offset").collect()] == [
        1,
        2,
        4,
        5,
        6,
        8,
        9,
    ]
    assert compact(spark, str(folder))[0].files == 0
    found = verify(spark, folder)
    assert (found.problems, found.rows, found.files, len(found.unused)) == ([], 7, 1, 3)
    batch(folder, "orders", [11, 12])
    assert compact(spark, str(folder))[0].files == 2, "what was compacted is compacted with what came since"
    assert [offset for offset, _ in rows(folder)] == [1, 2, 4, 5, 6, 8, 9, 11, 12]
    assert verify(spark, folder).problems == []


def test_files_are_put_together_up_to_a_size(folder: Path, spark: SparkSession) -> None:
    before = rows(folder)
    entries = Archive.open(folder).entries("orders")
    compact(spark, str(folder), bytes=sum(entry.bytes for entry in entries[:2]))
    now = Archive.open(folder).entries("orders")
    assert [entry.rows for entry in now] == [5, 2]
    assert now[1] == entries[2]
    assert rows(folder) == before
    with pytest.raises(OptionError, match="bytes is 0"):
        compact(spark, str(folder), bytes=0)
    with pytest.raises(NoSuchTopic, match="has no topic 'order'"):
        compact(spark, str(folder), topics="order")


def test_days_are_compacted_each_by_itself(tmp_path: Path, spark: SparkSession) -> None:
    """Around midnight, files of two days alternate."""
    folder = begin(tmp_path / "archive")
    for day, offsets in ((21, [1, 4]), (22, [2, 3]), (21, [5, 6]), (22, [7])):
        entry = data(folder, "orders", offsets, date=f"2026-11-{day}")
        add(folder, "orders", [entry], upto=max(offsets))
    before = sorted(rows(folder))
    assert compact(spark, str(folder), topics=["orders"])[0].files == 4
    found = Archive.open(folder).entries("orders")
    assert {(entry.date, entry.first) for entry in found} >= {("2026-11-21", 1), ("2026-11-22", 2)}
    assert all(f"/date={entry.date}/" in entry.path for entry in found)
    assert sorted(rows(folder)) == before
    assert verify(spark, folder).problems == []


def test_a_joined_file_may_be_larger_than_the_files_of_an_archive_run(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each compaction writes the same files again."""
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 1)
    monkeypatch.setattr(parquet, "BYTES_PER_FILE", 1)
    monkeypatch.setattr(rewriting, "spread", lambda _, work, tasks, __: [work(task) for task in tasks])
    (done,) = compact(spark, str(folder))
    assert (done.files, done.files_now) == (3, 1)
    assert compact(spark, str(folder))[0].files == 0


def test_older_files_get_the_columns_of_now(folder: Path, spark: SparkSession) -> None:
    batch(folder, "orders", [10], columns=7)
    compact(spark, str(folder))
    (entry,) = Archive.open(folder).entries("orders")
    written = pq.ParquetFile(folder / entry.path).read()
    assert written.schema.names == arrow_schema("messages").names
    assert written.column("payload").to_pylist()[-2:] == [b"1", None]


def test_deliveries_of_several_groups_are_sorted_together(folder: Path, spark: SparkSession) -> None:
    """The files of several groups overlap in one range. After compaction, no files overlap."""
    for group, offsets in (("a", [1, 2, 4]), ("b", [2, 3]), ("a", [5])):
        batch(folder, "orders", offsets, table="deliveries", group=group)
    compact(spark, str(folder))
    archive = Archive.open(folder)
    (entry,) = archive.entries("orders", "deliveries")
    assert problem(archive.storage, entry) is None
    assert rows(folder, table="deliveries") == [(1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "a"), (5, "a")]
    assert verify(spark, folder).problems == []


def first_file(folder: Path) -> Path:
    return folder / Archive.open(folder).entries("orders")[0].path


def spoil_a_byte(folder: Path) -> None:
    path = first_file(folder)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def cut_it_short(folder: Path) -> None:
    path = first_file(folder)
    path.write_bytes(path.read_bytes()[:-1])


def delete_a_file(folder: Path) -> None:
    first_file(folder).unlink()


def take_a_file_out(folder: Path) -> None:
    """A commit that removes a file, and does not set the number ``erased``."""
    archive = Archive.open(folder)
    archive.snapshots["messages"].commit({}, remove=archive.entries("orders")[:1])


def put_a_message_in_twice(folder: Path) -> None:
    add(folder, "orders", [data(folder, "orders", [8])], upto=9)


def put_a_delivery_in_twice(folder: Path) -> None:
    """In one file, at one offset, for one group."""
    add(folder, "orders", [data(folder, "orders", [8, 8], table="deliveries")], upto=9, table="deliveries")


def put_in_what_is_above_the_end(folder: Path) -> None:
    add(folder, "orders", [data(folder, "orders", [10])], upto=9)


def name_it(**wrong: Any) -> Callable[[Path], None]:
    """A table that says something else of a file than is there."""

    def name(folder: Path) -> None:
        add(folder, "orders", [replace(data(folder, "orders", [10, 11]), **wrong)], upto=11)

    return name


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (spoil_a_byte, "cannot be read: "),
        (cut_it_short, r"has \d+ bytes, not \d+"),
        (delete_a_file, "is missing"),
        (take_a_file_out, "messages: 7 rows were added and 0 erased, but the table has 4"),
        (put_a_message_in_twice, "offset 8 is in the table 2 times"),
        (put_a_delivery_in_twice, "is not sorted, or contains a row twice"),
        (put_in_what_is_above_the_end, "offset 10 is above 9, the end of the archive"),
        (name_it(rows=3), "has 2 rows, not 3"),
        (name_it(first=9), "does not begin and end with offsets 9 and 11"),
    ],
)
def test_verification_finds(
    folder: Path, spark: SparkSession, harm: Callable[[Path], None], told: str
) -> None:
    """And then nothing is deleted, also of other topics."""
    batch(folder, "parcels", [1])
    killed = folder / data(folder, "orders", [1]).path
    age(folder)
    assert [each.problems for each in verify_all(spark, str(folder))] == [[], []]
    harm(folder)
    orders, parcels = verify_all(spark, str(folder), clean=True, keep_hours=0)
    assert re.search(told, "\n".join(orders.problems)), orders.problems
    assert (orders.deleted, killed.exists(), parcels.problems) == (0, True, [])
    assert verify(spark, folder, topics="parcels").problems == []


def test_deliveries_of_one_offset_are_no_duplicates(folder: Path, spark: SparkSession) -> None:
    for group in ("a", "b"):
        batch(folder, "orders", [1, 2], table="deliveries", group=group)
    assert verify(spark, folder).problems == []
    batch(folder, "orders", [2], table="deliveries", group="b")
    assert verify(spark, folder).problems == [
        "topic 'orders', deliveries: offset 2, group b is in the table 2 times"
    ]


@pytest.mark.parametrize("harm", [spoil_a_byte, cut_it_short, delete_a_file])
def test_a_damaged_file_is_not_carried_on(
    folder: Path, spark: SparkSession, harm: Callable[[Path], None]
) -> None:
    before = Archive.open(folder).entries("orders")
    harm(folder)
    there = data_files(folder)
    with pytest.raises(ArchiveError, match=re.escape(before[0].path)):
        compact(spark, str(folder))
    assert Archive.open(folder).entries("orders") == before
    assert data_files(folder) == there


def test_clean_deletes_only_unused_files_that_are_old_enough(folder: Path, spark: SparkSession) -> None:
    """A young file may be of a run that is about to commit it. A removed file may be in use by a reader."""
    before = rows(folder)
    old = folder / data(folder, "orders", [10]).path
    age(folder)
    young = folder / data(folder, "orders", [10]).path
    compact(spark, str(folder))
    beside = folder / ".gitkeep"
    beside.write_text("")
    (used,) = Archive.open(folder).entries("orders")
    for clean, deleted in ((False, 0), (True, 1), (True, 0)):
        found = verify(spark, folder, clean=clean)
        assert (found.problems, len(found.unused), found.deleted) == (
            [],
            5 - (clean and not deleted),
            deleted,
        )
    assert (old.exists(), young.exists()) == (False, True)
    age(folder)
    found = verify(spark, folder, clean=True)
    assert (len(found.unused), found.deleted) == (4, 1), "the three others were removed just now"
    found = verify(spark, folder, clean=True, keep_hours=0)
    assert (found.problems, found.deleted) == ([], 3)
    assert data_files(folder) == [folder / used.path]
    assert beside.exists()
    assert verify(spark, folder).unused == []
    assert rows(folder) == before
    with pytest.raises(OptionError, match="keep_hours is -1"):
        verify(spark, folder, clean=True, keep_hours=-1)
    with pytest.raises(
        OptionError, match="clean deletes files of all topics: leave out topics, which is 'orders'"
    ):
        verify(spark, folder, topics="orders", clean=True)


def test_one_that_is_stopped_during_its_last_topic_deletes_nothing(folder: Path, spark: SparkSession) -> None:
    killed = folder / data(folder, "orders", [1]).path
    age(folder)
    stopping = threading.Event()

    def progress(done: int, _: int) -> None:
        if done:
            stopping.set()

    found = verify(spark, folder, clean=True, stopping=stopping, progress=progress)
    assert (found.files, len(found.unused), found.deleted, killed.exists()) == (3, 1, 0, True)


def test_files_that_were_added_meanwhile_are_in_use(folder: Path, spark: SparkSession) -> None:
    def progress(done: int, _: int) -> None:
        if done:
            batch(folder, "orders", [10])

    assert verify(spark, folder, progress=progress).unused == []


def test_progress_is_told_by_files(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is reported during one long topic, and over two topics."""
    for number in (1, 2):
        batch(folder, "parcels", [number])
    seen: list[tuple[int, int]] = []

    def steps() -> list[tuple[int, int]]:
        found = seen.copy()
        seen.clear()
        return found

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    verify_all(spark, str(folder), progress=progress)
    assert steps() == [(0, 5), (3, 5), (5, 5)]
    monkeypatch.setattr(verifying, "BYTES_PER_ROUND", 1)
    verify_all(spark, str(folder), progress=progress)
    assert steps() == [(done, 5) for done in range(6)]
    two = sum(entry.bytes for entry in Archive.open(folder).entries("orders")[:2])
    compact(spark, str(folder), bytes=two, progress=progress)
    assert steps() == [(0, 4), (2, 4), (4, 4)]
    compact(spark, str(folder), bytes=two, progress=progress)
    assert steps() == [(0, 0)]


def test_the_commands_tell(folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    progress: list[str] = []

    def said(*command: str) -> str:
        call_command("mqueue_spark", *command, "--to", str(folder))
        out, err = capsys.readouterr()
        progress.append(err)
        return out

    assert said("verify").startswith("orders: whole, 7 rows in 3 files of 0.0 MiB\n")
    assert "3 of 3 (100%) files, " in progress[-1]
    assert said("compact") == "orders: 3 files were combined into 1, with 7 rows\n"
    assert "3 of 3 (100%) files, " in progress[-1]
    assert said("compact") == "orders: nothing to combine\n"
    assert "files" not in progress[-1]
    assert "; 3 files are not in use\n" in said("verify", "--clean")
    assert "; 3 files are not in use, 3 of them deleted\n" in said("verify", "--clean", "--keep-hours", "0")
    assert json.loads(said("verify", "--json"))[0]["rows"] == 7
    assert json.loads(said("compact", "--json"))[0]["files"] == 0
    first_file(folder).write_bytes(b"")
    with pytest.raises((CommandError, SystemExit)):
        said("verify")
    assert "NOT whole" in capsys.readouterr().out
