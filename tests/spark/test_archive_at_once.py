"""Compactions and cleanings of one topic at the same time: the archive stays whole if one is slow, paused or killed.

=====================================================  ================================================================
The first process                                      and the second process meanwhile
=====================================================  ================================================================
two compactions start from the same state              each has written its files: one takes the number, one is too late
a compaction has written its files, and pauses         another compaction finishes, and cleaning deletes these files
the same                                               others finish, are replaced and cleaned: the number is free again
the same                                               cleaning deletes its files, because no manifest names them
a compaction is killed without a manifest, or with it  anything (in ``test_archive_kills_at_length``)
verification has read everything                       a paused compaction finishes
cleaning has found the unused files, and pauses        the same
two cleanings start from the same state                one of them takes the number
a run compacts or verifies several topics              another run has compacted and cleaned the second topic meanwhile
=====================================================  ================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue.spark import Archive, compact, verify
from django_mqueue.spark.archiving import checking, compacting
from django_mqueue.spark.errors import ArchiveError

from .archives import age, batch, begin, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.once]

LATE = "another compaction or cleaning of topic 'orders' was done meanwhile: this one has changed nothing"
ALL = 1 << 30

Seen = list[tuple[int, int]]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield an archive of three batches. Its rows must be the same at the end of the test."""
    folder = begin(tmp_path / "archive")
    for number, offsets in enumerate([[1, 2, 4], [5, 6], [8, 9]], 1):
        batch(folder, "orders", number, [0, 4, 6][number - 1], offsets)
    before = rows(folder)
    yield folder
    assert rows(folder) == before


@pytest.fixture
def first_two(folder: Path) -> int:
    """Return the total bytes of the first two batches."""
    return sum(entry.bytes for entry in Archive.open(folder).entries("orders")[:2])


def names(folder: Path) -> list[str]:
    return [manifest.name for manifest in Archive.open(folder).manifests("orders")]


def cleaned(spark: SparkSession, folder: Path) -> int:
    """Clean the archive, check that it has no problems, and return the number of deleted files."""
    (found,) = verify(spark, str(folder), clean=True)
    assert found.problems == []
    return int(found.deleted)


