"""A lost manifest is detected, whatever it named, and nothing is cleaned.

A disk, a person or a partial copy loses it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Message
from django_mqueue.spark.archiving.layout import TABLES, data_path, manifest_path, manifests_of
from django_mqueue.spark.errors import ArchiveError
from tests.support.subscribers import QUICK, consume, poll_until, settle

from .archive_runs import Runs, left
from .archives import DAY, age, batch, begin, copy_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.options import Table

pytestmark = pytest.mark.spark


def verify(spark: SparkSession, folder: Path, **more: Any) -> Any:
    from django_mqueue.spark import verify

    return verify(spark, str(folder), **more)


def data_files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.parquet"))


@override_settings(MQUEUE=QUICK)
def test_a_batch_that_leaves_no_gap_in_offsets_is_missed(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """The first batch has the messages, the second only their history. The log has deleted both."""
    run = Runs(spark, options, tmp_path / "archive")
    subscribe("orders", "billing")
    publish_many("orders", range(3))
    assert run()[0].rows == {"messages": 3, "dead_letters": 0, "deliveries": 0}
    with Subscription("orders", "billing") as subscription:
        consume(subscription, 3)
        settle(subscription)
    assert run()[0].rows == {"messages": 0, "dead_letters": 0, "deliveries": 3}
    assert left() == []
    lost = run.place / manifest_path("orders", "0000000001")
    kept, there = lost.read_bytes(), data_files(run.place)
    lost.unlink()
    publish_many("orders", range(3))
    age(run.place)
    (found,) = verify(spark, run.place, clean=True)
    missing = "manifest 0000000002 begins with batch 2: one before it is missing|those before it are missing"
    assert re.search(missing, found.problems[0])  # The first offset on this server may be 1 or higher.
    with pytest.raises(ArchiveError, match=missing):
        run()
    assert data_files(run.place) == there
    lost.write_bytes(kept)
    run()
    assert len(run.offsets()) == 6
    assert verify(spark, run.place)[0].problems == []


@pytest.fixture
def three(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Runs:
    """Return an archive of three batches with one message each."""
    run = Runs(spark, options, tmp_path / "archive")
    for number in range(3):
        publish_many("orders", [number])
        assert run(history_after=0)[0].batches == 1
    return run


@pytest.mark.parametrize("strict", [True, False])
@override_settings(MQUEUE=QUICK)
def test_a_run_does_not_write_anew_what_a_lost_manifest_named(three: Runs, strict: bool) -> None:
    """This holds even if gaps are allowed. When the manifests are restored, runs work again."""
    assert left() == []
    kept = {}
    there = data_files(three.place)
    for number, told in ((3, "that of batch 3 is missing"), (2, "there are files of batch 3")):
        lost = three.place / manifest_path("orders", f"{number:010d}")
        kept[lost] = lost.read_bytes()
        lost.unlink()
        publish_many("orders", [number])
        with pytest.raises(ArchiveError, match=f"{told}.*Put it back"):
            three(fail_on_data_loss=strict)
        assert data_files(three.place) == there
    for path, data in kept.items():
        path.write_bytes(data)
    three()
    assert len(three.offsets()) == 5


@override_settings(MQUEUE=QUICK)
def test_a_run_does_not_write_others_at_the_offsets_that_a_lost_manifest_named(three: Runs) -> None:
    """The restored database has given the same offsets to new messages.

    The log has as many messages there as the lost batch.
    """
    offset = three.offsets()[-1]
    (three.place / manifest_path("orders", "0000000003")).unlink()
    assert left() == []
    new = publish("orders", "new").offset
    Message.objects.filter(offset=new).update(offset=offset)
    there = data_files(three.place)
    with pytest.raises(ArchiveError, match=r"does not have any more.* that of batch 3 is missing"):
        three(fail_on_data_loss=False)
    assert data_files(three.place) == there


@override_settings(MQUEUE=QUICK)
def test_cleaning_leaves_what_the_archive_has_nowhere_else(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """The lost batch holds dead letters only, so the group's offset does not show it.

    The log's dead letters were purged.
    """
    run = Runs(spark, options, tmp_path / "archive")
    subscribe("orders", "billing")

    def reject() -> None:
        with Subscription("orders", "billing") as subscription:
            for delivery in poll_until(subscription, 1):
                delivery.reject("no such customer")
            settle(subscription)

    publish_many("orders", [1])
    run(history_after=0)
    reject()
    assert run()[0].rows == {"messages": 0, "dead_letters": 1, "deliveries": 0}
    (only,) = data_files(run.place / "dead_letters")
    (run.place / manifest_path("orders", "0000000002")).unlink()
    Message.objects.filter(topic="orders_dlq").delete()
    publish_many("orders", [2])
    reject()
    assert run()[0].rows["dead_letters"] == 1
    (named,) = data_files(run.place / "dead_letters") - {only}
    killed, half = (only.with_name(f"0000000002-{name}-0.parquet") for name in ("killed", "half"))
    killed.write_bytes(named.read_bytes())
    half.write_bytes(named.read_bytes()[:100])
    age(run.place)
    for deleted in (2, 0):
        (found,) = verify(spark, run.place, clean=True)
        assert (found.problems, found.deleted) == ([], deleted)
        assert data_files(run.place / "dead_letters") == {only, named}


@pytest.mark.once
@pytest.mark.parametrize("table", TABLES)
def test_cleaning_leaves_what_had_the_archive_s_offsets_before_a_set_back(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    """A killed batch was written but never named.

    After a restore, the database gave its offsets to other rows, and these were archived.
    """
    folder = begin(tmp_path / "archive")
    now, before = (
        pa.table(
            {
                "offset": pa.array([4, 5], pa.int64()),
                "id": [f"{time}-4", f"{time}-5"],
                "group": ["billing"] * 2,
                "delivered_at": pa.array([None, DAY], pa.timestamp("us", "UTC")),
                "done_at": pa.array([None, DAY + timedelta(seconds=seconds)], pa.timestamp("us", "UTC")),
            }
        )
        for seconds, time in enumerate(("now", "before"))
    )
    copy_of(folder, "orders", {"messages": (now, 5), table: (now, 5)})
    for name, each in (("same", now), ("before", before)):
        pq.write_table(each, folder / data_path(table, "orders", "2026-11-21", 1, name, 0))
    age(folder)
    (found,) = verify(spark, folder, clean=True)
    assert (found.problems, len(found.orphans), found.deleted) == ([], 2, 1)
    left = {path.name.split("-")[1] for path in data_files(folder / table)}
    assert left == {"hand", "before"}


@override_settings(MQUEUE=QUICK)
def test_files_of_what_the_log_has_still_hold_up_no_run(three: Runs) -> None:
    """The files come from a killed run that was allowed to pass a gap. One file is incomplete."""
    subscribe("orders", "billing")
    publish_many("orders", [3])
    three(history_after=0)
    offsets = three.offsets()
    (three.place / manifest_path("orders", "0000000004")).unlink()
    half = three.place / data_path("messages", "orders", "2026-11-21", 4, "killed", 0)
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"PAR1")
    assert left()
    with pytest.raises(LogGap, match="manifests are missing"):
        three(history_after=0)
    three(history_after=0, fail_on_data_loss=False)
    assert three.offsets() == offsets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an archive of two topics with three batches each."""
    begin(tmp_path / "archive")
    for topic in ("orders", "parcels"):
        for number in (1, 2, 3):
            batch(tmp_path / "archive", topic, number, number - 1, [number])
    return tmp_path / "archive"


