"""Exports: the rows of a batch as files for other tools. A failed export leaves no files that count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message
from django_mqueue.spark import export
from django_mqueue.spark.errors import ExportError, NoSuchTopic
from django_mqueue.spark.exports.export_run import Exported
from tests.support.subscribers import QUICK, in_log, poll_until, settle

from . import hooks
from .commands import NO_DJANGO, SMALL, arguments_of, command
from .crashing import Processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Export = Callable[..., Exported]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "for" / "analysts"


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], place: Path) -> Export:
    """Return a function that exports with options of the format and arguments of ``export``."""

    def run(
        to: str | Path = place,
        columns: Any = None,
        progress: Any = None,
        compression: str = "zstd",
        **more: str,
    ) -> Exported:
        return export(
            spark, str(to), options={**options, **more}, columns=columns, progress=progress, compression=compression
        )  # fmt: skip

    return run


def rows(place: Path) -> list[dict[str, Any]]:
    """Return the rows in the order of the files' names, read with pyarrow alone."""
    import pyarrow.parquet as pq

    return [row for path in files(place) for row in pq.ParquetFile(path).read().to_pylist()]


def files(place: Path) -> list[Path]:
    return sorted(place.glob("*.parquet"))


def left(place: Path) -> list[Path]:
    """Return the files of task attempts, which readers ignore."""
    return sorted(place.glob(".writing-*/*/*.parquet"))


def is_whole(path: Path) -> bool:
    data = path.read_bytes()
    return len(data) > 8 and data.endswith(b"PAR1")


def fill() -> None:
    subscribe("orders", "billing")
    publish("orders", b"\x00\xff", id="raw", headers={"by": "web"}, kind="placed")
    publish_many("orders", [OutgoingMessage({"n": n}, key=f"k{n % 7}") for n in range(150)])
    publish("orders", "for one", group="billing")
    publish_many("other", range(30))


def test_an_export_is_what_the_format_reads(
    run: Export, spark: SparkSession, options: dict[str, str], place: Path
) -> None:
    import pyarrow.parquet as pq

    fill()
    done = run(subscribe="orders,other", includeHeaders="true", maxRecordsPerPartition="50")
    read = (
        spark.read.format("mqueue").options(**options, subscribe="orders,other", includeHeaders="true").load()
    )
    found = spark.read.parquet(str(place))
    assert found.schema == read.schema
    assert found.exceptAll(read).count() == read.exceptAll(found).count() == 0
    assert (done.rows, done.files) == (181, len(files(place)))
    assert done.files > 2
    assert [row["offset"] for row in rows(place)] == [*in_log("orders")[:151], *in_log("other")]
    told = json.loads((place / "_SUCCESS").read_bytes())
    assert told == {
        "rows": 181,
        "files": [
            {"path": path.name, "rows": pq.read_metadata(path).num_rows, "bytes": path.stat().st_size}
            for path in files(place)
        ],
    }
    assert done.bytes == sum(each["bytes"] for each in told["files"])


def test_columns_bounds_and_targets(run: Export, place: Path) -> None:
    fill()
    last = in_log("orders")[-1]
    done = run(
        columns=["payload", "headers", "offset"], compression="none",
        topic="orders", startingOffsets=str(last - 1), includeTargeted="true",
    )  # fmt: skip
    assert done.rows == 2
    *_, found = rows(place)
    assert found == {"payload": b'"for one"', "headers": "{}", "offset": last}
    (path,) = files(place)
    assert ".zstd" not in path.name


@override_settings(MQUEUE=QUICK)
def test_dead_letters_and_deliveries(run: Export, tmp_path: Path) -> None:
    fill()
    with Subscription("orders", "billing") as subscription:
        bad, *good = poll_until(subscription, 152, max_messages=500)
        bad.reject("no such customer")
        subscription.ack(good)
        settle(subscription)
    run(tmp_path / "letters", ["failed_group", "last_error"], topic="orders", table="dead_letters")
    assert [row["failed_group"] for row in rows(tmp_path / "letters")] == ["billing"]
    run(tmp_path / "deliveries", ["offset", "group", "done"], topic="orders", table="deliveries")
    found = rows(tmp_path / "deliveries")
    assert [row["offset"] for row in found] == in_log("orders")
    assert {(row["group"], row["done"]) for row in found} == {("billing", True)}


def test_what_holds_nothing_is_a_file_that_tells_its_columns(
    run: Export, spark: SparkSession, place: Path
) -> None:
    subscribe("quiet", "billing")
    assert run(columns=["offset", "payload"], topic="quiet") == Exported(0, 1, files(place)[0].stat().st_size)
    assert spark.read.parquet(str(place)).columns == ["offset", "payload"]