def before_its_manifest(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Call ``do`` after the next compaction has written its files and before it writes its manifest."""
    real, once = compacting._part, [do]

    def meanwhile(*arguments: Any) -> Any:
        if once:
            once.pop()()
        return real(*arguments)

    monkeypatch.setattr(compacting, "_part", meanwhile)


@pytest.mark.parametrize("alike", [True, False])
def test_of_two_compactions_one_changes_something(
    folder: Path, first_two: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    """Run two compactions of the same batches, or of sets of batches that overlap."""
    both, real = threading.Barrier(2, timeout=60), compacting._part

    def together(*arguments: Any) -> Any:
        both.wait()
        return real(*arguments)

    monkeypatch.setattr(compacting, "_part", together)

    def try_it(bytes: int) -> str:
        try:
            compact(spark, str(folder), bytes=bytes)
        except ArchiveError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(try_it, [first_two, first_two if alike else ALL]))
    assert ends[0].startswith(LATE)
    assert ends[1] == "done"
    assert names(folder)[0] == "compaction-0000000001"
    age(folder)
    assert cleaned(spark, folder) > 0
    assert len(list(folder.glob("messages/**/*.parquet"))) == len(names(folder))


def test_a_compaction_that_comes_later_than_another_one_changes_nothing(
    folder: Path, first_two: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_its_manifest(monkeypatch, lambda: compact(spark, str(folder), bytes=first_two))
    with pytest.raises(ArchiveError, match=LATE):
        compact(spark, str(folder))
    assert names(folder) == ["compaction-0000000001", "0000000003"]


def test_a_compaction_whose_number_is_free_again_changes_nothing(
    folder: Path, first_two: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        compact(spark, str(folder), bytes=first_two)
        compact(spark, str(folder))
        age(folder)
        cleaned(spark, folder)
        assert not (folder / "manifests/orders/compaction-0000000001.json").exists()

    before_its_manifest(monkeypatch, others)
    with pytest.raises(ArchiveError, match=LATE):
        compact(spark, str(folder), bytes=first_two)
    assert (folder / "manifests/orders/compaction-0000000001.json").exists()
    assert names(folder) == ["compaction-0000000002"]
    age(folder)
    assert cleaned(spark, folder) == 1
    assert not (folder / "manifests/orders/compaction-0000000001.json").exists()


def test_a_compaction_whose_files_were_cleaned_away_changes_nothing(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean() -> None:
        age(folder)
        assert cleaned(spark, folder) == 1

    before_its_manifest(monkeypatch, clean)
    with pytest.raises(ArchiveError, match=LATE):
        compact(spark, str(folder))
    assert names(folder) == ["0000000001", "0000000002", "0000000003"]
    assert compact(spark, str(folder))[0].manifests_now == 1, "it can be done again"
    age(folder)
    assert cleaned(spark, folder) > 0
    assert len(list(folder.glob("manifests/orders/*"))) == 1


def test_a_compaction_that_took_its_time_is_done(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are old, but no cleaning has run, so they still exist."""
    before_its_manifest(monkeypatch, lambda: age(folder))
    compact(spark, str(folder))
    assert names(folder) == ["compaction-0000000001"]


@pytest.mark.parametrize("place", ["_read", "_clean"])
def test_cleaning_leaves_the_files_of_a_compaction_that_is_done_while_it_looks(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The compaction finishes while cleaning reads the folder, or just before cleaning deletes unused files."""
    may_go_on, cleaning = threading.Event(), threading.Event()
    real = getattr(checking._Check, place)

    def wait() -> None:
        age(folder)
        cleaning.set()
        assert may_go_on.wait(60)

    def meanwhile(*arguments: Any) -> Any:
        if not may_go_on.is_set():
            may_go_on.set()
            slow.result(60)
        return real(*arguments)

    before_its_manifest(monkeypatch, wait)
    monkeypatch.setattr(checking._Check, place, meanwhile)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(compact, spark, str(folder))
        assert cleaning.wait(60)
        assert cleaned(spark, folder) == 0
    assert names(folder) == ["compaction-0000000001"]


def test_of_two_cleanings_one_deletes(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number that a cleaning has taken does not harm the next compaction."""
    for number in (1, 2):
        (folder / f"messages/orders/2026-11-21/{number:010d}-killed-0.parquet").write_bytes(b"")
    age(folder)
    real, others = checking._Check._take_number, [True]

    def meanwhile(check: Any, archive: Archive) -> bool:
        if others:
            others.pop()
            assert cleaned(spark, folder) == 2
        return bool(real(check, archive))

    monkeypatch.setattr(checking._Check, "_take_number", meanwhile)
    assert cleaned(spark, folder) == 0
    assert compact(spark, str(folder))[0].manifests == 3
    assert names(folder) == ["compaction-0000000002"]


def compact_and_clean(spark: SparkSession, folder: Path) -> Callable[[int, int], None]:
    """Return a progress function. At its first call it compacts and cleans ``parcels``."""
    todo = [True]

    def progress(done: int, total: int) -> None:
        if todo:
            todo.pop()
            assert compact(spark, str(folder), topics="parcels")[0].manifests == 2
            age(folder)
            (found,) = verify(spark, str(folder), topics="parcels", clean=True)
            assert (found.problems, found.deleted) == ([], 4)

    return progress


@pytest.fixture
def parcels(folder: Path) -> Path:
    """Add a second topic, ``parcels``, which is processed last."""
    for number in (1, 2):
        batch(folder, "parcels", number, number - 1, [number])
    return folder


def test_a_topic_that_was_compacted_and_cleaned_before_its_turn_is_verified_as_it_is_then(
    parcels: Path, spark: SparkSession
) -> None:
    seen: Seen = []
    first = compact_and_clean(spark, parcels)

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        first(done, total)

    found = verify(spark, str(parcels), progress=progress)
    assert [(each.topic, each.problems, each.files) for each in found] == [
        ("orders", [], 3),
        ("parcels", [], 1),
    ]
    assert seen == [(0, 5), (3, 5), (4, 4)]


def test_a_topic_that_was_compacted_and_cleaned_before_its_turn_holds_up_no_other(
    parcels: Path, spark: SparkSession
) -> None:
    orders, parcel = compact(spark, str(parcels), progress=compact_and_clean(spark, parcels))
    assert (orders.manifests, parcel.manifests) == (3, 0)
    assert verify(spark, str(parcels))[1].problems == []


def test_a_damaged_topic_does_not_hold_up_those_before_it(parcels: Path, spark: SparkSession) -> None:
    (parcels / "manifests/parcels/0000000001.json").unlink()
    with pytest.raises(ArchiveError, match=r"topic 'parcels'.* missing"):
        compact(spark, str(parcels))
    assert names(parcels) == ["compaction-0000000001"]
