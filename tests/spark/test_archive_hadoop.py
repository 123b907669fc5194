"""Archives in places that only Hadoop reaches. Both ways of writing and reading give the same folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings
from pyarrow import fs

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message, Offset
from django_mqueue.spark import Archive, archive, backfill, compact, replay, report, verify
from django_mqueue.spark.archiving.layout import data_path
from django_mqueue.spark.errors import ArchiveError, NoArchive, OptionError
from django_mqueue.spark.explaining import explained
from tests.support.subscribers import QUICK, collect, consume, in_log, poll_until, settle

from .archives import age
from .mounts import mounted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archiving import Archived
    from django_mqueue.spark.options import Table

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

TABLES: tuple[Table, ...] = ("messages", "dead_letters", "deliveries")
DAY = 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder behind the mount. The archive is below it."""
    found = tmp_path / "the [old] disk"
    found.mkdir()
    return found


@pytest.fixture
def uri(spark: SparkSession, folder: Path) -> Iterator[str]:
    with mounted(spark, folder) as found:
        yield f"{found}/a b/archive"


@pytest.fixture
def place(folder: Path) -> Path:
    """Return the archive's path on the local disk."""
    return folder / "a b" / "archive"


Run = Callable[..., "Archived"]


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], uri: str) -> Run:
    def run(to: str | Path = uri, **more: Any) -> Archived:
        (done,) = archive(spark, "orders", str(to), options=options, **more)
        return done

    return run


def held(place: Path, table: Table = "messages") -> list[dict[str, Any]]:
    """Return the rows of an archive, read with pyarrow alone. Each file must hold one day."""
    import pyarrow.parquet as pq

    found = []
    for entry in Archive.open(place).entries("orders", table):
        assert entry.path.split("/")[2] == entry.date
        found += pq.ParquetFile(place / entry.path).read().to_pylist()
    return found


def offsets(place: Path) -> list[int]:
    return [row["offset"] for row in held(place)]