def test_progress_counts_files(run: Export) -> None:
    fill()
    told: list[tuple[int, int]] = []
    run(progress=lambda *each: told.append(each), topic="orders", maxRecordsPerPartition="8")
    assert told == [(0, 19), (16, 19), (19, 19)]


def test_a_folder_that_is_not_empty_is_left_as_it_is(run: Export, place: Path) -> None:
    fill()
    run(topic="orders")
    before = {path: path.read_bytes() for path in place.iterdir()}
    holds = r"is not empty \(it holds _SUCCESS, part-00000"
    with pytest.raises(ExportError, match=holds):
        run(topic="other")
    assert {path: path.read_bytes() for path in place.iterdir()} == before


def test_a_place_that_cannot_be_is_told_before_anything_is_read(run: Export, tmp_path: Path) -> None:
    fill()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExportError, match=r"file cannot be written: .*Not a directory"):
        run(tmp_path / "file", topic="orders")
    with pytest.raises(ExportError, match=r"cannot be written"):
        run("/proc/there", topic="orders")
    assert (tmp_path / "file").read_text() == "mine"


def test_topics_that_there_are_not(run: Export, place: Path) -> None:
    fill()
    with pytest.raises(NoSuchTopic, match=r"no topic 'oders'.*Did you mean 'orders'"):
        run(topic="oders")
    with pytest.raises(
        NoSuchTopic, match=r"'Orders' matches no whole name of a topic; topics: 'orders', 'other'"
    ):
        run(subscribePattern="Orders")
    assert not place.exists()


def test_messages_that_are_deleted_meanwhile(
    run: Export, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The export fails and leaves nothing. With ``failOnDataLoss`` false it exports the rest."""
    publish_many("orders", range(10))
    hook = f"{hooks.__name__}:deleting"
    with pytest.raises(LogGap, match="were deleted since the read was planned"):
        run(topic="orders", connectionHook=hook)
    assert not list(place.iterdir())
    assert (
        "Traceback" not in capfd.readouterr().err
    )  # The task's process reports no error when it closes a connection that is already closed.
    left = Message.objects.count()
    done = run(topic="orders", connectionHook=hook, failOnDataLoss="false")
    assert done.rows == left - hooks.TAKEN == len(rows(place))


def test_what_a_lost_attempt_has_left_does_not_count(run: Export, spark: SparkSession, place: Path) -> None:
    """The process of each task dies once, when its file is begun."""
    publish_many("orders", range(10))
    done = run(topic="orders", minPartitions="3", connectionHook=f"{hooks.__name__}:dying")
    assert (done.rows, done.files, len(files(place)), left(place)) == (10, 3, 3, [])
    assert sorted(int(row["payload"]) for row in rows(place)) == list(range(10))


def test_an_export_that_is_stopped_leaves_nothing(run: Export, place: Path) -> None:
    fill()

    def stop(done: int, total: int) -> None:
        if done:
            assert left(place)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(progress=stop, topic="orders", maxRecordsPerPartition="8")
    assert not list(place.iterdir())


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_spark_reads_each_compression(
    run: Export, spark: SparkSession, place: Path, compression: str
) -> None:
    import pyarrow.parquet as pq

    publish_many("orders", range(10))
    run(topic="orders", compression=compression)
    assert spark.read.parquet(str(place)).count() == 10
    codec = pq.read_metadata(files(place)[0]).row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_a_late_attempt_adds_nothing(run: Export, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task was considered lost. It ends when the other files have their names, and when all is done."""
    from django_mqueue.spark.exports import export_run

    def late(folder: str) -> None:
        path = place / folder / "late" / "0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")

    finish = export_run.Run._finish

    def finished(self: export_run.Run, *found: Any) -> None:
        finish(self, *found)
        late(self._folder)

    monkeypatch.setattr(export_run.Run, "_finish", finished)
    publish_many("orders", range(10))
    run(topic="orders")
    assert left(place) == []
    late(".writing-a-run")
    assert sorted(path.name for path in place.iterdir()) == [
        ".writing-a-run",
        "_SUCCESS",
        files(place)[0].name,
    ]
    assert len(rows(place)) == 10


