"""Archives in an object store: all operations, writers that return late, lost answers, and refused places.

The server is a process of its own (see ``s3``). Spark's Python processes get its address by their environment.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import F
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.exceptions import GroupTaken
from django_mqueue.models import Message, SubscriberHeartbeat
from django_mqueue.service.registration import is_registered
from django_mqueue.spark import Archive, archive, compact, erase, export, replay, report, verify
from django_mqueue.spark.archives.storage import storage_at
from django_mqueue.spark.archives.tables import Snapshot, create_table, open_table
from django_mqueue.spark.database import heartbeating
from django_mqueue.spark.errors import ArchiveError, NoArchive, OptionError
from tests.support.subscribers import QUICK, collect, in_log, poll_until
from tests.support.waiting import SPARK_PATIENCE

from . import s3
from .streams import stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archives.archive_run import Archived

pytestmark = pytest.mark.spark

GROUP = "archive"
SECRET = b"a secret of one customer, which is long enough"


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3.server() as environment:
        yield environment


@pytest.fixture
def store(server: dict[str, str], spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let this process and Spark's Python processes find the server. Return a new name for a folder.

    For another environment Spark starts other Python processes, so these variables never reach other tests.
    """
    for name, value in server.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return f"{uuid.uuid4().hex}/an archive"


class Runs:
    """Archive runs of the test database into one folder of an object store."""

    def __init__(self, spark: SparkSession, options: dict[str, str], to: str) -> None:
        self.spark, self.options, self.to = spark, options, to

    def __call__(self, topics: Any = "orders", **more: Any) -> list[Archived]:
        return archive(self.spark, topics, **{"to": self.to, "options": self.options, **more})

    def rows(self, table: Any = "messages", topic: str = "orders") -> list[Any]:
        """Return the rows of the archive, in order."""
        by = ["offset", "group"] if table == "deliveries" else ["offset"]
        return list(Archive.open(self.to).frame(self.spark, topic, table).orderBy(*by).collect())

    def offsets(self, table: Any = "messages") -> list[int]:
        return [row["offset"] for row in self.rows(table)]

    def objects(self) -> dict[str, bytes]:
        """Return all objects of the folder."""
        storage = storage_at(self.to)
        return {path: storage.read(path) for path in storage.list()}


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], store: str) -> Runs:
    return Runs(spark, options, f"s3://plain/{store}")


def dead_letter() -> None:
    """Let the group ``billing`` reject the oldest message."""
    with Subscription("orders", "billing") as subscription:
        (delivery, *others) = poll_until(subscription, 1)
        delivery.reject("no such customer")
        for other in others:
            other.ack()


@override_settings(MQUEUE=QUICK)
def test_all_operations(run: Runs, spark: SparkSession, options: dict[str, str], store: str) -> None:
    with Subscription("orders", "billing"):
        pass
    publish("orders", SECRET, key="ada", id="secret")
    publish_many("orders", [OutgoingMessage({"n": n}, key="bob") for n in range(50)])
    dead_letter()
    live = spark.read.format("mqueue").options(**options, topic="orders", includeHeaders="true").load()
    wanted = [row.asDict() for row in live.orderBy("offset").collect()]
    (done,) = run(history_after=0)
    assert done.rows == {"messages": 51, "dead_letters": 1, "deliveries": 51}
    assert [row.asDict() for row in run.rows()] == wanted
    assert stands_at(GROUP) == wanted[-1]["offset"]

    collect("orders")
    assert in_log("orders") == []
    publish_many("orders", [OutgoingMessage({"n": n}, key="bob") for n in range(50, 60)])
    assert run()[0].rows["messages"] == 10
    assert [each.batches for each in run()] == [0]

    (compacted,) = compact(spark, run.to)
    assert (compacted.files > compacted.files_now, compacted.rows >= 61) == (True, True)
    assert len(run.rows()) == 61
    (found,) = verify(spark, run.to)
    assert (found.problems, found.rows) == ([], 61 + 1 + 51)

    assert any(SECRET in data for data in run.objects().values()), (
        "the files are compressed, the value is not"
    )
    erased = erase(spark, run.to, "orders", key="ada", keep_hours=0)
    assert erased.rows == {"messages": 1, "dead_letters": 1, "deliveries": 1}
    (found,) = verify(spark, run.to, clean=True, keep_hours=0)
    assert (found.problems, found.erased) == ([], 3)
    objects = run.objects()
    assert not any(SECRET in data for data in objects.values())
    (found,) = verify(spark, run.to)
    assert (found.problems, found.unused) == ([], [])
    assert {row["key"] for row in run.rows()} == {"bob"}

    report_of_it = report(spark, "orders", archive=run.to, live=False)
    assert sum(step.published or 0 for step in report_of_it.steps) == 60
    again = replay(spark, "orders", "spring", source=run.to, to="again", options=options, dry_run=False)
    assert again.total == Message.objects.filter(topic="again").count() == 60

    exported = f"s3://plain/{store} exported"
    export(spark, exported, options={**options, "topic": "again"})
    paths = list(storage_at(exported).list())
    assert "_SUCCESS" in paths
    assert any(path.endswith(".parquet") for path in paths)
    assert not [path for path in paths if path.startswith(".")]


