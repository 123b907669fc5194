"""Archive runs: their content, what garbage collection may delete afterwards, and a run after a killed run."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, reset, subscribe, unsubscribe
from django_mqueue.exceptions import GroupTaken, LogGap
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.spark import Archive
from django_mqueue.spark.archives.tables import Snapshot
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic, OptionError
from django_mqueue.spark.sql import installation
from django_mqueue.spark.sql.installation import Installation
from django_mqueue.store.leases import Holder
from tests.support.subscribers import QUICK, consume, in_log, poll_until, settle

from . import streams
from .archive_runs import Runs, left
from .streams import reads_log, stands_at, subscribe_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archives.topic_state import TopicState
    from django_mqueue.spark.reader.options import Table

pytestmark = pytest.mark.spark

GROUP = "archive"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def test_a_topic_is_archived_as_it_is_and_then_deleted(
    run: Runs, place: Path, spark: SparkSession, options: dict[str, str]
) -> None:
    publish("orders", {"order": 1}, key="ada", id="order-1", kind="placed", headers={"by": "web"})
    publish("orders", b"\x00\xff", id="raw")
    live = spark.read.format("mqueue").options(**options, topic="orders", includeHeaders="true").load()
    wanted = [row.asDict() for row in live.orderBy("offset").collect()]
    (done,) = run()
    assert (done.topic, done.rows["messages"], done.batches) == ("orders", 2, 1)
    archive = Archive.open(place)
    frame = archive.frame(spark, "orders")
    assert [row.asDict() for row in frame.orderBy("offset").collect()] == wanted
    assert (
        archive.upto("orders")
        == done.upto["messages"]
        == done.position
        == stands_at(GROUP)
        == wanted[-1]["offset"]
    )
    assert left() == []
    assert frame.count() == 2
    assert [found.batches for found in run()] == [0]
    later = publish("orders", 3).offset
    assert run()[0].rows["messages"] == 1
    assert run.offsets() == [wanted[0]["offset"], wanted[1]["offset"], later]
    assert [snapshot.version for snapshot in Archive.open(place).snapshots.values()] == [2, 0, 2]
    assert not list(place.glob(".probe*"))


def test_batches_ranges_and_days(run: Runs, place: Path) -> None:
    """Several topics at once. Messages of several days, out of order around midnight; some are for one group only."""
    subscribe("orders", "billing")
    publish_many("orders", [OutgoingMessage(n, key=f"k{n % 7}") for n in range(500)])
    for n in range(50):
        publish("orders", n, group="billing")
    publish_many("orders", range(200))
    for n in range(50):
        publish("orders", n, group="billing")
    publish_many("parcels", range(200))
    all_offsets = in_log("orders")
    day = 86_400_000
    for place_in_log, offset in enumerate(all_offsets):
        at = (
            20_000 * day
            + (place_in_log // 200) * day
            - (day if 200 < place_in_log < 220 and place_in_log % 2 else 0)
        )
        Message.objects.filter(offset=offset).update(published_at=at)
    seen: list[tuple[int, int]] = []
    orders, parcels = run(
        ["orders", "parcels"], batch_rows=300, progress=lambda *step: seen.append(step), history_after=0
    )
    assert (orders.rows["messages"], parcels.rows["messages"]) == (800, 200)
    assert run.offsets() != all_offsets
    assert sorted(run.offsets()) == all_offsets
    assert run.offsets("parcels") == in_log("parcels")
    assert orders.batches > 2
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)
    for entry in Archive.open(place).entries("orders"):
        assert f"/date={entry.date}/" in entry.path
    dates = {entry.date for entry in Archive.open(place).entries("orders")}
    assert dates == {"2024-10-04", "2024-10-05", "2024-10-06", "2024-10-07"}


def test_a_small_batch_becomes_one_file(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.undo()
    publish_many("orders", range(10 * spark.sparkContext.defaultParallelism))
    subscribe("orders", "billing")
    run()
    assert len(Archive.open(place).entries("orders")) == 1


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_dead_letters_and_delivery_history_come_with_it(run: Runs, place: Path, spark: SparkSession) -> None:
    subscribe("orders", "idle")
    publish("orders", 1, key="ada", id="good")
    publish("orders", 2, key="bob", id="bad")
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.ack() if delivery.id == "good" else delivery.reject("no such customer")
        settle(subscription)
    first, last = in_log("orders")
    (done,) = run()
    assert done.rows == {"messages": 2, "dead_letters": 1, "deliveries": 0}
    assert (done.upto["messages"], done.position, stands_at(GROUP)) == (last, first - 1, first - 1)
    assert [row["last_error"] for row in run.held(table="dead_letters")] == ["no such customer"]
    assert Archive.open(place).upto("orders", "dead_letters") == in_log("orders_dlq")[-1]
    with Subscription("orders", "idle") as subscription:
        consume(subscription, 2)
        settle(subscription)
    (done,) = run()
    assert done.rows == {"messages": 0, "dead_letters": 0, "deliveries": 4}
    assert done.position == stands_at(GROUP) == last
    rows = run.held(table="deliveries")
    assert sorted((row["group"], row["partition"], row["done"]) for row in rows) == [
        ("billing", "ada", True), ("billing", "bob", True), ("idle", "ada", True), ("idle", "bob", True),
    ]  # fmt: skip
    assert all(row["delivered_at"] <= row["done_at"] for row in rows)
    assert Archive.open(place).frame(spark, "orders", "deliveries").count() == 4
    assert left() == []
    assert not DeliveryState.objects.exists()


def test_history_waits_for_a_group_no_longer_than_it_should(run: Runs) -> None:
    """A message that is never acknowledged delays the history and the deletion of the others for one hour."""
    subscribe("orders", "billing")
    offsets = [publish("orders", n, key=f"k{n}").offset for n in range(4)]
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 4):
            if delivery.offset != offsets[1]:
                delivery.ack()
        settle(subscription)
        run()
        assert stands_at(GROUP) == offsets[0]
        assert [row["offset"] for row in run.held(table="deliveries")] == offsets[:1]
        Message.objects.filter(offset__lte=offsets[2]).update(published_at=1_700_000_000_000)
        run()
        assert stands_at(GROUP) == offsets[3]
    rows = run.held(table="deliveries")
    assert [(row["offset"], row["done"]) for row in rows] == [(o, o != offsets[1]) for o in offsets]


class Killed(BaseException):
    """Stands for a kill: the code does not catch it."""


def kill(*_: object, **_more: object) -> None:
    raise Killed


def kill_before_any_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshot, "commit", kill)


def kill_after(table: str) -> Callable[[pytest.MonkeyPatch], None]:
    def kill_then(patch: pytest.MonkeyPatch) -> None:
        commit = Snapshot.commit

        def committing(self: Snapshot, *arguments: Any) -> Any:
            found = commit(self, *arguments)
            if self.table == table:
                raise Killed
            return found

        patch.setattr(Snapshot, "commit", committing)

    return kill_then


def kill_after_the_move(patch: pytest.MonkeyPatch) -> None:
    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.archives.topic_state import move

    def moving(*arguments: Any, **more: Any) -> None:
        move(*arguments, **more)
        raise Killed

    patch.setattr(archive_run, "move", moving)


KILLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], list[str]]] = {
    "before any commit": (kill_before_any_commit, []),
    "after dead letters": (kill_after("dead_letters"), ["dead_letters"]),
    "after deliveries": (kill_after("deliveries"), ["dead_letters", "deliveries"]),
    "after messages": (kill_after("messages"), ["dead_letters", "deliveries", "messages"]),
    "after the move": (kill_after_the_move, ["dead_letters", "deliveries", "messages"]),
}
"""The moments between two steps of a batch, each with the tables that the batch has committed before it."""


@pytest.mark.parametrize("when", KILLS)
def test_a_run_that_ended_anywhere_is_gone_on_with(
    run: Runs, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The second of three batches is killed. Each batch has rows of all three tables."""
    from django_mqueue.spark import verify

    die, committed = KILLS[when]
    subscribe("orders", "billing")
    with (
        override_settings(MQUEUE={**QUICK, "RETENTION": 3600}),
        Subscription("orders", "billing") as subscription,
    ):
        publish_many("orders", range(30))
        for delivery in poll_until(subscription, 30, max_messages=30):
            delivery.reject("no such customer")
        settle(subscription)
    wanted: dict[Table, list[int]] = {
        "messages": in_log("orders"), "deliveries": in_log("orders"), "dead_letters": in_log("orders_dlq"),
    }  # fmt: skip
    (done,) = run(batch_rows=10, stopping=_after_one())
    assert done.rows == {"messages": 10, "dead_letters": 10, "deliveries": 10}
    assert stands_at(GROUP) == wanted["messages"][9]
    with monkeypatch.context() as patch:
        die(patch)
        with pytest.raises(Killed):
            run(batch_rows=10)
    archive = Archive.open(place)
    for table, offsets_of in wanted.items():
        rows = 20 if table in committed else 10
        assert [row["offset"] for row in run.held(table=table)] == offsets_of[:rows]
        assert archive.upto("orders", table) == offsets_of[rows - 1]
        assert bool(archive.snapshots[table].unused()) == (table not in committed)
    moved = 20 if when == "after the move" else 10
    assert stands_at(GROUP) == wanted["messages"][moved - 1]
    assert left() == wanted["messages"][moved:]
    run(batch_rows=10, stopping=_at_once())
    position = 20 if "messages" in committed else 10
    assert stands_at(GROUP) == wanted["messages"][position - 1]
    assert left() == wanted["messages"][position:]
    run(batch_rows=10)
    for table, offsets_of in wanted.items():
        assert [row["offset"] for row in run.held(table=table)] == offsets_of
    assert left() == []
    (checked,) = verify(spark, str(place))
    assert (checked.problems, checked.rows) == ([], 90)


