"""The archive's catalog of manifests, and the classes that read and write its files. Few tests start Spark."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue.spark.archiving.layout import MARKER, manifest_path, manifests_of
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic, OptionError

from .mounts import mounted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archiving import Archive
    from django_mqueue.spark.archiving.files import Files
    from django_mqueue.spark.options import Table

pytestmark = [pytest.mark.spark, pytest.mark.once]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from .archives import begin

    return begin(tmp_path / "the [old] archive, {a,b} ?*")


def opened(folder: Path) -> Archive:
    from django_mqueue.spark import Archive

    return Archive.open(folder)


def batch(*arguments: Any, **more: Any) -> Any:
    from .archives import batch

    return batch(*arguments, **more)


def test_manifests_tell_what_belongs_to_an_archive(folder: Path) -> None:
    assert opened(folder).topics() == []
    batch(folder, "orders", 1, 0, [1, 2, 5])
    batch(folder, "orders", 2, 5, [6, 9])
    batch(folder, "a/b", 1, 0, [3])
    batch(folder, "ß" * 100, 1, 0, [4])
    (folder / "messages/orders/2026-11-21/0000000003-orphan-0.parquet").write_bytes(b"")
    (folder / manifests_of("orders") / ".0000000003.json.tmp").write_bytes(b"")
    found = opened(folder)
    assert found.topics() == ["a/b", "orders", "ß" * 100]
    assert (found.upto("orders"), found.upto("orders", "dead_letters"), found.upto("none")) == (9, 0, 0)
    assert [(entry.first, entry.last, entry.rows) for entry in found.entries("orders")] == [
        (1, 5, 3),
        (6, 9, 2),
    ]
    assert found.entries("orders", "deliveries") == found.entries("none") == []


def test_what_was_found_stays_until_it_is_opened_again(folder: Path) -> None:
    batch(folder, "orders", 1, 0, [1])
    found = opened(folder)
    assert found.upto("orders") == 1
    batch(folder, "orders", 2, 1, [2])
    assert (found.upto("orders"), len(found.entries("orders"))) == (1, 1)
    assert opened(folder).upto("orders") == 2


def test_what_a_compaction_replaced_does_not_count(folder: Path) -> None:
    first, second = batch(folder, "orders", 1, 0, [1, 2]), batch(folder, "orders", 2, 2, [3])
    batch(folder, "orders", 3, 3, [4])
    both = batch(folder, "orders", 2, 0, [1, 2, 3], since=1, compaction=1, replaces=[first.name, second.name])
    assert [manifest.name for manifest in opened(folder).manifests("orders")] == [both.name, "0000000003"]
    assert [entry.first for entry in opened(folder).entries("orders")] == [1, 4]
    (folder / manifest_path("orders", first.name)).unlink()
    assert opened(folder).upto("orders") == 4


def test_what_comes_late_is_replaced_already(folder: Path) -> None:
    """A paused compaction and a paused run write their manifests late.

    Others have already replaced their files, so the catalog ignores these manifests.
    """
    batch(folder, "orders", 4, 3, [4])
    replaces = ["0000000001", "0000000002", "0000000003", "compaction-0000000001"]
    batch(folder, "orders", 3, 0, [1, 2, 3], since=1, compaction=2, replaces=replaces)
    before = opened(folder).manifests("orders")
    batch(folder, "orders", 4, 2, [3, 4], since=3, compaction=1, replaces=["0000000003", "0000000004"])
    batch(folder, "orders", 2, 1, [2])
    assert opened(folder).manifests("orders") == before
    assert [manifest.name for manifest in before] == ["compaction-0000000002", "0000000004"]


def test_a_list_that_was_made_while_a_run_wrote_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first listing misses a manifest, or contains a manifest that cleaning deletes before it is read.

    The catalog lists again.
    """
    for number in range(1, 4):
        batch(folder, "orders", number, number - 1, [number])
    found = opened(folder)
    real, lists = type(found.files).list, []

    def late(files: Files, where: str, **more: Any) -> Any:
        lists.append(where)
        listed = real(files, where, **more)
        return [listed[0], listed[2]] if len(lists) == 1 else listed

    monkeypatch.setattr(type(found.files), "list", late)
    assert found.upto("orders") == 3
    assert len(lists) == 2

    def early(files: Files, where: str, **more: Any) -> Any:
        listed = real(files, where, **more)
        if (folder / manifest_path("orders", "0000000002")).exists():
            names = ["0000000001", "0000000002"]
            batch(folder, "orders", 2, 0, [1, 2], since=1, compaction=1, replaces=names)
            for name in names:
                (folder / manifest_path("orders", name)).unlink()
        return listed

    monkeypatch.setattr(type(found.files), "list", early)
    assert [manifest.name for manifest in opened(folder).manifests("orders")] == [
        "compaction-0000000001", "0000000003",
    ]  # fmt: skip


