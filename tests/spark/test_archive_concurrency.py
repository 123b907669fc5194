"""Compactions, erasures, cleanings and archive runs at the same time: the archive stays whole.

=====================================================  ================================================================
The first process                                      and the second process meanwhile
=====================================================  ================================================================
two compactions start from the same state              each has written its files: one commits, one is refused
a compaction has written its files, and pauses         another compaction finishes, and cleaning deletes what is unused
a compaction has committed the first of two topics     another compaction finishes the second topic
a compaction and an erasure start from the same state  each has written its files: one commits, one is refused
two erasures start from the same state                 each has written its files: one commits, one is refused
a compaction or erasure has written its files          an archive run adds files: both count
an archive run has written its files                   a compaction or erasure finishes: both count
verification has read everything                       an archive run and a compaction finish, and their files are old
a compaction is killed                                 anything (in ``test_archive_kills_at_length``)
=====================================================  ================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue.spark import Archive, compact, erase, verify
from django_mqueue.spark.archives import catalog, verifying
from django_mqueue.spark.archives.requests import TABLES
from django_mqueue.spark.archives.storage import LocalStorage
from django_mqueue.spark.archives.tables import Snapshot
from django_mqueue.spark.errors import ArchiveError
from tests.support.waiting import SPARK_PATIENCE

from .archives import add, age, batch, begin, data, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.once]

ALL = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an archive of seven messages in three files. Each file has messages of another key."""
    folder = begin(tmp_path / "archive")
    for key, offsets in (("ada", [1, 2]), ("bob", [4, 5]), ("eve", [6, 8, 9])):
        batch(folder, "orders", offsets, key=key)
    return folder


@pytest.fixture
def first_two(folder: Path) -> int:
    """Return the total bytes of the first two files."""
    return sum(entry.bytes for entry in Archive.open(folder).entries("orders")[:2])


def offsets(folder: Path, topic: str = "orders") -> list[int]:
    return sorted(offset for offset, _ in rows(folder, topic))


def check(spark: SparkSession, folder: Path) -> None:
    """Clean the archive when all files are old. Check that it has no problem, and only files that it names."""
    age(folder)
    for found in verify(spark, str(folder), clean=True, keep_hours=0):
        assert found.problems == []
    archive = Archive.open(folder)
    named = {folder / entry.path for topic in archive.topics() for entry in archive.entries(topic)}
    assert set(folder.rglob("*.parquet")) == named