@pytest.mark.parametrize("table", ["deliveries", "messages"])
def test_a_run_that_was_killed_when_it_began_the_archive_is_gone_on_with(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    from django_mqueue.spark.archives import opening
    from django_mqueue.spark.archives.tables import create_table

    publish_many("orders", range(3))
    wanted = in_log("orders")
    with monkeypatch.context() as patch:
        patch.setattr(
            opening,
            "create_table",
            lambda storage, name, properties: (kill if name == table else create_table)(
                storage, name, properties
            ),
        )
        with pytest.raises(Killed):
            run()
    with pytest.raises(NoArchive):
        Archive.open(place)
    assert left() == wanted
    run()
    assert run.offsets() == wanted
    assert left() == []


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("table", ["dead_letters", "messages"])
def test_a_commit_without_an_answer_is_looked_up(
    run: Runs, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, table: str, is_done: bool
) -> None:
    """The connection to an object store is lost. The table shows if the commit was made."""
    from deltalake import DeltaTable

    from django_mqueue.spark import verify

    create = DeltaTable.create_write_transaction

    def unheard(self: Any, *arguments: Any, **more: Any) -> None:
        if not self.table_uri.rstrip("/").endswith(table) or is_done:
            create(self, *arguments, **more)
        if self.table_uri.rstrip("/").endswith(table):
            raise OSError("the connection was lost")

    subscribe("orders", "billing")
    with (
        override_settings(MQUEUE={**QUICK, "RETENTION": 3600}),
        Subscription("orders", "billing") as subscription,
    ):
        publish_many("orders", range(3))
        for delivery in poll_until(subscription, 3):
            delivery.reject("no such customer")
        settle(subscription)
    wanted = in_log("orders")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", unheard)
        if is_done:
            (done,) = run()
            assert done.rows == {"messages": 3, "dead_letters": 3, "deliveries": 3}
        else:
            with pytest.raises(ArchiveError, match=f"table {table} was not changed: the connection was lost"):
                run()
            assert run.offsets() == []
            assert stands_at(GROUP) == 0
            assert left() == wanted
    run()
    assert run.offsets() == wanted
    assert left() == []
    (checked,) = verify(spark, str(place))
    assert (checked.problems, checked.rows) == ([], 9)


def archive_from_a_copy(run: Runs, topic: str) -> None:
    """Archive a topic as a run on a copy of the database does that has taken the original's place."""
    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.database import following

    def join(ours: Any, topic: str) -> None:
        """Join unseen by runs on the original."""
        ours._readers[topic] = Holder(GROUP, topic, "spark-copy", "copy")

    here = installation.identify("default")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installation, "identify", lambda using: Installation(here.id, "another/server"))
        patch.setattr(archive_run.Run, "_join", join)
        patch.setattr(archive_run, "move", lambda *_, **_more: None)
        patch.setattr(following, "check_reader", lambda *_, **_more: None)
        run(topic, moved=True)