def test_a_manifest_that_is_missing_or_too_much_is_found_out(folder: Path) -> None:
    for number in range(1, 4):
        batch(folder, "orders", number, number - 1, [number])
    (folder / manifest_path("orders", "0000000002")).unlink()
    with pytest.raises(
        ArchiveError, match=r"0000000001 ends at offset 1, but 0000000003 begins above 2: one .* missing"
    ):
        opened(folder).upto("orders")
    batch(folder, "orders", 2, 0, [1, 2])
    with pytest.raises(ArchiveError, match="begins above 0: both hold what lies between"):
        opened(folder).entries("orders")
    (folder / manifests_of("orders")).rename(folder / manifests_of("others"))
    with pytest.raises(ArchiveError, match="is of topic 'orders'"):
        opened(folder).entries("others")


@pytest.mark.parametrize("lost", [1, 2], ids=["first", "middle"])
def test_every_batch_must_be_there_whatever_it_holds(folder: Path, lost: int) -> None:
    """The offsets have no gap if the missing batch is the last one of its table.

    The number of the next batch shows the loss.
    """
    tables: list[Table] = ["messages", "deliveries", "dead_letters"]
    names = [
        batch(folder, "orders", number, 0, [1, 2, 3], table=table).name
        for number, table in enumerate(tables, 1)
    ]
    assert opened(folder).upto("orders", tables[lost - 1]) == 3
    (folder / manifest_path("orders", names[lost - 1])).unlink()
    with pytest.raises(
        ArchiveError, match=rf"manifest {names[lost]} begins with batch {lost + 1}: one before it is missing"
    ):
        opened(folder).upto("orders")


def test_a_compaction_stands_for_all_its_batches(folder: Path) -> None:
    first = batch(folder, "orders", 1, 0, [1])
    second = batch(folder, "orders", 2, 0, [1], table="deliveries")
    batch(folder, "orders", 3, 0, [1], table="dead_letters")
    names = [first.name, second.name]
    batch(folder, "orders", 2, 0, [1], since=1, compaction=1, replaces=names)
    assert opened(folder).upto("orders", "dead_letters") == 1
    batch(folder, "orders", 1, 0, [1], since=1, compaction=1, replaces=names)
    with pytest.raises(ArchiveError, match="ends with batch 1, but manifest 0000000003 begins with batch 3"):
        opened(folder).upto("orders")