@pytest.mark.parametrize("table", ["messages", "dead_letters"])
@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_a_writer_that_returns_late_adds_nothing(
    run: Runs, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A run has written its files, and has no connection when it is about to commit ``table``.

    Another run takes over its group, archives the same batch, and moves the group. Then the first one continues.
    """
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 3600)
    with Subscription("orders", "billing"):
        pass
    publish_many("orders", range(20))
    dead_letter()
    real, others = Snapshot.commit, [True]
    taken: list[Archived] = []

    def commit(snapshot: Snapshot, *arguments: Any, **more: Any) -> Snapshot:
        if others and snapshot.table == table:
            others.pop()
            SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
            taken.extend(run())
        return real(snapshot, *arguments, **more)

    monkeypatch.setattr(Snapshot, "commit", commit)
    with pytest.raises((ArchiveError, GroupTaken), match="was not changed"):
        run()
    (other,) = taken
    assert other.rows["messages"] == 20
    assert run.offsets() == in_log("orders"), "nothing is missing, and nothing is there twice"
    assert len(run.rows("dead_letters")) == 1
    assert stands_at(GROUP) == in_log("orders")[-1]
    (found,) = verify(run.spark, run.to)
    assert found.problems == []
    assert [path for path in found.unused if path.startswith("messages/")], "the files of the first run"
    publish("orders", "more")
    assert run()[0].rows["messages"] == 1
    (found,) = verify(run.spark, run.to, clean=True, keep_hours=0)
    assert (found.problems, found.deleted) == ([], 0), "they may be of a run that has not committed yet"
    assert run.offsets() == in_log("orders")


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_a_writer_that_returns_late_moves_no_group(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run has committed everything, and has no connection when it is about to move its group."""
    from django_mqueue.spark.archives import archive_run

    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 3600)
    publish_many("orders", range(20))
    real, others = archive_run.Run._move, [True]

    def move(self: Any, reached: Any) -> None:
        if others:
            others.pop()
            SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)
            assert [each.rows["messages"] for each in run()] == [0], "the tables have it all"
        real(self, reached)

    monkeypatch.setattr(archive_run.Run, "_move", move)
    with pytest.raises(GroupTaken, match="another reader replaced it"):
        run()
    assert run.offsets() == in_log("orders")
    assert stands_at(GROUP) == in_log("orders")[-1]


def test_a_commit_whose_answer_is_lost_counts_once(
    spark: SparkSession, options: dict[str, str], store: str
) -> None:
    """The client repeats the request, which the server refuses, because the object exists. It is its own."""
    run = Runs(spark, options, f"s3://forgetful/{store}")
    publish_many("orders", range(20))
    assert run()[0].rows["messages"] == 20
    publish_many("orders", range(5))
    assert run()[0].rows["messages"] == 5
    assert compact(spark, run.to)[0].rows == 25
    publish("orders", "for ada", key="ada")
    run()
    assert erase(spark, run.to, "orders", key="ada").rows["messages"] == 1
    assert len(run.offsets()) == len(set(run.offsets())) == 25
    (found,) = verify(spark, run.to)
    assert (found.problems, found.rows) == ([], 25)


def test_a_table_is_created_once_though_the_answer_is_lost(
    spark: SparkSession, options: dict[str, str], store: str
) -> None:
    run = Runs(spark, options, f"s3://forgetful-at-first/{store}")
    publish("orders", 1)
    assert run()[0].rows["messages"] == 1
    commits = [data for path, data in run.objects().items() if "/_delta_log/" in path]
    assert sum(b'"metaData"' in data for data in commits) == 3, "one for each table"


@pytest.mark.parametrize("remote", [False, True])
def test_of_several_that_create_a_table_at_once_one_does(store: str, tmp_path: Path, remote: bool) -> None:
    """Otherwise two databases, or two groups, could begin one archive. It would be that of the last one."""
    together = threading.Barrier(4, timeout=SPARK_PATIENCE)

    def create(place: str, name: str) -> bool:
        together.wait()
        try:
            create_table(storage_at(place), "messages", {"mqueue.archive": name})
        except ArchiveError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for attempt in range(30):
            place = f"s3://plain/{store}/{attempt}" if remote else str(tmp_path / str(attempt))
            outcomes = list(pool.map(create, [place] * 4, "abcd"))
            assert outcomes.count(True) == 1
            found = open_table(storage_at(place), "messages")
            assert found is not None
            assert found.properties["mqueue.archive"] == "abcd"[outcomes.index(True)]


