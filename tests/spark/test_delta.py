"""The behaviour of ``deltalake`` on which archives rely. If a new release fails here, do not allow it.

These tests need no Spark session and no database, but they need the packages of the extra ``spark``.

=================================================  ====================================================================
Two commits that begin with one snapshot           and the second one
=================================================  ====================================================================
set the same number (an "application id")          is refused, whatever else it does
set different numbers, and add files               is accepted
add files beside a commit that removes files       is accepted: both count
remove the same file                               is accepted, which loses nothing and duplicates rows
remove the same file, and set the same number      is refused: this is the purpose of the number ``maintenance``
the first one removes a file as a change of data   is refused, even if it only adds: the archive never does that
=================================================  ====================================================================
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.waiting import SPARK_PATIENCE

if TYPE_CHECKING:
    from deltalake import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.once]

NOW = 1_795_000_000_000


class Table:
    """A Delta table of numbers, with one file per commit."""

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable

        self.folder = folder
        self.columns = pa.schema([("topic", pa.string()), ("number", pa.int64())])
        DeltaTable.create(str(folder), self.columns, mode="error", partition_by=["topic"])

    def snapshot(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder))

    def add(self, name: str, numbers: Sequence[int], *, changes: bool = True) -> Any:
        """Write a file, and return the action that adds it."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from deltalake.transaction import AddAction

        path = self.folder / "orders" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), path)
        statistics = json.dumps({"numRecords": len(numbers)})
        size = path.stat().st_size
        return AddAction(f"orders/{name}.parquet", size, {"topic": "orders"}, NOW, changes, statistics)

    def remove(self, added: Any, *, changes: bool = False) -> Any:
        """Return the action that removes a file."""
        from deltalake.transaction import RemoveAction

        return RemoveAction(added.path, changes, NOW, added.size, {"topic": "orders"})

    def commit(self, snapshot: DeltaTable, *actions: Any, **numbers: int) -> None:
        """Commit as the archive does."""
        from deltalake import CommitProperties, Transaction

        properties = CommitProperties(app_transactions=[Transaction(*each) for each in numbers.items()])
        snapshot.create_write_transaction(
            list(actions), "append", snapshot.schema(), ["topic"], commit_properties=properties
        )

    def numbers(self) -> list[int]:
        """Return all rows, read again."""
        return sorted(self.snapshot().to_pyarrow_table()["number"].to_pylist())

    def set_to(self, name: str) -> int | None:
        """Return the version of an application id, read again."""
        found: int | None = self.snapshot().transaction_version(name)
        return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def at_once(writers: Sequence[Callable[[], None]]) -> list[str]:
    """Start all writers at the same time. Return the sorted outcomes: "done" or the error's class name."""
    together = threading.Barrier(len(writers), timeout=SPARK_PATIENCE)

    def run(writer: Callable[[], None]) -> str:
        together.wait()
        try:
            writer()
        except Exception as error:
            return type(error).__name__
        return "done"

    with ThreadPoolExecutor(len(writers)) as pool:
        return sorted(pool.map(run, writers))


@pytest.mark.parametrize("number", range(10))
def test_of_two_writers_of_the_same_number_one_is_refused(table: Table, number: int) -> None:
    files = [table.add(f"file-{writer}", range(writer * 10, writer * 10 + 10)) for writer in range(2)]
    snapshots = [table.snapshot(), table.snapshot()]

    def writer(place: int) -> Callable[[], None]:
        return lambda: table.commit(snapshots[place], files[place], upto=1)

    assert at_once([writer(0), writer(1)]) == ["CommitFailedError", "done"]
    found = table.numbers()
    assert found in (list(range(10)), list(range(10, 20)))
    assert table.set_to("upto") == 1


def test_the_second_of_two_writers_of_the_same_number_is_refused_however_late_it_is(table: Table) -> None:
    """Other commits may follow the first one. The error is the same after a checkpoint."""
    from deltalake.exceptions import CommitFailedError

    late = [table.snapshot(), table.snapshot()]
    table.commit(table.snapshot(), table.add("first", [1]), upto=1)
    for number in range(5):
        table.commit(table.snapshot(), table.add(f"other-{number}", [10 + number]), other=number)
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        table.commit(late[0], table.add("second", [2]), upto=1)
    table.snapshot().create_checkpoint()
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        table.commit(late[1], table.add("third", [3]), upto=2)
    assert table.numbers() == [1, 10, 11, 12, 13, 14]


def test_a_refused_commit_sets_none_of_its_numbers(table: Table) -> None:
    from deltalake.exceptions import CommitFailedError

    late = table.snapshot()
    table.commit(table.snapshot(), upto=1)
    with pytest.raises(CommitFailedError):
        table.commit(late, table.add("file", [1]), rows=1, upto=1)
    assert (table.set_to("upto"), table.set_to("rows"), table.numbers()) == (1, None, [])