def before_its_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Call ``do`` when the next process has written its files and is about to commit them."""
    real, once = Snapshot.commit, [do]

    def meanwhile(snapshot: Snapshot, *given: Any) -> Snapshot:
        if once:
            once.pop()()
        return real(snapshot, *given)

    monkeypatch.setattr(Snapshot, "commit", meanwhile)


def at_once(monkeypatch: pytest.MonkeyPatch, *works: Callable[[], object]) -> list[bool]:
    """Let all commit at the same time. Return which of them were done; the others were refused."""
    both, real = threading.Barrier(len(works), timeout=SPARK_PATIENCE), Snapshot.commit

    def together(snapshot: Snapshot, *given: Any) -> Snapshot:
        both.wait()
        return real(snapshot, *given)

    def attempt(work: Callable[[], object]) -> str:
        try:
            work()
        except ArchiveError as error:
            return str(error)
        return "done"

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "commit", together)
        with ThreadPoolExecutor(len(works)) as pool:
            ends = list(pool.map(attempt, works))
    assert all(end == "done" or "table messages was not changed: " in end for end in ends), ends
    return [end == "done" for end in ends]


def test_files_that_were_cleaned_away_before_they_are_named_are_not_named(
    folder: Path, spark: SparkSession
) -> None:
    """A run has written a file and stops for hours. A cleaning deletes it. The run goes on."""
    late = data(folder, "orders", [20])
    age(folder)
    verify(spark, str(folder), clean=True, keep_hours=1)
    with pytest.raises(ArchiveError, match=r"a cleanup deleted .* while this run needed it"):
        add(folder, "orders", [late])
    check(spark, folder)
    assert offsets(folder) == [1, 2, 4, 5, 6, 8, 9]


def test_files_that_a_run_has_just_written_are_not_cleaned_away(folder: Path, spark: SparkSession) -> None:
    """A run has written a file and not named it yet. Neither a cleaning nor an erasure deletes it."""
    late = data(folder, "orders", [20])
    verify(spark, str(folder), clean=True, keep_hours=0)
    erase(spark, str(folder), "orders", where="offset = 1", keep_hours=0)
    add(folder, "orders", [late])
    assert offsets(folder) == [2, 4, 5, 6, 8, 9, 20]


@pytest.mark.parametrize("alike", [True, False])
def test_of_two_compactions_one_changes_something(
    folder: Path, first_two: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    """Run two compactions of the same files, or of sets of files that overlap."""
    before = rows(folder)
    sizes = [first_two, first_two if alike else ALL]
    done = at_once(
        monkeypatch, *(lambda size=size: compact(spark, str(folder), bytes=size) for size in sizes)
    )
    assert sorted(done) == [False, True]
    assert rows(folder) == before
    assert len(Archive.open(folder).entries("orders")) == (1 if sizes[done.index(True)] == ALL else 2)
    check(spark, folder)
    assert rows(folder) == before


@pytest.mark.parametrize("cleans", [False, True])
def test_a_compaction_that_comes_later_than_another_one_changes_nothing(
    folder: Path, first_two: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, cleans: bool
) -> None:
    """Cleaning may have deleted its input files and its new files."""
    before = rows(folder)

    def other() -> None:
        compact(spark, str(folder), bytes=first_two)
        if cleans:
            check(spark, folder)

    before_its_commit(monkeypatch, other)
    with pytest.raises(ArchiveError, match=r"was not changed: |a cleanup deleted|was deleted after"):
        compact(spark, str(folder))
    assert rows(folder) == before
    assert len(Archive.open(folder).entries("orders")) == 2
    assert compact(spark, str(folder))[0].files_now == 1, "it can be done again"
    check(spark, folder)


def test_a_topic_that_another_compaction_has_finished_is_not_compacted_from_an_older_plan(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finishes before the first one reads the table again, which it has just changed."""
    for offset in (1, 2):
        batch(folder, "parcels", [offset])
    real, once = Snapshot.reloaded, [True]

    def meanwhile(snapshot: Snapshot) -> Snapshot:
        if once:
            once.pop()
            compact(spark, str(folder), topics="parcels")
        return real(snapshot)

    monkeypatch.setattr(Snapshot, "reloaded", meanwhile)
    with pytest.raises(ArchiveError, match="another compaction or erasure replaced the same files"):
        compact(spark, str(folder))
    assert offsets(folder, "parcels") == [1, 2]
    assert [len(Archive.open(folder).entries(topic)) for topic in ("orders", "parcels")] == [1, 1]
    check(spark, folder)


