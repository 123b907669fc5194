"""Compaction loses and doubles nothing, and verification finds damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from django_mqueue.spark.archiving.layout import data_path, manifest_path
from django_mqueue.spark.errors import ArchiveError, NoSuchTopic, OptionError

from .archives import age, batch, begin, data, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archiving import Archive

pytestmark = [pytest.mark.spark, pytest.mark.once]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an archive of seven messages in three batches."""
    begin(tmp_path / "archive")
    for number, offsets in enumerate([[1, 2, 4], [5, 6], [8, 9]], 1):
        batch(tmp_path / "archive", "orders", number, [0, 4, 6][number - 1], offsets)
    return tmp_path / "archive"


def opened(folder: Path) -> Archive:
    from django_mqueue.spark import Archive

    return Archive.open(folder)


def verify(spark: SparkSession, folder: Path, **more: Any) -> Any:
    from django_mqueue.spark import verify

    (found,) = verify(spark, str(folder), **more)
    return found


def test_batches_become_one_and_nothing_changes(folder: Path, spark: SparkSession) -> None:
    from django_mqueue.spark import compact

    before = rows(folder)
    (done,) = compact(spark, str(folder))
    assert (done.manifests, done.manifests_now, done.files, done.files_now, done.rows) == (3, 1, 3, 1, 7)
    assert rows(folder) == before
    (manifest,) = opened(folder).manifests("orders")
    assert (manifest.name, manifest.position) == ("compaction-0000000001", 9)
    assert opened(folder).upto("orders") == 9
    (done,) = compact(spark, str(folder))
    assert done.manifests == 0
    found = verify(spark, folder, clean=True)
    assert (found.problems, found.rows, len(found.orphans), found.deleted) == ([], 7, 6, 0)
    age(folder)
    assert verify(spark, folder).deleted == 0
    assert verify(spark, folder, clean=True).deleted == 6
    assert verify(spark, folder).orphans == []
    assert len(list(folder.glob("manifests/orders/*"))) == 1
    assert rows(folder) == before


def test_what_was_compacted_is_compacted_again_with_what_came_since(
    folder: Path, spark: SparkSession
) -> None:
    from django_mqueue.spark import compact

    compact(spark, str(folder))
    batch(folder, "orders", 4, 9, [11, 12])
    compact(spark, str(folder))
    (manifest,) = opened(folder).manifests("orders")
    assert (manifest.name, manifest.since, manifest.batch) == ("compaction-0000000002", 1, 4)
    (folder / manifest_path("orders", "compaction-0000000001")).unlink()
    assert [offset for offset, _ in rows(folder)] == [1, 2, 4, 5, 6, 8, 9, 11, 12]


def test_batches_are_put_together_up_to_a_size(folder: Path, spark: SparkSession) -> None:
    from django_mqueue.spark import compact

    before = rows(folder)
    sizes = [entry.bytes for entry in opened(folder).entries("orders")]
    compact(spark, str(folder), bytes=sum(sizes[:2]))
    assert [m.name for m in opened(folder).manifests("orders")] == ["compaction-0000000001", "0000000003"]
    assert rows(folder) == before
    with pytest.raises(OptionError, match="bytes is 0"):
        compact(spark, str(folder), bytes=0)
    with pytest.raises(NoSuchTopic, match="has no topic 'order'"):
        compact(spark, str(folder), topics="order")


def test_older_files_get_the_columns_of_now(folder: Path, spark: SparkSession) -> None:
    from django_mqueue.spark import compact
    from django_mqueue.spark.archiving.writing import arrow_schema

    batch(folder, "orders", 4, 9, [10], columns=7)
    compact(spark, str(folder))
    (entry,) = opened(folder).entries("orders")
    import pyarrow.parquet as pq

    written = pq.ParquetFile(folder / entry.path).read()
    assert written.schema.names == arrow_schema("messages").names
    assert written.column("payload").to_pylist()[-2:] == [b"1", None]