@pytest.mark.parametrize("number", range(5))
def test_writers_of_different_numbers_all_commit(table: Table, number: int) -> None:
    files = [table.add(f"file-{writer}", range(writer * 10, writer * 10 + 10)) for writer in range(4)]
    snapshots = [table.snapshot() for _ in range(4)]

    def writer(place: int) -> Callable[[], None]:
        return lambda: table.commit(snapshots[place], files[place], **{f"upto-{place}": place + 1})

    assert at_once([writer(place) for place in range(4)]) == ["done"] * 4
    assert table.numbers() == list(range(40))
    assert [table.set_to(f"upto-{place}") for place in range(4)] == [1, 2, 3, 4]


def test_a_number_that_is_set_already_is_accepted_from_a_new_snapshot(table: Table) -> None:
    """So a writer must compare the number in its snapshot before it commits."""
    table.commit(table.snapshot(), table.add("first", [1]), upto=1)
    again = table.snapshot()
    assert again.transaction_version("upto") == 1
    table.commit(again, table.add("second", [1]), upto=1)
    lower = table.snapshot()
    table.commit(lower, upto=0)
    assert table.numbers() == [1, 1]
    assert table.set_to("upto") == 0


def test_a_snapshot_keeps_its_numbers_when_others_commit(table: Table) -> None:
    snapshot = table.snapshot()
    table.commit(table.snapshot(), upto=1)
    assert (snapshot.transaction_version("upto"), table.set_to("upto")) == (None, 1)


@pytest.mark.parametrize("name", ["upto/a b", "upto/ä/ö%20?#&=", "upto/" + "x" * 200, "upto/'\"\\"])
def test_a_number_may_have_any_name(table: Table, name: str) -> None:
    table.commit(table.snapshot(), **{name: (1 << 62) + 1})
    table.snapshot().create_checkpoint()
    assert table.set_to(name) == (1 << 62) + 1


def test_numbers_survive_checkpoints_removals_and_vacuum(table: Table) -> None:
    """Each step also deletes what the table's log no longer needs."""
    added = table.add("first", [1, 2])
    table.commit(table.snapshot(), added, upto=7, rows=2)
    for step in range(3):
        table.snapshot().create_checkpoint()
        new = table.add(f"new-{step}", [1, 2], changes=False)
        table.commit(table.snapshot(), table.remove(added), new, maintenance=step + 1)
        added = new
        table.snapshot().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table.snapshot().create_checkpoint()
    table.snapshot().cleanup_metadata()
    log = table.folder / "_delta_log"
    last = json.loads((log / "_last_checkpoint").read_text())["version"]
    for path in log.glob("*.json"):
        if int(path.stem) < last:
            path.unlink()  # The table's log keeps them for 30 days. The checkpoint must be enough.
    assert [table.set_to(name) for name in ("upto", "rows", "maintenance")] == [7, 2, 3]
    assert table.numbers() == [1, 2]


def test_both_of_two_commits_that_remove_the_same_file_are_accepted(table: Table) -> None:
    """The rows are there twice. This is why each removal sets the number ``maintenance``."""
    added = table.add("first", [1, 2])
    table.commit(table.snapshot(), added)
    snapshots = [table.snapshot(), table.snapshot()]
    for number, snapshot in enumerate(snapshots):
        new = table.add(f"new-{number}", [1, 2], changes=False)
        table.commit(snapshot, table.remove(added), new, **{f"other-{number}": 1})
    assert table.numbers() == [1, 1, 2, 2]


@pytest.mark.parametrize("same_file", [True, False])
def test_the_second_of_two_removals_with_one_number_is_refused(table: Table, same_file: bool) -> None:
    from deltalake.exceptions import CommitFailedError

    added = [table.add("first", [1, 2]), table.add("second", [3])]
    table.commit(table.snapshot(), *added)
    snapshots = [table.snapshot(), table.snapshot()]
    table.commit(
        snapshots[0], table.remove(added[0]), table.add("new-0", [1, 2], changes=False), maintenance=1
    )
    old, rows = (added[0], [1, 2]) if same_file else (added[1], [3])
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        table.commit(snapshots[1], table.remove(old), table.add("new-1", rows, changes=False), maintenance=1)
    assert table.numbers() == [1, 2, 3]


def test_an_append_from_an_older_snapshot_is_accepted_beside_a_removal(table: Table) -> None:
    """An archive run continues while an archive is compacted."""
    added = table.add("first", [1, 2])
    table.commit(table.snapshot(), added, upto=2)
    older = table.snapshot()
    table.commit(
        table.snapshot(), table.remove(added), table.add("new", [1, 2], changes=False), maintenance=1
    )
    table.commit(older, table.add("second", [3]), upto=3)
    assert table.numbers() == [1, 2, 3]
    assert (table.set_to("upto"), table.set_to("maintenance")) == (3, 1)


