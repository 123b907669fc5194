"""The folder of an archive: files are whole, durable and never replaced; and a file's offsets are checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from django_mqueue.spark.archives.parquet import FileEntry, problem
from django_mqueue.spark.archives.storage import (
    LocalStorage,
    ObjectStorage,
    Storage,
    storage_at,
    visible_files,
)

pytestmark = [pytest.mark.spark, pytest.mark.once]


@pytest.fixture(params=["path", "uri", "as Hadoop writes it", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return the same folder under each of its names, and as an object store that keeps its objects there."""
    place = tmp_path / "a b"
    place.mkdir()
    if request.param == "object store":
        return ObjectStorage(place.as_uri())
    named = {"path": str(place), "uri": f"file://{place}", "as Hadoop writes it": f"file:{place}"}
    found = storage_at(named[request.param])
    assert (found.uri, type(found)) == (str(place), LocalStorage)
    return found


def test_files_are_whole_and_never_replaced(storage: Storage) -> None:
    assert storage.list("x") == {}
    with storage.create("x/one") as stream:
        stream.write(b"1")
        assert (stream.tell(), stream.bytes, storage.list("x/y")) == (1, 1, {})
    storage.write("two", b"22")
    with pytest.raises(FileExistsError):
        storage.write("two", b"3")
    with storage.create("x/y/three") as stream:
        stream.write(memoryview(b"333"))
    assert (storage.read("x/one"), storage.read("two")) == (b"1", b"22")
    listed = [list(storage.list(folder).items()) for folder in ("x", "")]
    below = [("x/one", 1), ("x/y/three", 3)]
    assert listed == [below, [("two", 2), *below]]
    storage.move("x/one", "x/moved")
    with storage.open("x/y/three") as stream:
        assert (stream.read(), stream.seek(1), stream.read(5), stream.size()) == (b"333", 1, b"33", 3)
    storage.delete("two")
    storage.discard("none")
    assert list(storage.list()) == ["x/moved", "x/y/three"]
    storage.discard("x")
    assert storage.list() == {}
    for attempt in (storage.read, storage.delete, storage.open):
        with pytest.raises(FileNotFoundError):
            attempt("x/one")


def test_a_folder_is_free_unless_a_file_is_anywhere_below_it(tmp_path: Path) -> None:
    """Hidden files at the top do not count, nor does the folder that each disk has."""
    storage = storage_at(tmp_path)
    for folder in (".writing/7", "lost+found", "empty/below"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".writing/7/part").write_text("")
    (tmp_path / ".probe-7").write_text("")
    assert visible_files(storage) == []
    (tmp_path / "sub/deep").mkdir(parents=True)
    for name in ("two", "sub/deep/.hidden", "one"):
        (tmp_path / name).write_text("")
    assert visible_files(storage) == ["one", "sub/deep/.hidden", "two"]


def test_what_cannot_be_looked_into_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    scan = os.scandir

    def refusing(folder: Any) -> Any:
        if os.path.basename(folder) == "theirs":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        visible_files(storage_at(tmp_path))


def test_a_local_file_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is synced after the file has its name. Parent folders are synced as they are created."""
    seen = []
    sync, link = os.fsync, os.link

    def spy(number: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{number}").removeprefix(f"{tmp_path}"))
        sync(number)

    def name(*paths: Any) -> None:
        seen.append("name")
        link(*paths)

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.setattr(os, "link", name)
    storage = storage_at(tmp_path / "new")
    storage.write("one", b"1")
    assert seen[0] == ""
    assert seen[1].startswith("/new/.")
    assert seen[2:] == ["/new", "name", "/new"]
    seen.clear()
    with storage.create("x/two") as stream:
        stream.write(b"2")
        assert seen == ["/new"]
    assert seen == ["/new", "/new/x/two", "/new/x"]
    seen.clear()
    storage.move("x/two", "x/three")
    assert seen == ["/new/x"]
    seen.clear()
    storage.write("y/z/four", b"")
    assert seen[:2] == ["/new", "/new/y"]
    seen.clear()
    storage.sync("y/z/four")
    assert seen == ["/new/y/z/four", "/new/y/z"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        storage_at(tmp_path).write("one", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("offsets", "messages", "deliveries"),
    [
        ([1, 2, 3, 4, 5], True, True),
        ([1, 2, 2, 4, 5], False, True),
        ([1, 1, 2, 4, 5], False, True),
        ([1, 3, 2, 4, 5], False, False),
        ([1, 2, 4, 3, 5], False, False),
        ([], True, True),
    ],
)
def test_offsets_are_looked_at_within_groups_of_rows_and_between_them(
    tmp_path: Path, offsets: list[int], messages: bool, deliveries: bool
) -> None:
    first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
    for table, groups, are_sorted in (
        ("messages", "aaaaa", messages),
        ("deliveries", "abcde", deliveries),
        ("deliveries", "aaaaa", messages),
        ("deliveries", "edcba", messages),
    ):
        columns = {"offset": pa.array(offsets, pa.int64()), "group": pa.array(groups[: len(offsets)])}
        path = tmp_path / table
        path.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path / "one", row_group_size=2)
        size = (path / "one").stat().st_size
        entry = FileEntry(f"{table}/one", "orders", "2026-11-21", len(offsets), first, last, size)
        found = problem(storage_at(tmp_path), entry)
        assert found == (None if are_sorted else f"{table}/one is not sorted, or contains a row twice")
