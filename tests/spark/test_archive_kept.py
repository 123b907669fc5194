"""Unnamed files that cleaning keeps and reports.

The archive may be in a store that Arrow reaches and Spark does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from pyarrow import fs

from django_mqueue.spark import verify
from django_mqueue.spark.archiving import catalog, checking, copies
from django_mqueue.spark.archiving.files import Files, StoreFiles
from django_mqueue.spark.archiving.layout import data_path

from .archives import age, batch, begin, data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.once]

STORE = "s3://bucket/archive?endpoint_override=localhost:9000"


@pytest.fixture(params=["disk", STORE], ids=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an archive of twenty messages in two batches."""
    found = begin(tmp_path / "archive")
    for number in (1, 2):
        batch(found, "orders", number, (number - 1) * 10, range((number - 1) * 10 + 1, number * 10 + 1))
    if request.param == STORE:
        # Only Arrow reaches this store: its file system leads to the folder.
        def at(to: str, spark: object = None) -> Files:
            assert to == STORE
            return StoreFiles(to, fs.LocalFileSystem(), str(found))

        for module in (catalog, checking):
            monkeypatch.setattr(module, "files_at", at)
    return found


@pytest.fixture
def to(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the archive's name for this case."""
    return STORE if request.node.callspec.params["folder"] == STORE else str(folder)


def leave(folder: Path, name: str, offsets: range, rows_per_group: int = 4, **other: str) -> Path:
    """Write a file of a killed run. Rows at the offsets in ``other`` get other ids."""
    written = folder / data(folder, "scratch", 1, offsets).path
    rows = pq.read_table(written)
    ids = [other.get(f"at{offset}", f"id-{offset}") for offset in offsets]
    place = folder / data_path("messages", "orders", "2026-11-21", 1, name, 0)
    pq.write_table(rows.set_column(4, "id", [ids]), place, row_group_size=rows_per_group)
    written.unlink()
    return place


def test_what_the_archive_has_is_deleted_and_what_it_has_not_is_told(
    folder: Path, to: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaning compares in pieces, because a file's rows lie in several archive files, which also hold other rows."""
    monkeypatch.setattr(copies, "PIECE", 3)
    same = leave(folder, "same", range(3, 18))
    other = leave(folder, "other", range(3, 18), at17="before")
    more = leave(folder, "more", range(15, 23))
    damaged = leave(folder, "damaged", range(3, 18))
    raw = bytearray(damaged.read_bytes())
    raw[4:600] = bytes(596)
    damaged.write_bytes(raw)
    age(folder)
    for deleted in (1, 0):
        (found,) = verify(spark, to, clean=True)
        assert (found.problems, found.deleted) == ([], deleted)
        told = sorted(found.kept)
        assert [line.split("-")[3] for line in told] == ["damaged", "more", "other"]
        assert "is kept: what it holds cannot be compared with the archive: " in told[0]
        assert told[1].endswith("is kept: the archive has offset 21, id 'id-21' nowhere else")
        assert told[2].endswith("is kept: the archive has offset 17, id 'before' nowhere else")
    assert [path.exists() for path in (same, other, more, damaged)] == [False, True, True, True]


def test_what_the_archive_s_own_files_do_not_tell_is_kept(
    folder: Path, to: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the archive's files disappears before the comparison."""
    same = leave(folder, "same", range(3, 18))
    age(folder)
    only = copies.only_copies

    def late(*given: Any) -> Any:
        (gone,) = folder.glob("messages/orders/*/0000000002-*")
        gone.unlink()
        return only(*given)

    monkeypatch.setattr(checking, "only_copies", late)
    (found,) = verify(spark, to, clean=True)
    assert (found.deleted, len(found.kept)) == (0, 1)
    assert (
        "cannot be compared with the archive: messages/orders/2026-11-21/0000000002-hand-0" in found.kept[0]
    )
    assert same.exists()


def test_the_command_tells_what_is_kept(
    folder: Path, to: str, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    for number in range(12):
        leave(folder, f"killed{number}", range(3, 5), at4="before")
    age(folder)
    call_command("mqueue_spark", "verify", "--to", to, "--clean")
    said = capsys.readouterr().out
    assert "; 12 files belong to nothing, 12 kept for what is in them\n" in said
    assert said.count("is kept: the archive has offset 4, id 'before' nowhere else\n") == 10
    assert said.endswith("  and 2 more, which --json tells\n")