def test_of_a_compaction_and_an_erasure_one_is_refused(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted, erased = at_once(
        monkeypatch,
        lambda: compact(spark, str(folder)),
        lambda: erase(spark, str(folder), "orders", where="`offset` IN (2, 8)"),
    )
    assert compacted is not erased
    assert offsets(folder) == ([1, 4, 5, 6, 9] if erased else [1, 2, 4, 5, 6, 8, 9])
    erase(spark, str(folder), "orders", where="`offset` IN (2, 8)")
    compact(spark, str(folder))
    assert offsets(folder) == [1, 4, 5, 6, 9]
    check(spark, folder)


def test_of_two_erasures_one_is_refused(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one removes one file of two rows and adds none, so both set the same numbers."""
    keys = {"ada": [1, 2], "bob": [4, 5]}
    done = at_once(
        monkeypatch, *(lambda key=key: erase(spark, str(folder), "orders", key=key) for key in keys)
    )
    assert sorted(done) == [False, True]
    gone = list(keys.values())[done.index(True)]
    assert offsets(folder) == [offset for offset in [1, 2, 4, 5, 6, 8, 9] if offset not in gone]
    for key in keys:
        erase(spark, str(folder), "orders", key=key)
    assert offsets(folder) == [6, 8, 9]
    check(spark, folder)


@pytest.mark.parametrize("erases", [False, True], ids=["compaction", "erasure"])
@pytest.mark.parametrize("adds_last", [False, True])
def test_what_an_archive_run_adds_meanwhile_counts(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, erases: bool, adds_last: bool
) -> None:
    def change() -> None:
        if erases:
            erase(spark, str(folder), "orders", key="bob")
        else:
            compact(spark, str(folder))

    def append() -> None:
        add(folder, "orders", [entry])

    entry = data(folder, "orders", [10, 11])
    first, last = (change, append) if adds_last else (append, change)
    before_its_commit(monkeypatch, first)
    last()
    assert offsets(folder) == [1, 2, *(() if erases else (4, 5)), 6, 8, 9, 10, 11]
    assert Archive.open(folder).upto("orders") == 11
    assert len(Archive.open(folder).entries("orders")) == (3 if erases else 2)
    check(spark, folder)


def test_a_commit_is_synced_though_another_one_follows_before_it_is_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sync, once = Snapshot.reloaded, LocalStorage.sync, [True]
    synced: list[str] = []

    def meanwhile(snapshot: Snapshot) -> Snapshot:
        if once:
            once.pop()
            batch(folder, "parcels", [1])
            synced.clear()
        return real(snapshot)

    def syncing(storage: LocalStorage, path: str) -> None:
        synced.append(path)
        sync(storage, path)

    monkeypatch.setattr(Snapshot, "reloaded", meanwhile)
    monkeypatch.setattr(LocalStorage, "sync", syncing)
    before = Archive.open(folder).snapshots["messages"].version
    batch(folder, "orders", [10])
    assert f"messages/_delta_log/{before + 1:020d}.json" in synced
    assert Archive.open(folder).snapshots["messages"].version == before + 2


def test_an_archive_that_is_opened_between_commits_has_what_belongs_to_its_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each table that a reader opens, another batch is committed, in the order of an archive run."""
    real, number = vars(catalog)["open_table"], 9

    def opened(*arguments: Any) -> Any:
        nonlocal number
        found = real(*arguments)
        number += 1
        with monkeypatch.context() as patch:
            patch.setattr(catalog, "open_table", real)
            for table in TABLES:
                batch(folder, "orders", [number], table=table)
        return found

    for table in TABLES[:-1]:
        batch(folder, "orders", [number], table=table)
    monkeypatch.setattr(catalog, "open_table", opened)
    archive = Archive.open(folder)
    assert archive.upto("orders") == 9
    assert (archive.upto("orders", "dead_letters"), archive.upto("orders", "deliveries")) == (10, 11)


def test_cleaning_leaves_what_was_committed_while_verification_was_reading(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading takes long. When cleaning begins, the new files are old enough to be deleted."""
    killed = data(folder, "orders", [10])
    real, once = verifying._duplicate_rows, [True]

    def meanwhile(*given: Any) -> Any:
        if once:
            once.pop()
            batch(folder, "orders", [10])
            compact(spark, str(folder))
            age(folder)
        return real(*given)

    monkeypatch.setattr(verifying, "_duplicate_rows", meanwhile)
    (found,) = verify(spark, str(folder), clean=True)
    assert found.problems == []
    assert not (folder / killed.path).exists()
    assert offsets(folder) == [1, 2, 4, 5, 6, 8, 9, 10]
    check(spark, folder)


def test_a_damaged_topic_does_not_hold_up_those_before_it(folder: Path, spark: SparkSession) -> None:
    for offset in (1, 2):
        entry = batch(folder, "parcels", [offset])
    (folder / entry.path).unlink()
    with pytest.raises(ArchiveError, match="is missing"):
        compact(spark, str(folder))
    assert [len(Archive.open(folder).entries(topic)) for topic in ("orders", "parcels")] == [1, 2]