def test_what_is_no_archive_is_told_from_what_is_there(folder: Path, tmp_path: Path) -> None:
    cases = {
        tmp_path / "nothing": r"no archive at .*/nothing: it holds no file, but not mqueue-archive.json",
        folder / MARKER: "Not a directory",
    }
    (tmp_path / "readme.txt").write_text("")
    cases[tmp_path] = "it holds readme.txt, but not"
    for place, message in cases.items():
        with pytest.raises(NoArchive, match=message):
            opened(place)
    (folder / MARKER).write_text('{"archive": "django_mqueue", "format": 2}')
    with pytest.raises(ArchiveError, match="upgrade it"):
        opened(folder)
    with pytest.raises(OptionError, match="zz://x/y: no way to there by pyarrow"):
        opened("zz://x/y")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="place is empty"):
        opened("")  # type: ignore[arg-type]


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
        ("hadoop+s3a://me:7/secret@bucket/x", "hadoop+s3a://…@bucket/x"),
        ("abfs://:secret@account.blob.core.windows.net/box", "abfs://…@account.blob.core.windows.net/box"),
        ("abfs://box:sec/secret==@account.dfs.core.windows.net/x", "abfs://…@account.dfs.core.windows.net/x"),
        ("abfs://box@account.dfs.core.windows.net/x?sv=1&sig=secret", "abfs://…?sig=…"),
        ("abfs://box@account.dfs.core.windows.net/x?client_secret=secret", "abfs://…?client_secret=…"),
        ("s3://bucket/x?secret_key=secret&region=eu", "s3://…?secret_key=…"),
        ("s3://bucket/x?AccessKey=secret", "s3://…?AccessKey=…"),
        ("s3://bucket/x?session%5Ftoken=secret", "s3://…?session_token=…"),
        ("s3://bucket/x?endpoint_override=http://me:secret@minio:9000", "s3://…?endpoint_override=…"),
    ],
)
def test_a_place_with_keys_is_refused_and_they_are_not_repeated(place: str, shown: str) -> None:
    from django_mqueue.spark.archiving.places import check_place

    for refuse in (check_place, opened):
        with pytest.raises(OptionError, match="keys do not belong into the archive's place") as refused:
            refuse(place)  # type: ignore[arg-type]
        told = str(refused.value)
        assert told.startswith(f"{shown}: ")
        assert refused.value.__cause__ is None
        assert "secret" not in told.removeprefix(shown)


@pytest.mark.parametrize(
    "place",
    [
        "/srv/a:b@c", "file:///srv/a:b@c", "s3://bucket/day 12:00/a@b", "hdfs://namenode:8020/user/ada@EXAMPLE.COM",
        "hdfs://ada@namenode:8020/x", "hdfs://[::1]:8020/a@b", "viewfs:///x", "hadoop+s3a://bucket/x",
        "s3://bucket/x?endpoint_override=minio.internal:9000&scheme=http&region=eu", "s3://anonymous@bucket/x",
        "abfs://box@account.dfs.core.windows.net/x?credential_kind=environment&tenant_id=a&client_id=b",
        "hdfs://namenode/x?user=ada&kerb_ticket=/tmp/ticket",
    ],
)  # fmt: skip
def test_a_place_without_keys_is_let_pass(place: str) -> None:
    from django_mqueue.spark.archiving.places import check_place

    assert check_place(place) == place


