"""Exports: the rows of a batch, as files that other tools read; all of them, or none that count."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from django_mqueue.spark.exporting import Exported
from tests.support.subscribers import QUICK, in_log, poll_until, settle

from . import hooks
from .archive_crashing import ARGUMENTS
from .commands import NO_DJANGO, SMALL, command
from .crashing import Processes
from .mounts import mounted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Export = Callable[..., Exported]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "for" / "analysts"


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], place: Path) -> Export:
    """``run(topic=…)`` with options of the format, and arguments of the function."""

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
    """By pyarrow alone, in the order of the files' names."""
    import pyarrow.parquet as pq

    return [row for path in files(place) for row in pq.ParquetFile(path).read().to_pylist()]


def files(place: Path) -> list[Path]:
    return sorted(place.glob("*.parquet"))


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


@pytest.mark.parametrize("hadoop", [False, True])
def test_a_folder_that_is_not_empty_is_left_as_it_is(
    run: Export, spark: SparkSession, place: Path, hadoop: bool
) -> None:
    fill()
    run(topic="orders")
    before = {path: path.read_bytes() for path in place.iterdir()}
    holds = r"is not empty \(it holds _SUCCESS, part-00000"
    with mounted(spark, place.parent) as uri, pytest.raises(ExportError, match=holds):
        run(f"{uri}/{place.name}" if hadoop else place, topic="other")
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
        NoSuchTopic, match=r"no topic matches 'Orders' as a whole: there is 'orders', 'other'"
    ):
        run(subscribePattern="Orders")
    assert not place.exists()


def test_messages_that_are_deleted_meanwhile(run: Export, place: Path) -> None:
    """An error, and nothing is left; where that is allowed, what there is."""
    publish_many("orders", range(10))
    hook = f"{hooks.__name__}:deleting"
    with pytest.raises(LogGap, match="were deleted since the read was planned"):
        run(topic="orders", connectionHook=hook)
    assert not list(place.iterdir())
    left = Message.objects.count()
    done = run(topic="orders", connectionHook=hook, failOnDataLoss="false")
    assert done.rows == left - hooks.TAKEN == len(rows(place))


def test_what_a_lost_attempt_has_left_does_not_count(run: Export, spark: SparkSession, place: Path) -> None:
    """Each task's process ends once when its file is begun."""
    publish_many("orders", range(10))
    done = run(topic="orders", minPartitions="3", connectionHook=f"{hooks.__name__}:dying")
    assert (done.rows, done.files, len(files(place))) == (10, 3, 3)
    assert sorted(int(row["payload"]) for row in rows(place)) == list(range(10))


def test_an_export_that_is_stopped_leaves_nothing(run: Export, place: Path) -> None:
    fill()

    def stop(done: int, total: int) -> None:
        if done:
            assert files(place)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(progress=stop, topic="orders", maxRecordsPerPartition="8")
    assert not list(place.iterdir())


def test_where_only_hadoop_has_a_way_to_it_is_the_same(
    run: Export, spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    fill()
    with mounted(spark, tmp_path) as uri:
        with pytest.raises(NoSuchTopic):
            run(f"{uri}/there", topic="nothing")
        done = run(f"{uri}/there", topic="orders", includeHeaders="true", maxRecordsPerPartition="50")
    run(topic="orders", includeHeaders="true", maxRecordsPerPartition="50")
    there = tmp_path / "there"
    assert rows(there) == rows(place)
    assert (done.rows, done.files) == (151, len(files(there)))
    assert done.bytes == sum(path.stat().st_size for path in files(there))
    assert (there / "_SUCCESS").exists()
    mine, theirs = (pq.ParquetFile(files(each)[0]).schema_arrow.remove_metadata() for each in (place, there))
    assert [(field.name, field.type) for field in mine] == [(field.name, field.type) for field in theirs]


def test_messages_deleted_meanwhile_are_the_same_error_where_only_hadoop_has_a_way_to(
    run: Export, spark: SparkSession, tmp_path: Path
) -> None:
    publish_many("orders", range(10))
    with mounted(spark, tmp_path) as uri, pytest.raises(LogGap, match="deleted since the read was planned"):
        run(f"{uri}/there", topic="orders", connectionHook=f"{hooks.__name__}:deleting")
    assert not (tmp_path / "there" / "_SUCCESS").exists()


@pytest.mark.timeout(300)
def test_a_killed_export_does_not_count(run: Export, options: dict[str, str], place: Path) -> None:
    """While one task has written its file, and another one hangs."""
    for topic in ("orders", "other"):
        publish_many(topic, range(10))
    words = ["export", "--topic", "orders", "--topic", "other", "--to", str(place), "--columns", "payload"]
    words += [word for option, value in options.items() for word in (ARGUMENTS[option], value)]
    words += ["--connection-hook", f"{hooks.__name__}:hanging", *SMALL]
    environment = {**NO_DJANGO, "MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    with command(("django_mqueue.spark",), tuple(words), environment) as worker:
        running = Processes(worker)
        running.until(lambda: any(map(is_whole, files(place))), "a file is written")
        running.kill()
    assert files(place)
    assert not (place / "_SUCCESS").exists()
    with pytest.raises(ExportError, match="without _SUCCESS was not finished, and can be deleted"):
        run(topic="orders")