def left_behind(place: Path) -> list[str]:
    """Return the files that do not belong to the archive."""
    named = {entry.path for table in TABLES for entry in Archive.open(place).entries("orders", table)}
    there = (path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    return [
        path
        for path in there
        if path not in named and not path.endswith(".crc") and not re.search(r"[a-z0-9]\.json$", path)
    ]


def fill() -> None:
    """Publish messages of three days, out of order around midnight, some for one group only.

    Add deliveries and a dead letter.
    """
    subscribe("orders", "billing")
    publish("orders", b"\x00\xff", id="raw", headers={"by": "web"}, kind="placed")
    publish_many("orders", [OutgoingMessage({"n": n}, key=f"k{n % 7}") for n in range(150)])
    for n in range(20):
        publish("orders", n, group="billing")
    for number, offset in enumerate(in_log("orders")):
        at = 20_000 * DAY + (number // 60) * DAY - (DAY if 60 < number < 70 and number % 2 else 0)
        Message.objects.filter(offset=offset).update(published_at=at)
    with Subscription("orders", "billing") as subscription:
        bad, *good = poll_until(subscription, 171, max_messages=500)
        bad.reject("no such customer")
        subscription.ack(good)
        settle(subscription)


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_the_archive_is_the_same_as_one_by_arrow(
    run: Run, uri: str, place: Path, folder: Path, spark: SparkSession
) -> None:
    """Hadoop and Arrow write the same rows in the same order, with the same types, paths and manifest entries."""
    import pyarrow.parquet as pq

    from django_mqueue.spark.configuring import configured

    fill()
    session = {"spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.session.timeZone": "Asia/Tokyo"}
    with configured(spark, session):
        done = run(batch_rows=100)
        assert {name: spark.conf.get(name) for name in session} == session
    straight = folder / "straight"
    other = run(straight, group="other", batch_rows=100)
    assert done.rows == other.rows == {"messages": 171, "dead_letters": 1, "deliveries": 171}
    assert (done.upto, done.batches, done.files) == (other.upto, other.batches, other.files)
    for table in TABLES:
        assert held(place, table) == held(straight, table)
        mine, theirs = (
            Archive.open(place).entries("orders", table),
            Archive.open(straight).entries("orders", table),
        )
        assert [(e.rows, e.first, e.last, e.date) for e in mine] == [
            (e.rows, e.first, e.last, e.date) for e in theirs
        ]
        for one, two in zip(mine, theirs, strict=True):
            first, second = pq.ParquetFile(place / one.path), pq.ParquetFile(straight / two.path)
            assert first.schema_arrow.remove_metadata() == second.schema_arrow.remove_metadata()
            assert first.metadata.row_group(0).column(0).compression == "ZSTD"
    assert left_behind(place) == []
    archive, known = Archive.open(uri, spark), Archive.open(place)
    assert (archive.topics(), archive.upto("orders")) == (["orders"], known.upto("orders"))
    assert archive.entries("orders") == known.entries("orders")
    for table in TABLES:
        rows = archive.frame(spark, "orders", table).collect()
        assert sorted(map(repr, rows)) == sorted(map(repr, known.frame(spark, "orders", table).collect()))
    for way in (uri, str(place)):
        (found,) = verify(spark, way)
        assert (found.problems, found.orphans, found.rows) == ([], [], 343)


def test_what_was_begun_one_way_goes_on_the_other(
    run: Run, uri: str, place: Path, spark: SparkSession
) -> None:
    """Runs and compactions alternate between Hadoop and the local path. Garbage collection follows each run."""
    wanted: list[int] = []
    for number, way in enumerate([uri, place, uri, f"hadoop+file://{place}", place]):
        publish_many("orders", range(40))
        wanted += in_log("orders")
        assert run(way, batch_rows=25).rows["messages"] == 40
        with override_settings(MQUEUE=QUICK):
            collect("orders")
        assert in_log("orders") == []
        assert offsets(place) == wanted
        if number in (1, 2, 4):
            (done,) = compact(spark, [uri, str(place)][number % 2])
            assert done.manifests > 1 == done.manifests_now == done.files_now
            assert offsets(place) == wanted
    for way in (uri, str(place)):
        (found,) = verify(spark, way)
        assert (found.problems, found.rows) == ([], 200)


def test_days_are_compacted_each_by_itself_into_files_of_a_bounded_size(
    run: Run, uri: str, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_mqueue.spark.archiving import indirect

    fill()
    for _ in range(2):
        run(batch_rows=60, history_after=0)
    before = {table: held(place, table) for table in TABLES}
    entries = Archive.open(place).entries("orders")
    monkeypatch.setattr(indirect, "BYTES_PER_FILE", sum(e.bytes for e in entries) // 4)
    (done,) = compact(spark, uri)
    assert done.files > done.files_now
    now = Archive.open(place).entries("orders")
    assert {entry.date for entry in now} == {"2024-10-04", "2024-10-05", "2024-10-06"}
    assert len(now) > 3
    order = [("offset", "group"), ("offset",)]
    for table in TABLES:
        by = order[0] if table == "deliveries" else order[1]
        rows, were = (
            sorted(each, key=lambda row: [row[name] for name in by])
            for each in (held(place, table), before[table])
        )
        assert rows == were
    assert verify(spark, uri)[0].problems == verify(spark, str(place))[0].problems == []


class Killed(BaseException):
    """Stands for a kill: the code does not catch it. test_archive_kills has real kills."""


@pytest.mark.parametrize("before", ["the names", "the manifest", "the move"])
def test_a_run_that_ended_anywhere_is_gone_on_with(
    run: Run, uri: str, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    from django_mqueue.spark.archiving import indirect, running
    from django_mqueue.spark.archiving.hadoop import HadoopFiles

    def kill(*_: object, **_more: object) -> None:
        raise Killed

    def log() -> list[int]:
        with override_settings(MQUEUE=QUICK):
            collect("orders")
        return in_log("orders")

    publish_many("orders", range(40))
    wanted = log()
    write = HadoopFiles.write
    with monkeypatch.context() as patch:
        if before == "the names":
            patch.setattr(indirect._Folder, "named", kill)
        elif before == "the manifest":
            patch.setattr(
                HadoopFiles,
                "write",
                lambda self, path, data: kill() if "manifests" in path else write(self, path, data),
            )
        else:
            patch.setattr(running, "move", kill)
        with pytest.raises(Killed):
            run(batch_rows=20)
    assert log() == wanted
    run(batch_rows=20)
    assert offsets(place) == wanted
    assert log() == []
    age(place)
    (found,) = verify(spark, uri, clean=True)
    assert (found.problems, len(found.orphans)) == ([], found.deleted)
    assert bool(found.deleted) == (before == "the manifest")


@pytest.mark.once
def test_rows_of_a_task_that_was_tried_again_are_there_once(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and counts of the failed first attempt are ignored."""
    from django_mqueue.spark.archiving.indirect import _reading

    def at_first_failing(*arguments: Any) -> Any:
        read = _reading(*arguments)

        def tried(batches: Any) -> Any:
            from pyspark import TaskContext

            yield from read(batches)
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("at the end of the first attempt")

        return tried

    monkeypatch.setattr("django_mqueue.spark.archiving.indirect._reading", at_first_failing)
    publish_many("orders", range(20))
    assert run().rows["messages"] == 20
    assert offsets(place) == in_log("orders")
    assert left_behind(place) == []


@pytest.mark.once
@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (
            lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
            "has another checksum|cannot be read",
        ),
        (lambda data: data[:-1], r"has \d+ bytes, not \d+"),
        (None, "is missing"),
    ],
)
def test_verification_finds_what_is_damaged(
    run: Run, uri: str, place: Path, spark: SparkSession, harm: Callable[[bytes], bytes] | None, told: str
) -> None:
    publish_many("orders", range(20))
    run(batch_rows=10)
    entry = Archive.open(place).entries("orders")[0]
    file = place / entry.path
    if harm is None:
        file.unlink()
    else:
        file.write_bytes(harm(file.read_bytes()))
    file.with_name(f".{file.name}.crc").unlink()  # Otherwise Hadoop's checksum finds the damage.
    (found,) = verify(spark, uri)
    assert re.search(told, "\n".join(found.problems)), found.problems
    assert entry.path in found.problems[0]
    assert len(found.problems) == 1
    with pytest.raises(ArchiveError, match=told):
        compact(spark, uri)
    assert len(Archive.open(place).manifests("orders")) == 2


def test_messages_that_are_gone_are_told_and_nothing_is_named(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of tasks pass through Spark unchanged."""
    from django_mqueue.spark.archiving.indirect import written

    publish_many("orders", range(10))

    def late(*arguments: Any) -> Any:
        Message.objects.filter(offset=in_log("orders")[4]).delete()
        return written(*arguments)

    monkeypatch.setattr("django_mqueue.spark.archiving.running.written", late)
    with pytest.raises(LogGap, match="1 of the 5 messages"):
        run()
    assert (offsets(place), left_behind(place)) == ([], [])


@pytest.mark.once
def test_a_file_that_was_not_stored_as_it_was_written_is_not_named(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_mqueue.spark.archiving.parquet import offsets_of

    there = "django_mqueue.spark.archiving.indirect.offsets_of"
    publish_many("orders", range(10))
    monkeypatch.setattr(there, lambda *file: replace(offsets_of(*file), rows=9))
    with pytest.raises(ArchiveError, match=r"read back from .*, but .* were written"):
        run()
    assert (offsets(place), left_behind(place)) == ([], [])
    monkeypatch.setattr(there, offsets_of)
    assert run().rows["messages"] == 10


@pytest.mark.once
def test_a_walk_takes_as_many_calls_of_java_s_however_many_files_there_are(
    place: Path, uri: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run walks once through each table, to check that no manifest is lost."""
    from django_mqueue.spark.archiving.files import LocalFiles, files_at

    client = spark.sparkContext._gateway._gateway_client
    send, calls = client.send_command, 0

    def counted(command: str, *more: Any, **named: Any) -> Any:
        nonlocal calls
        calls += not command.startswith("m")  # Python releases Java objects.
        return send(command, *more, **named)

    monkeypatch.setattr(client, "send_command", counted)
    files, told = files_at(uri, spark), []
    for day in ("2026-11-20", "2026-11-21"):
        for number in range(40):
            path = place / data_path("messages", "a b%2F/c", day, 1, "killed", number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"1" * number)
        calls = 0
        found = files.list("messages", deep=True)
        told.append(calls)
        known = LocalFiles(str(place)).list("messages", deep=True)
        assert [(each.path, each.bytes) for each in found] == [(each.path, each.bytes) for each in known]
        assert [each.modified for each in found] == pytest.approx([each.modified for each in known], abs=0.01)
    assert len(found) == 80
    assert max(told) < 100, told


@pytest.mark.once
def test_what_a_killed_run_has_left_is_cleaned_away_when_it_is_old(
    run: Run, uri: str, place: Path, spark: SparkSession
) -> None:
    import os

    publish("orders", 1)
    run()
    paths = []
    for name in ("old", "new"):
        paths.append(place / ".writing" / name / "messages/_temporary/part.parquet")
        paths[-1].parent.mkdir(parents=True)
        paths[-1].write_bytes(b"")
    os.utime(paths[0], (0, 0))
    for way in (uri, str(place)):
        verify(spark, way, clean=True)
        assert [path.exists() for path in paths] == [False, True]
        os.utime(paths[1])
    assert not (place / ".writing/old").exists()


def test_what_cannot_be_written_is_told_before_anything_is_changed(
    run: Run, uri: str, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("orders", 1)
    (folder / "file").write_text("")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("")
    (folder / "deep" / "sub").mkdir(parents=True)
    (folder / "deep" / "sub" / "notes.txt").write_text("")
    base = uri.removesuffix("/a b/archive")
    cases = [
        (f"{base}/file", ArchiveError, "cannot be written: .*is a file"),
        (f"{base}/file/below", ArchiveError, "cannot be written: .*not a directory"),
        (f"{base}/full", ArchiveError, "is not empty .it holds notes.txt"),
        (f"{base}/deep", ArchiveError, "is not empty .it holds sub/notes.txt"),
        (base.replace("/mnt", "/elsewhere"), ArchiveError, "cannot be written"),
        ("viewfs://nobody/x", OptionError, "no way to there by pyarrow: .* nor by Hadoop: .*[Mm]ount"),
        ("zz://x/y", OptionError, 'nor by Hadoop: .*No FileSystem for scheme "zz"'),
        ("hadoop+zz://x/y", OptionError, 'zz://x/y: no way to there .*No FileSystem for scheme "zz"'),
    ]
    for place, error, message in cases:
        with pytest.raises(error, match=message):
            run(place)
    monkeypatch.setattr(
        "django_mqueue.spark.archiving.indirect.AS_ARROW_WRITES", {"spark.sql.files.maxRecordsPerFile": "x"}
    )
    with pytest.raises(ArchiveError, match="cannot be written: "):
        run()
    assert not Offset.objects.filter(consumer_group="archive").exists()
    assert not list(folder.rglob("*probe*"))
    with pytest.raises(NoArchive, match=r"it holds notes\.txt, but not"):
        Archive.open(f"{base}/full", spark)


@pytest.mark.once
def test_without_a_session_that_can_ask_hadoop_it_is_said_what_to_do() -> None:
    from django_mqueue.spark.archiving.files import files_at

    with pytest.raises(
        OptionError, match=r"no way to there by pyarrow: .*give it, as in Archive.open\(to, spark\)"
    ):
        Archive.open("viewfs://x/y")

    class Connected:
        """A Spark Connect session, which has no JVM."""

    with pytest.raises(OptionError, match="cannot be asked through Spark Connect"):
        files_at("viewfs://x/y", Connected())
    with pytest.raises(OptionError, match="keys do not belong into the archive's place"):
        files_at("hadoop+s3a://me:secret@bucket/x")


@pytest.mark.once
def test_a_long_reason_leaves_the_way_out_in_what_a_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's error lists every path where it looked for Java.

    The command's error line is limited to some hundred characters.
    """

    def from_uri(uri: str) -> object:
        raise OSError("Unable to load libjvm " + "dlopen(/usr/lib/jvm/default-java/libjvm.so) failed: " * 20)

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(OptionError) as caught:
        Archive.open("viewfs://x/y")
    said = explained(caught.value)
    assert said is not None
    assert "by pyarrow: Unable to load libjvm" in said
    assert said.endswith("give it, as in Archive.open(to, spark)")


def test_reports_replays_and_backfills_read_it(
    run: Run, uri: str, place: Path, spark: SparkSession, options: dict[str, str]
) -> None:
    publish_many("orders", [OutgoingMessage({"n": n}, key=f"k{n % 2}") for n in range(10)])
    run()
    with override_settings(MQUEUE=QUICK):
        collect("orders")
    publish_many("orders", [OutgoingMessage({"n": n}, key=f"k{n % 2}") for n in range(10, 14)])
    found = report(spark, archive=uri, topics=["orders"], options=options)
    assert [one.published for one in found.topics] == [14]
    replay(spark, "orders", "again", source=uri, to="again", options=options, dry_run=False)
    assert len(in_log("again")) == 10
    backfill(spark, "orders", "reports", source=uri, options=options, dry_run=False)
    with Subscription("orders", "reports") as subscription:
        got = consume(subscription, 14)
    for key in ("k0", "k1"):
        mine = [one.payload["n"] for one in got if one.key == key]
        assert mine == sorted(mine)