def test_of_two_exports_into_one_folder_one_is_told(
    run: Export, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second export writes its files while the first one renames its own."""
    from django_mqueue.spark.exports import export_run

    publish_many("orders", range(10))
    publish_many("other", range(5))
    finish = export_run.Run._finish
    told: list[export_run.Run] = []

    def second(self: export_run.Run, *found: Any) -> None:
        if not told:
            told.append(self)
            with pytest.raises(ExportError, match="another export is naming its files there"):
                run(topic="other")
            assert not files(place)
        finish(self, *found)

    monkeypatch.setattr(export_run.Run, "_finish", second)
    run(topic="orders")
    assert told
    assert [int(row["payload"]) for row in rows(place)] == list(range(10))
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("lands", [True, False])
def test_an_error_when_success_is_written(
    run: Export, place: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], lands: bool
) -> None:
    """If ``_SUCCESS`` exists, its files stay, even if an error follows. Without it no file stays."""
    from django_mqueue.spark.archives.storage import LocalStorage

    write = LocalStorage.write

    def written(self: LocalStorage, path: str, data: bytes) -> None:
        if path != "_SUCCESS" or lands:
            write(self, path, data)
        if path == "_SUCCESS":
            raise error("no answer")

    monkeypatch.setattr(LocalStorage, "write", written)
    publish_many("orders", range(10))
    if error is OSError and lands:
        assert run(topic="orders").rows == 10
    else:
        with pytest.raises(ExportError if error is OSError else error, match="no answer"):
            run(topic="orders")
    assert len(list(place.iterdir())) == (2 if lands else 0)
    if lands:
        named = json.loads((place / "_SUCCESS").read_bytes())["files"]
        assert [each["path"] for each in named] == [path.name for path in files(place)]


def test_one_that_was_written_meanwhile_is_left_as_it_is(run: Export, place: Path) -> None:
    """Another run finishes between the first and the last task of this one."""
    publish_many("orders", range(10))
    publish_many("other", range(5))

    def progress(done: int, total: int) -> None:
        if done == total:
            run(topic="other")

    with pytest.raises(ExportError, match="is not empty"):
        run(topic="orders", progress=progress)
    assert [int(row["payload"]) for row in rows(place)] == list(range(5))
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("how", ["missing", "short"])
def test_files_that_are_not_as_they_were_written(
    run: Export, place: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each machine uses a separate disk under this path, or the disk has lost data."""
    from django_mqueue.spark.exports import export_run

    written = export_run.Run._write

    def spoilt(self: export_run.Run, *ranges: Any) -> Any:
        found = written(self, *ranges)
        for path in left(place):
            path.write_bytes(b"")
            if how == "missing":
                path.unlink()
        return found

    monkeypatch.setattr(export_run.Run, "_write", spoilt)
    publish_many("orders", range(10))
    with pytest.raises(
        ExportError, match=r"the driver does not see a file .* give a location that all machines share"
    ):
        run(topic="orders")
    assert not list(place.iterdir())


def test_dead_letters_by_a_pattern_where_there_are_none(run: Export, place: Path) -> None:
    fill()
    done = run(subscribePattern=".*", table="dead_letters", columns=["offset", "last_error"])
    assert (done.rows, done.files) == (0, 1)


def test_long_ranges_become_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from django_mqueue.spark.archives import parquet
    from django_mqueue.spark.exports import export_run
    from django_mqueue.spark.exports.requests import export_request

    def read(*_: object) -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield pa.RecordBatch.from_pydict({"offset": [number]}, schema=pa.schema([("offset", pa.int64())]))

    monkeypatch.setattr(parquet, "BYTES_PER_FILE", 3)
    monkeypatch.setattr(export_run, "read", read)
    wanted = export_request({"topic": "orders"}, ["offset"], "none")
    range_of_three: Any = object()
    found = export_run.write_range(str(tmp_path), "mine", wanted, range_of_three)
    assert [one.rows for one in found] == [1, 1, 1]
    assert [one.path.rpartition("/")[2] for one in found] == ["0.parquet", "1.parquet", "2.parquet"]
    for one in found:
        path = tmp_path / one.path
        assert (pq.read_metadata(path).num_rows, path.stat().st_size) == (one.rows, one.bytes)


@pytest.mark.exhaustive
def test_a_killed_export_does_not_count(run: Export, options: dict[str, str], place: Path) -> None:
    """One task has written its file, and another task hangs."""
    for topic in ("orders", "other"):
        publish_many(topic, range(10))
    asked = ("export", "--topic", "orders", "--topic", "other", "--to", str(place), "--columns", "payload")
    words = (*asked, *arguments_of(options), "--connection-hook", f"{hooks.__name__}:hanging", *SMALL)
    environment = {**NO_DJANGO, "MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    with command(("django_mqueue.spark",), words, environment) as worker:
        running = Processes(worker)
        running.until(lambda: any(map(is_whole, left(place))), "a file is written")
        running.kill()
    assert left(place)
    assert not files(place)
    done = run(subscribe="orders,other")  # The killed export's files are ignored.
    assert (done.rows, len(rows(place)), done.files) == (20, 20, 2)
    assert left(place)