def test_deliveries_of_several_groups_are_sorted_together(folder: Path) -> None:
    """The files of several groups overlap in one range. After compaction no files overlap."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from django_mqueue.spark.archiving.compacting import _merging, _Task
    from django_mqueue.spark.archiving.files import files_at
    from django_mqueue.spark.archiving.parquet import Days, problem
    from django_mqueue.spark.archiving.writing import arrow_schema

    schema, files = arrow_schema("deliveries"), files_at(folder)
    entries = []
    for group, offsets in (("a", [1, 2, 4]), ("b", [2, 3]), ("a", [5])):
        empty = {field.name: pa.nulls(len(offsets), field.type) for field in schema}
        given = {"offset": pa.array(offsets, pa.int64()), "group": pa.array([group] * len(offsets))}
        with Days(files, "deliveries", "orders", 1, f"{group}{offsets[0]}", schema) as days:
            days.put("2026-11-21", pa.table({**empty, **given}, schema=schema))
        entries += days.entries
    (one,) = _merging(str(folder))(_Task("orders", 1, "deliveries", "2026-11-21", tuple(entries)))
    assert problem(files, one) is None
    table = pq.ParquetFile(folder / one.path).read()
    assert list(zip(table["offset"].to_pylist(), table["group"].to_pylist(), strict=True)) == [
        (1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "a"), (5, "a"),
    ]  # fmt: skip


def spoil_a_byte(folder: Path) -> None:
    path = next(iter(folder.glob("messages/**/*.parquet")))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_it_short(folder: Path) -> None:
    path = next(iter(folder.glob("messages/**/*.parquet")))
    path.write_bytes(path.read_bytes()[:-1])


def delete_a_file(folder: Path) -> None:
    next(iter(folder.glob("messages/**/*.parquet"))).unlink()


def delete_the_first_manifest(folder: Path) -> None:
    (folder / manifest_path("orders", "0000000001")).unlink()


def delete_a_manifest(folder: Path) -> None:
    (folder / manifest_path("orders", "0000000002")).unlink()


def cut_a_manifest_short(folder: Path) -> None:
    path = folder / manifest_path("orders", "0000000002")
    path.write_bytes(path.read_bytes()[:100])


def change_a_manifest(name: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / manifest_path("orders", "0000000001")
        manifest = json.loads(path.read_text())
        manifest["tables"]["messages"]["files"][0][name] = value
        if name == "rows":
            manifest["tables"]["messages"]["rows"] = value
        path.write_text(json.dumps(manifest))

    return change


def put_a_message_in_twice(folder: Path) -> None:
    path = folder / manifest_path("orders", "0000000003")
    manifest = json.loads(path.read_text())
    entry = data(folder, "orders", 3, [8])
    other = data_path("messages", "orders", "2026-11-21", 3, "again", 0)
    shutil.copy(folder / entry.path, folder / other)
    part = manifest["tables"]["messages"]
    part["rows"] = 2
    part["files"] = [{**vars(entry)}, {**vars(entry), "path": other}]
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (spoil_a_byte, "has another checksum than when it was written"),
        (cut_it_short, r"has \d+ bytes, not \d+"),
        (delete_a_file, "is missing"),
        (
            delete_the_first_manifest,
            "0000000002 is the first, but begins above 4: those before it are missing",
        ),
        (
            delete_a_manifest,
            "0000000001 ends at offset 4, but 0000000003 begins above 6: one between them is missing",
        ),
        (cut_a_manifest_short, "0000000002.json: is not JSON"),
        (change_a_manifest("rows", 4), "has 3 rows, not 4"),
        (change_a_manifest("first", 2), "does not begin and end with offsets 2 and 4"),
        (put_a_message_in_twice, "offset 8 is there 2 times"),
    ],
)
def test_verification_finds(
    folder: Path, spark: SparkSession, harm: Callable[[Path], None], told: str
) -> None:
    import re

    assert verify(spark, folder).problems == []
    harm(folder)
    orphan = folder / data_path("messages", "orders", "2026-11-21", 1, "killed", 0)
    orphan.write_bytes(b"")
    age(folder)
    found = verify(spark, folder, clean=True)
    assert re.search(told, "\n".join(found.problems)), found.problems
    assert found.deleted == 0
    assert orphan.exists()


def test_compaction_carries_no_harm_on(folder: Path, spark: SparkSession) -> None:
    from django_mqueue.spark import compact

    spoil_a_byte(folder)
    with pytest.raises(ArchiveError, match="has another checksum"):
        compact(spark, str(folder))
    assert len(opened(folder).manifests("orders")) == 3


def test_clean_leaves_what_a_run_may_be_about_to_name(folder: Path, spark: SparkSession) -> None:
    date = "2026-11-21"
    killed = folder / data_path("messages", "orders", date, 3, "killed", 0)
    running = folder / data_path("messages", "orders", date, 4, "running", 0)
    foreign = folder / "messages/orders/notes.txt"
    beside = folder / "manifests/orders/.0000000004.json.abc"
    for path in (killed, running, foreign, beside):
        path.write_bytes(b"")
    age(folder)
    fresh = folder / data_path("messages", "orders", date, 2, "fresh", 0)
    fresh.write_bytes(b"")
    found = verify(spark, folder, clean=True)
    assert (len(found.orphans), found.deleted) == (5, 2)
    assert [path.exists() for path in (killed, running, foreign, beside, fresh)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_clean_leaves_what_is_nobody_s_and_takes_what_a_killed_run_left_beside(
    folder: Path, spark: SparkSession
) -> None:
    left = [".probe-1a2b", "..probe-1a2b.3c4d", ".mqueue-archive.json.5e6f"]
    for name in (*left, ".gitkeep", "README"):
        (folder / name).write_text("")
    verify(spark, folder, clean=True)
    assert {path.name for path in folder.iterdir()} > set(left), "a run may have just begun"
    age(folder)
    verify(spark, folder, clean=True)
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "mqueue-archive.json", ".gitkeep", "README",
    }  # fmt: skip


def test_progress_is_told_by_files(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is reported during one long topic, and over two topics."""
    from django_mqueue.spark import compact, verify
    from django_mqueue.spark.archiving import checking

    for number in (1, 2):
        batch(folder, "parcels", number, number - 1, [number])
    seen: list[tuple[int, int]] = []

    def steps() -> list[tuple[int, int]]:
        found = seen.copy()
        seen.clear()
        return found

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    verify(spark, str(folder), progress=progress)
    assert steps() == [(0, 5), (3, 5), (5, 5)]
    monkeypatch.setattr(checking, "BYTES_PER_ROUND", 1)
    verify(spark, str(folder), progress=progress)
    assert steps() == [(done, 5) for done in range(6)]
    two = sum(entry.bytes for entry in opened(folder).entries("orders")[:2])
    compact(spark, str(folder), bytes=two, progress=progress)
    assert steps() == [(0, 4), (2, 4), (4, 4)]
    compact(spark, str(folder), bytes=two, progress=progress)
    assert steps() == [(0, 0)]


def test_the_commands_tell(folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*command: str) -> str:
        call_command("mqueue_spark", *command, "--to", str(folder))
        out, err = capsys.readouterr()
        progress.append(err)
        return out

    progress: list[str] = []
    assert said("verify").startswith("orders: whole, 7 rows in 3 files of 0.0 MiB\n")
    assert "3 of 3 (100%) files, " in progress[-1]
    assert said("compact") == "orders: 3 batches with 3 files are 1 with 1, 7 rows\n"
    assert "3 of 3 (100%) files, " in progress[-1]
    assert said("compact") == "orders: nothing to put together\n"
    assert "files" not in progress[-1]
    assert "; 6 files belong to nothing" in said("verify", "--clean")
    assert json.loads(said("verify", "--json"))[0]["rows"] == 7
    assert json.loads(said("compact", "--json"))[0]["manifests"] == 0
    spoiled = next(iter(opened(folder).entries("orders")))
    (folder / spoiled.path).write_bytes(b"")
    with pytest.raises((CommandError, SystemExit)):
        said("verify")
    assert "NOT whole" in capsys.readouterr().out