def unchanged() -> None:
    """Nothing is registered, and no message may be deleted."""
    assert not is_registered("orders", GROUP, "default")
    with override_settings(MQUEUE=QUICK):
        collect("orders")
    assert len(in_log("orders")) == 1


@pytest.mark.parametrize(
    ("bucket", "reason"),
    [
        ("no-such-bucket", "(?s)s3://no-such-bucket/.*NoSuchBucket"),
        ("forbidden", "(?s)s3://forbidden/.*403 Forbidden"),
        ("read-only", "(?s)s3://read-only/.* cannot be written: .*403 Forbidden"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_with_the_reason(
    spark: SparkSession, options: dict[str, str], store: str, bucket: str, reason: str
) -> None:
    to = f"s3://{bucket}/{store}"
    publish("orders", 1)
    with pytest.raises(ArchiveError, match=reason):
        archive(spark, "orders", to, options=options)
    unchanged()
    for operation in (
        lambda: Archive.open(to),
        lambda: verify(spark, to),
        lambda: compact(spark, to),
        lambda: erase(spark, to, "orders", key="ada"),
        lambda: replay(spark, "orders", "spring", source=to, options=options),
        lambda: report(spark, "orders", archive=to, live=False),
    ):
        with pytest.raises((ArchiveError, NoArchive), match=f"s3://{bucket}/"):
            operation()
    unchanged()


def test_an_archive_that_is_not_there_is_told_with_what_is_there(
    spark: SparkSession, options: dict[str, str], store: str
) -> None:
    to = f"s3://plain/{store}"
    with pytest.raises(NoArchive, match="it holds no file, but no Delta table messages"):
        Archive.open(to)
    storage_at(to).write("photo.jpg", b"")
    with pytest.raises(NoArchive, match=r"it holds photo\.jpg, but no Delta table messages"):
        Archive.open(to)
    publish("orders", 1)
    with pytest.raises(ArchiveError, match=r"is not an archive and is not empty \(it holds photo\.jpg\)"):
        archive(spark, "orders", to, options=options)
    unchanged()
    archive(spark, "orders", f"{to}-of-its-own", options=options)
    assert list(storage_at(to).list()) == ["photo.jpg"], "folders are apart by whole names"


def test_a_store_without_conditional_writes_is_refused(
    spark: SparkSession, options: dict[str, str], store: str
) -> None:
    """There, of two writers of one version of a table the second one replaces the commit of the first one."""
    publish("orders", 1)
    with pytest.raises(ArchiveError, match="has no conditional writes"):
        archive(spark, "orders", f"s3://overwriting/{store}", options=options)
    unchanged()


def test_what_a_store_without_conditional_writes_does(store: str) -> None:
    """A check must write one name twice, each time as a new object."""
    for bucket, replaces in (("plain", False), ("overwriting", True)):
        storage = storage_at(f"s3://{bucket}/{store}")
        storage.write("probe", b"1")
        if replaces:
            storage.write("probe", b"2")
        else:
            with pytest.raises(FileExistsError):
                storage.write("probe", b"2")
        assert storage.read("probe") == (b"2" if replaces else b"1")


def test_executors_that_reach_another_store_are_refused(
    spark: SparkSession, options: dict[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files would be where the driver cannot see them, and the messages would be deleted."""
    publish("orders", 1)
    with s3.server() as another:
        for name, value in another.items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        with pytest.raises(ArchiveError, match="the driver does not see files that an executor writes there"):
            archive(spark, "orders", f"s3://plain/{store}", options=options)
    unchanged()


@pytest.mark.parametrize("name", ["a?b", "a#b"])
def test_a_uri_with_a_query_or_a_fragment_is_refused(
    spark: SparkSession, options: dict[str, str], store: str, name: str
) -> None:
    """``object_store`` leaves out everything from there on: the folder would be another one."""
    publish("orders", 1)
    with pytest.raises(OptionError, match=r"must not contain keys, a \? or a #"):
        archive(spark, "orders", f"s3://plain/{store}/{name}", options=options)
    unchanged()
    assert storage_at(f"s3://plain/{store}").list() == {}


@pytest.mark.parametrize("name", ["100%20", "x%2Fy"])
def test_a_path_with_a_quoted_character_is_refused(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, name: str
) -> None:
    """``deltalake`` takes it for the character, and does not find what it has written there."""
    publish("orders", 1)
    with pytest.raises(OptionError, match="must not contain a backslash, or a % before two"):
        archive(spark, "orders", str(tmp_path / name), options=options)
    unchanged()
    assert list(tmp_path.rglob("*.json")) == []


def test_errors_of_the_store_are_shown_without_colours(store: str) -> None:
    for bucket in "forbidden", "no-such-bucket":
        with pytest.raises((ArchiveError, NoArchive)) as caught:
            Archive.open(f"s3://{bucket}/{store}")
        assert "\x1b" not in str(caught.value)
        assert "RetryError" not in str(caught.value)