@pytest.fixture(params=["path", "uri", "hadoop", "store", "mount", "shown when closed"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """The same folder through each class: store classes over pyarrow's local file system, Hadoop through a mount."""
    from pyarrow import fs

    from django_mqueue.spark.archiving import hadoop
    from django_mqueue.spark.archiving.files import StoreFiles, files_at

    place = tmp_path / "a b"
    named = {"path": str(place), "uri": place.as_uri(), "hadoop": f"file:{place}"}
    if request.param in named:
        yield files_at(named[request.param])
    elif request.param == "store":
        yield StoreFiles(f"hdfs://host{place}", fs.LocalFileSystem(), str(place))
    else:
        if request.param != "mount":
            monkeypatch.setattr(hadoop, "SHOWN_WHEN_CLOSED", ("viewfs",))
        spark = request.getfixturevalue("spark")
        with mounted(spark, tmp_path) as uri:
            yield files_at(f"{uri}/a b", spark)


def test_files_are_whole_and_never_replaced(files: Files, tmp_path: Path) -> None:
    assert files.list("x", deep=True) == []
    assert not files.exists("x/one")
    files.write("x/one", b"1")
    with pytest.raises(FileExistsError):
        files.write("x/one", b"2")
    with files.create("x/y/two") as stream:
        stream.write(b"22")
    assert (files.read("x/one"), files.read("x/y/two")) == (b"1", b"22")
    assert [found.path for found in files.list("x")] == ["x/one"]
    found = files.list("x", deep=True)
    assert [(each.path, each.bytes) for each in found] == [("x/one", 1), ("x/y/two", 2)]
    assert found[0].modified == pytest.approx((tmp_path / "a b/x/one").stat().st_mtime, abs=1)
    assert files.spark_path("x/one").endswith("/a b/x/one")
    assert files.digest("x/y/two") == (2, hashlib.sha256(b"22").hexdigest())
    with files.open("x/y/two") as stream:
        assert (stream.read(), stream.seek(1), stream.read(5), stream.size()) == (b"22", 1, b"2", 2)
    files.delete("x/one")
    assert not files.exists("x/one")
    files.discard("x/none")
    files.discard("x")
    assert files.list("", deep=True) == []
    for attempt in (files.read, files.delete, files.open, files.digest):
        with pytest.raises(FileNotFoundError):
            attempt("x/one")


def test_a_folder_is_free_unless_a_file_is_anywhere_below_it(files: Files, tmp_path: Path) -> None:
    from django_mqueue.spark.archiving.vacancy import held

    place = tmp_path / "a b"
    assert held(files) == []
    for folder in (".writing/7", "lost+found", "empty/below"):
        (place / folder).mkdir(parents=True)
    (place / ".writing/7/part").write_text("")
    (place / ".probe-7").write_text("")
    assert held(files) == []
    (place / "sub/deep").mkdir(parents=True)
    (place / "sub/deep/.hidden").write_text("")
    assert held(files) == ["sub/deep/.hidden"]
    for name in ("two", "one"):
        (place / name).write_text("")
    assert held(files) == ["one", "two"]


def test_what_cannot_be_looked_into_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_mqueue.spark.archiving.files import files_at
    from django_mqueue.spark.archiving.vacancy import held

    (tmp_path / "theirs").mkdir()
    scan = os.scandir

    def refusing(folder: Path) -> Any:
        if folder.name == "theirs":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    assert held(files_at(tmp_path)) == ["theirs"]
    with pytest.raises(PermissionError):
        held(files_at(tmp_path / "theirs"))


@pytest.mark.parametrize("error", [NotImplementedError, OSError])
def test_nothing_stays_of_a_file_that_could_not_be_named(tmp_path: Path, error: type[Exception]) -> None:
    """Azure accounts without hierarchical namespace behave like this: Arrow cannot rename a file there."""
    from pyarrow import fs

    from django_mqueue.spark.archiving.files import StoreFiles

    class Flat:
        """A disk that cannot rename files."""

        def __getattr__(self, name: str) -> Any:
            return getattr(fs.LocalFileSystem(), name)

        def move(self, path: str, goal: str) -> None:
            assert Path(path).read_bytes() == b"1"
            raise error("Move() is not there")

    files = StoreFiles("abfs://box@account/x", Flat(), str(tmp_path))
    with pytest.raises(OSError, match="Move" if error is OSError else r"by hadoop\+abfs://box@account/x"):
        files.write("one", b"1")
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    from django_mqueue.spark.archiving.files import files_at
    from django_mqueue.spark.archiving.parquet import Offsets, offsets_of

    first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
    for table, are_sorted in (("messages", messages), ("deliveries", deliveries)):
        (tmp_path / table).mkdir()
        rows = pa.table({"offset": pa.array(offsets, pa.int64())})
        pq.write_table(rows, tmp_path / table / "one", row_group_size=2)
        assert offsets_of(files_at(tmp_path), f"{table}/one") == Offsets(
            len(offsets), first, last, are_sorted
        )


def test_a_local_file_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is synced after the file has its name. Parent folders are synced as they are created."""
    from django_mqueue.spark.archiving.files import files_at

    seen = []
    sync, link = os.fsync, os.link

    def spy(number: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{number}").removeprefix(f"{tmp_path}"))
        sync(number)

    monkeypatch.setattr(os, "fsync", spy)

    def name(*paths: str) -> None:
        seen.append("name")
        link(*paths)

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.setattr(os, "link", name)
    files = files_at(tmp_path / "new")
    files.write("x/one", b"1")
    assert seen[:2] == ["", "/new"]
    assert seen[2].startswith("/new/x/.one.")
    assert seen[3:] == ["name", "/new/x"]
    seen.clear()
    with files.create("x/two") as stream:
        stream.write(b"2")
        assert seen == []
    assert seen == ["/new/x/two", "/new/x"]


def test_a_writer_that_fails_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_mqueue.spark.archiving.files import files_at

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    files = files_at(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write("one", b"1")
    assert list(tmp_path.iterdir()) == []


def test_names_of_stores_are_those_that_spark_knows() -> None:
    from pyarrow import fs

    from django_mqueue.spark.archiving.files import StoreFiles

    def path(uri: str) -> str:
        return StoreFiles(uri, fs.LocalFileSystem(), "/b/x").spark_path("messages/a%2Fb/1.parquet")

    assert path("s3://b/x/?region=eu") == "s3a://b/x/messages/a%2Fb/1.parquet"
    assert path("s3a://b/x") == "s3a://b/x/messages/a%2Fb/1.parquet"
    assert path("gcs://b/x") == "gs://b/x/messages/a%2Fb/1.parquet"


def test_a_store_that_lists_no_folders(tmp_path: Path) -> None:
    """Arrow lists Google's store like this. The paths of files show which folders exist."""
    from pyarrow import fs

    from django_mqueue.spark.archiving.files import StoreFiles
    from django_mqueue.spark.archiving.vacancy import held

    class Objects:
        """A disk that lists files only."""

        type_name = "gcs"

        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            found = fs.LocalFileSystem().get_file_info(selector)
            return [info for info in found if info.type == fs.FileType.File]

    files = StoreFiles("gs://box/x", Objects(), str(tmp_path))
    assert held(files) == []
    for path in ("2025/x.parquet", "2025/y/z.parquet", "2026", ".hidden/x"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_bytes(b"1")
    assert set(files.look("")) == {("2025", True), ("2026", False), (".hidden", True)}
    assert set(files.look("2025")) == {("2025/x.parquet", False), ("2025/y", True)}
    assert held(files) == ["2026"]
    (tmp_path / "2026").unlink()
    assert held(files) == ["2025/x.parquet"]


def test_spark_reads_what_the_manifests_name(folder: Path, spark: SparkSession) -> None:
    """Older files lack the newest columns.

    Topic names contain characters that are special for Hadoop and for glob patterns.
    """
    topics = ["orders", "a/b %2F [x] {y}", "k=v", "_hidden"]
    for topic in topics:
        batch(folder, topic, 1, 0, [1, 2], columns=7)
        batch(folder, topic, 2, 2, [3])
    (folder / "messages/orders/2026-11-21/0000000003-orphan-0.parquet").write_bytes(b"no parquet")
    archive = opened(folder)
    live = spark.read.format("mqueue").option("topic", "orders").option("includeHeaders", "true").load()
    frame = archive.frame(spark, topics)
    assert frame.schema == live.schema
    rows = frame.orderBy("topic", "offset").collect()
    assert [(row.topic, row.offset) for row in rows] == [(t, o) for t in sorted(topics) for o in (1, 2, 3)]
    assert {row.offset for row in rows if row.payload is None} == {1, 2}
    assert archive.frame(spark, "orders", "deliveries").count() == 0
    with pytest.raises(NoSuchTopic, match="has no topic 'order'; it has "):
        archive.frame(spark, "order")