def test_a_removal_from_an_older_snapshot_is_accepted_beside_an_append(table: Table) -> None:
    added = table.add("first", [1, 2])
    table.commit(table.snapshot(), added, upto=2)
    older = table.snapshot()
    table.commit(table.snapshot(), table.add("second", [3]), upto=3)
    table.commit(older, table.remove(added), table.add("new", [2], changes=False), maintenance=1)
    assert table.numbers() == [2, 3]


def test_an_append_is_refused_beside_a_removal_that_is_a_change_of_data(table: Table) -> None:
    """So an erasure is not marked as a change of data: an archive run beside it would fail."""
    from deltalake.exceptions import CommitFailedError

    added = table.add("first", [1, 2])
    table.commit(table.snapshot(), added)
    older = table.snapshot()
    table.commit(table.snapshot(), table.remove(added, changes=True), table.add("new", [1]), maintenance=1)
    with pytest.raises(CommitFailedError, match="deleted data this operation read"):
        table.commit(older, table.add("second", [3]), upto=3)
    assert table.numbers() == [1]


def test_a_removed_file_is_deleted_by_vacuum_and_readers_are_right(table: Table) -> None:
    added, kept = table.add("first", [1, 2]), table.add("second", [3])
    table.commit(table.snapshot(), added, kept)
    before = table.snapshot()
    table.commit(table.snapshot(), table.remove(added), table.add("new", [2], changes=False), maintenance=1)
    stray = table.folder / "orders" / "stray.parquet"
    shutil.copy(table.folder / kept.path, stray)
    assert sorted(before.to_pyarrow_table()["number"].to_pylist()) == [1, 2, 3], "the file is there still"
    beside = table.snapshot()
    gone = table.snapshot().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert sorted(gone) == [added.path, "orders/stray.parquet"]
    assert sorted(path.name for path in table.folder.rglob("*.parquet")) == ["new.parquet", "second.parquet"]
    assert sorted(beside.to_pyarrow_table()["number"].to_pylist()) == table.numbers() == [2, 3]
    with pytest.raises(FileNotFoundError):
        before.to_pyarrow_table()


def test_vacuum_leaves_files_alone_that_are_young(table: Table) -> None:
    """A run that has not committed its files yet has them there."""
    added = table.add("first", [1])
    table.commit(table.snapshot(), added)
    table.commit(table.snapshot(), table.remove(added), maintenance=1)
    young = table.add("young", [2])
    assert table.snapshot().vacuum(1, dry_run=False, enforce_retention_duration=False, full=True) == [
        added.path
    ], "the removal's time counts for a removed file, and NOW is long ago"
    table.commit(table.snapshot(), young)
    assert table.numbers() == [2]


def test_any_reader_may_read_the_tables(table: Table) -> None:
    """The oldest protocol of Delta, without features. Adding a column does not change this."""
    import pyarrow as pa
    from deltalake import Schema

    def protocol() -> tuple[Any, ...]:
        found = table.snapshot().protocol()
        features = (found.reader_features or [], found.writer_features or [])
        return (found.min_reader_version, found.min_writer_version, *features)

    added = table.add("first", [1])
    assert protocol() == (1, 2, [], [])
    table.commit(table.snapshot(), added, upto=1)
    table.snapshot().alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.string())])).fields)
    table.snapshot().alter.set_table_properties({"mqueue.format": "1"}, raise_if_not_exists=False)
    table.commit(table.snapshot(), table.remove(added), table.add("new", [1], changes=False), maintenance=1)
    table.snapshot().create_checkpoint()
    assert protocol() == (1, 2, [], [])
    found = table.snapshot().to_pyarrow_table().to_pylist()
    assert found == [{"topic": "orders", "number": 1, "more": None}]
    assert table.snapshot().metadata().configuration == {"mqueue.format": "1"}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_commit_beside_a_new_column_is_refused(table: Table, rows: int) -> None:
    """From a new snapshot it is accepted. So a run of an older version of the package is run again."""
    import pyarrow as pa
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError

    older = table.snapshot()
    table.snapshot().alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.string())])).fields)
    with pytest.raises(CommitFailedError):
        table.commit(older, table.add("first", range(rows)), upto=rows)
    table.commit(table.snapshot(), table.add("second", range(rows)), upto=rows)
    assert Counter(table.numbers()) == Counter(range(rows))


def test_a_version_and_a_time_name_the_same_state(table: Table) -> None:
    """The time of a version is that of its file in the log, which may be later than the time in the file."""
    added = table.add("first", [1])
    table.commit(table.snapshot(), added, upto=1)
    for version, second in enumerate((NOW // 1000, NOW // 1000 + 1)):
        os.utime(table.folder / "_delta_log" / f"{version:020}.json", (second, second))
    for state in (1, datetime.fromtimestamp(NOW // 1000 + 1, UTC)):
        found = table.snapshot()
        found.load_as_version(state)
        assert (found.version(), found.transaction_version("upto")) == (1, 1)
    with pytest.raises(Exception, match=r"(?i)version"):
        table.snapshot().load_as_version(9)