@pytest.mark.parametrize("when", ["before the snapshot", "after the snapshot"])
def test_two_runs_at_once_add_a_batch_once(
    run: Runs, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The other run works on a copy of the database, where it sees no heartbeat of this run."""
    from django_mqueue.spark import verify
    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.archives.topic_state import check_last

    for topic in ("orders", "parcels"):
        publish_many(topic, range(3))
    wanted = in_log("parcels")
    calls: list[str] = []

    def other() -> None:
        if not calls:
            calls.append("parcels")
            with monkeypatch.context() as patch:
                patch.setattr(Snapshot, "commit", commit)
                patch.setattr(archive_run, "check_last", check_last)
                archive_from_a_copy(run, "parcels")

    commit = Snapshot.commit

    def committing(self: Snapshot, *arguments: Any) -> Snapshot:
        found = commit(self, *arguments)
        if self.table != "messages":
            return found
        other()
        return found.reloaded()

    def checking(standing: TopicState, using: str) -> None:
        check_last(standing, using)
        if standing.topic == "parcels":
            other()

    with monkeypatch.context() as patch:
        if when == "before the snapshot":
            patch.setattr(Snapshot, "commit", committing)
        else:
            patch.setattr(archive_run, "check_last", checking)
        with pytest.raises(ArchiveError, match=r"another run added to it|table messages was not changed"):
            run(["orders", "parcels"])
    assert calls
    assert run.offsets("parcels") == wanted
    assert left("parcels") == wanted
    assert [found.problems for found in verify(spark, str(place))] == [[], []]


def test_a_copy_of_the_database_is_refused_until_it_has_taken_its_place(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases would write different messages at the same offsets."""
    publish("orders", 1)
    run()
    publish("orders", 2)
    here = installation.identify("default")
    monkeypatch.setattr(installation, "identify", lambda using: Installation(here.id, "another/server"))
    with pytest.raises(
        ArchiveError, match=f"database on server {here.server}, but this database is a copy .* moved=True"
    ):
        run()
    assert len(run.offsets()) == 1
    run(moved=True)
    publish("orders", 3)
    run()
    assert run.offsets() == in_log("orders")
    monkeypatch.setattr(installation, "identify", lambda using: here)
    with pytest.raises(ArchiveError, match=r"on server another/server, .* \(--moved\)"):
        run()


def test_another_database_and_another_group_are_refused(run: Runs, place: Path) -> None:
    """With ``moved`` another database is refused, too."""
    publish("orders", 1)
    run()
    version = Archive.open(place).snapshots["messages"].version
    with pytest.raises(ArchiveError, match="is written by group 'archive', not 'another'"):
        run(group="another")
    assert not reads_log("another")
    Offset.objects.filter(partition_key=installation.ROW).update(scan_offset=F("scan_offset") + 1)
    for moved in (False, True):
        with pytest.raises(
            ArchiveError, match="belongs to another database: use one folder for each database"
        ):
            run(moved=moved)
    assert Archive.open(place).snapshots["messages"].version == version


def test_a_table_of_an_earlier_version_gets_the_new_columns(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are added before the files that have them."""
    from deltalake import DeltaTable

    from django_mqueue.spark.archives import tables
    from django_mqueue.spark.archives.parquet import arrow_schema

    publish("orders", 1)
    schema = arrow_schema("messages")
    without = schema.remove(schema.get_field_index("target"))
    with monkeypatch.context() as patch:
        patch.setattr(
            tables, "arrow_schema", lambda table: without if table == "messages" else arrow_schema(table)
        )
        run()

    def columns() -> list[str]:
        return [field.name for field in DeltaTable(str(place / "messages")).schema().fields]

    assert "target" not in columns()
    publish("orders", 2)
    run()
    assert sorted(columns()) == sorted([*schema.names, "date"])
    assert run.offsets() == in_log("orders")


def _at_once() -> threading.Event:
    """Return an event that is set, so that a run ends before its first batch."""
    found = threading.Event()
    found.set()
    return found


@pytest.mark.parametrize("lost", ["the first file", "the last file"])
def test_a_batch_whose_file_is_lost_lets_nothing_be_deleted(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A file of the batch disappears when the batch is committed. Neither this run nor the next one moves the group."""
    publish_many("orders", [OutgoingMessage(n, key=f"k{n}") for n in range(40)])
    offset = in_log("orders")[0 if lost == "the first file" else -1]
    commit = Snapshot.commit

    def losing(self: Snapshot, *arguments: Any) -> Any:
        found = commit(self, *arguments)
        for entry in found.files.get("orders", ()):
            if self.table == "messages" and entry.first <= offset <= entry.last:
                (place / entry.path).unlink()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "commit", losing)
        with pytest.raises(ArchiveError, match=r"a cleanup deleted .* while this run needed it"):
            run()
    with pytest.raises(ArchiveError, match=r"a cleanup deleted|was deleted after|cannot be read"):
        run()
    assert len(left()) == 40


def _after_one() -> threading.Event:
    """Return an event that is set after its first check."""

    class Once(threading.Event):
        def is_set(self) -> bool:
            was = super().is_set()
            self.set()
            return was

    return Once()


def test_another_run_of_the_group_is_refused_while_it_lives(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_mqueue.spark.database import following, heartbeating

    monkeypatch.setattr(following, "ALIVE_MS", 600_000)
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
    publish("orders", 1)
    with streams.reading(GROUP):
        with pytest.raises(GroupTaken, match="is alive"):
            run()
        assert not place.exists() or not any(place.iterdir())
    run()
    assert len(run.offsets()) == 1


def reset_it() -> None:
    reset("orders", GROUP, "earliest")


def read_on() -> None:
    from django_mqueue.spark.database import following

    found = following.position("orders", GROUP, using="default")
    assert found is not None
    assert streams.settle("orders") == in_log("orders")[-1]
    following.move("orders", GROUP, found.generation, in_log("orders")[-1], using="default")


@pytest.mark.parametrize("change", [reset_it, subscribe_again, lambda: unsubscribe("orders", GROUP), read_on])
def test_a_gap_is_told_and_passed_only_when_that_is_asked_for(run: Runs, change: Callable[[], Any]) -> None:
    publish_many("orders", range(3))
    run()
    publish_many("orders", range(3))
    wanted = in_log("orders")
    change()
    with pytest.raises(LogGap, match="set fail_on_data_loss=False"):
        run()
    Message.objects.filter(offset=wanted[3]).delete()
    run(fail_on_data_loss=False)
    assert run.offsets() == [*wanted[:3], *wanted[4:]]
    run()
    assert left() == []


@pytest.mark.parametrize("when", ["read", "told"])
def test_a_group_that_is_changed_meanwhile_adds_nothing(
    run: Runs, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The message is deleted between planning and reading.

    Or it may be deleted, because the group was subscribed again.
    """
    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.archives.jobs import spread

    publish_many("orders", range(10))

    def late(*arguments: Any) -> Any:
        if when == "told":
            subscribe_again()
        else:
            Message.objects.filter(offset=in_log("orders")[4]).delete()
        return spread(*arguments)

    monkeypatch.setattr(archive_run, "spread", late)
    with pytest.raises(LogGap, match="1 of the 5 messages" if when == "read" else "This batch added nothing"):
        run()
    assert run.offsets() == []


def test_a_file_that_is_not_what_was_written_is_not_named(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run reads each file back before a table names it, and so before anything is deleted."""
    from django_mqueue.spark.archives import archive_run
    from django_mqueue.spark.archives.jobs import spread

    publish("orders", os.urandom(100_000))  # Most of the file is this payload.

    def spoil(spark: SparkSession, work: Any, items: Any, kind: Any) -> Any:
        def spoiled(item: Any) -> Any:
            """Run on an executor. Flip one bit of each file between its writing and its reading."""
            from django_mqueue.spark.archives import parquet

            file: Any = parquet.NewFile
            close = file.close

            def closing(self: Any) -> None:
                read = self._storage.open

                def spoiling(path: str) -> Any:
                    data = bytearray((place / path).read_bytes())
                    data[len(data) // 2] ^= 1
                    (place / path).write_bytes(data)
                    return read(path)

                self._storage.open = spoiling
                close(self)

            file.close = closing
            try:
                return work(item)
            finally:
                file.close = close

        return spread(spark, spoiled, items, kind)

    with monkeypatch.context() as patch:
        patch.setattr(archive_run, "spread", spoil)
        with pytest.raises(ArchiveError, match="differs from what was written"):
            run()
    assert run.offsets() == []
    assert stands_at(GROUP) == 0
    assert len(left()) == 1
    run()
    assert run.offsets() == in_log("orders")


def test_a_place_that_machines_do_not_share_is_found_out(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver does not see the files that executors have written."""
    import shutil

    from django_mqueue.spark.archives import opening
    from django_mqueue.spark.archives.jobs import spread

    publish("orders", 1)

    def elsewhere(*arguments: Any) -> Any:
        done = spread(*arguments)
        shutil.rmtree(place)
        return done

    monkeypatch.setattr(opening, "spread", elsewhere)
    with pytest.raises(
        ArchiveError, match=r"the driver does not see files .* give a location that all machines share"
    ):
        run()
    assert not reads_log(GROUP)


def test_what_is_wrong_is_told_before_anything_is_changed(run: Runs, place: Path, tmp_path: Path) -> None:
    publish("orders", 1)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("")
    (tmp_path / "deep" / "photos" / "2026").mkdir(parents=True)
    (tmp_path / "deep" / "photos" / "2026" / "x.jpg").write_text("")
    part = "messages/orders-0123456789ab/2026-11-21/1.parquet"
    (tmp_path / "part" / part).parent.mkdir(parents=True)
    (tmp_path / "part" / part).write_text("")
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (NoSuchTopic, "Did you mean 'orders'", {"topics": "order"}),
        (ArchiveError, "cannot be written: .*Not a directory", {"to": str(tmp_path / "file")}),
        (ArchiveError, "cannot be written: .*Not a directory", {"to": str(tmp_path / "file" / "below")}),
        (
            ArchiveError,
            "is not empty .it holds notes.txt.: give an empty folder",
            {"to": str(tmp_path / "full")},
        ),
        (ArchiveError, "is not empty .it holds photos/2026/x.jpg.: give", {"to": str(tmp_path / "deep")}),
        (ArchiveError, f"is not empty .it holds {part}.: give", {"to": str(tmp_path / "part")}),
        (OptionError, "accepts only connection options", {"options": {"startingOffsets": "latest"}}),
        (OptionError, "option 'password' is refused", {"options": {"password": "x"}}),
        (OptionError, "either topics or pattern", {"topics": None}),
        (OptionError, "batch_rows is 0", {"batch_rows": 0}),
        (OptionError, "history_after is -1", {"history_after": -1}),
        (OptionError, "group must not be empty", {"group": ""}),
        (OptionError, "'' cannot be a topic", {"topics": ["orders", ""]}),
    ]
    for kind, message, arguments in cases:
        with pytest.raises(kind, match=message):
            run(**arguments)
    assert not reads_log(GROUP)
    assert not place.exists()
    assert not list(tmp_path.rglob("_delta_log"))
    (place / "empty" / "folders").mkdir(parents=True)
    (place / "lost+found").mkdir()
    run()
    Archive.open(place).snapshots["messages"].set_properties({"mqueue.format": "2"})
    with pytest.raises(ArchiveError, match="upgrade django_mqueue"):
        run()
    with pytest.raises(LogGap, match="the group wrote another archive"):
        run(to=str(tmp_path / "second"))


def test_the_command_archives_and_tells(
    options: dict[str, str], spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_many("orders", range(5))
    last = in_log("orders")[-1]
    command = ["mqueue_spark", "archive", "--to", str(place)]
    call_command(*command, "--topic", "orders")
    said = capsys.readouterr().out
    assert said.startswith("orders: 5 messages, 0 dead letters, 0 deliveries in ")
    assert said.endswith(f"up to offset {last:,}\n")
    call_command(*command, "--pattern", "ord.*")
    assert capsys.readouterr().out == f"orders: nothing new, up to offset {last:,}\n"
    call_command(*command, "--topic", "orders", "--json")
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["topic"], done["upto"]["messages"], done["batches"]) == ("orders", last, 0)
    with pytest.raises(CommandError, match="there is no topic 'order'"):
        call_command(*command, "--topic", "order")