@pytest.mark.once
def test_a_topic_without_any_manifest_is_missed(
    folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / manifests_of("orders")).iterdir():
        path.unlink()
    (folder / "messages/notes").mkdir()
    (folder / "messages/notes/readme.txt").write_text("")
    age(folder)
    there = data_files(folder)
    with pytest.raises(SystemExit) as ended:
        call_command("mqueue_spark", "verify", "--to", str(folder), "--clean")
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "parcels: whole, 3 rows" in said
    assert "orders: NOT whole, 0 rows in 0 files of 0.0 MiB; 3 files belong to nothing\n" in said
    assert "there are files of batch 3, but no manifest: all are missing" in said
    assert data_files(folder) == there
    assert [found.topic for found in verify(spark, folder, topics="parcels")] == ["parcels"]


@pytest.mark.once
def test_a_first_batch_that_may_be_under_way_is_no_problem(folder: Path, spark: SparkSession) -> None:
    """Some files of the first batch may be old.

    If all are old, the run is no longer active, and verification reports a problem.
    """
    for number in (1, 2, 3):
        (folder / manifest_path("orders", f"{number:010d}")).unlink()
    first, second, third = sorted(data_files(folder / "messages/orders"))
    third.unlink()
    second.rename(first.with_name("0000000001-running-0.parquet"))
    for hours in (0, 1):
        if hours:
            age(folder)
            (folder / data_path("messages", "orders", "2026-11-21", 1, "running", 1)).write_bytes(b"")
        parcels, orders = verify(spark, folder, clean=True)
        assert (orders.topic, orders.problems, len(orders.orphans)) == ("orders", [], 2 + hours)
        assert parcels.problems == []
    age(folder)
    there = data_files(folder)
    (told,) = verify(spark, folder, clean=True)[1].problems
    assert "no manifest names any: it is missing, or a run was killed in the topic's first batch" in told
    assert "if there is to be none, delete these files" in told
    assert data_files(folder) == there


@pytest.mark.once
def test_manifests_behind_the_last_one_are_missed(folder: Path, spark: SparkSession) -> None:
    """Files of the next batch may belong to an active or killed run. Files of the batch after that cannot."""
    (folder / manifest_path("orders", "0000000003")).unlink()
    age(folder)
    orders, parcels = verify(spark, folder)
    assert (orders.problems, parcels.problems) == ([], [])
    (folder / manifest_path("orders", "0000000002")).unlink()
    (folder / data_path("messages", "orders", "2026-11-21", 1, "killed", 0)).write_bytes(b"")
    age(folder)
    there = data_files(folder)
    orders, parcels = verify(spark, folder, clean=True)
    assert orders.problems == [
        "topic 'orders': there are files of batch 3, but the last manifest is of batch 1: those behind it are missing"
    ]
    assert (parcels.problems, data_files(folder)) == ([], there)
