"""Run archive commands as processes that tests kill. Read the archive's tables with ``deltalake`` and pyarrow alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from django.db import connection

from django_mqueue.models import SubscriberHeartbeat

from .commands import NO_DJANGO, SMALL, arguments_of, command
from .crashing import Processes
from .pausing import PAUSE_BEFORE, PAUSE_UNTIL
from .streams import stands_at

TOPIC, GROUP = "orders", "archive"
TABLES = ("dead_letters", "deliveries", "messages")


@contextmanager
def verb(
    name: str, options: dict[str, str], place: Path, *arguments: str, pause_before: str = ""
) -> Iterator[Processes]:
    """Run an archive verb as a process.

    Everything that it started is killed at the end. The heartbeats of earlier runs expire first, so the new run takes
    over at once. ``pause_before``: the verb waits before this step until ``door`` exists (see ``pausing``).
    """
    SubscriberHeartbeat.objects.filter(consumer_group=GROUP).update(heartbeat_at=0)
    environment = {
        **NO_DJANGO,
        "MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"]),
        PAUSE_BEFORE: pause_before,
        PAUSE_UNTIL: str(door(place)),
    }
    needs = arguments_of(options) if name == "archive" else ()
    topic = () if "--clean" in arguments else ("--topic", TOPIC)  # It deletes files of all topics.
    words = (name, *topic, *arguments, *needs, *SMALL, "--master", "local[2,3]", "--to", str(place))
    program = "tests.spark.pausing" if pause_before else "django_mqueue.spark"
    with command((program,), words, environment) as worker:
        yield Processes(worker)


def door(place: Path) -> Path:
    """Return the path of the file for which a paused verb waits."""
    return place.with_name(f"{place.name}.door")


@dataclass(frozen=True)
class File:
    """A file as a table describes it."""

    rows: int
    first: int
    last: int
    bytes: int


def delta(place: Path, table: str) -> DeltaTable | None:
    """Return the table, or None if it does not exist yet."""
    path = str(place / table)
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def named(place: Path) -> dict[str, File]:
    """Return all files that the tables name, by path."""
    found = {}
    for table in TABLES:
        if (each := delta(place, table)) is None:
            continue
        rows = pa.table(each.get_add_actions(flatten=True)).to_pylist()
        files = {
            f"{table}/{row['path']}": File(
                row["num_records"], row["min.offset"], row["max.offset"], row["size_bytes"]
            )
            for row in rows
        }
        assert len(files) == len(rows), f"table {table} names a file twice"
        found.update(files)
    return found


def written(place: Path) -> set[str]:
    """Return the paths of all data files, named by a table or not."""
    return {path.relative_to(place).as_posix() for path in place.glob("*/*/*/*.parquet")}


def unused(place: Path) -> set[str]:
    """Return the paths of data files that no table names."""
    there = written(place)  # First: a file may be committed meanwhile.
    return there - set(named(place))


def numbers(place: Path) -> list[int]:
    """Return the payloads of all archived messages, sorted. Check each file against its table."""
    found: list[int] = []
    for path, file in named(place).items():
        assert (place / path).stat().st_size == file.bytes, path
        table = pq.ParquetFile(place / path, page_checksum_verification=True).read()
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets), path
        assert (len(offsets), offsets[0], offsets[-1]) == (file.rows, file.first, file.last), path
        if path.startswith("messages/"):
            found += [json.loads(payload) for payload in table.column("payload").to_pylist()]
    return sorted(found)


def version(place: Path) -> int:
    """Return how often the table of messages was changed: by each batch, and by each compaction."""
    found = delta(place, "messages")
    return 0 if found is None else int(found.version())


def number(place: Path, kind: str, table: str = "messages") -> int:
    """Return a number of the topic's that a table keeps, or 0."""
    found = delta(place, table)
    return 0 if found is None else int(found.transaction_version(f"{kind}/{TOPIC}") or 0)


def kill_at_pause(run: Processes, is_there: Callable[[], bool], what: str) -> None:
    """Kill a run that waits forever at the moment at which the condition is true."""
    run.until(is_there, what)
    run.kill()
    assert is_there(), what


def is_between_its_tables(place: Path) -> bool:
    """Return True if the deliveries of a batch are committed, and its messages are not."""
    return number(place, "upto", "deliveries") > number(place, "upto")


def is_ahead_of_its_group(place: Path) -> bool:
    """Return True if the last batch is committed and the group's offset is below its position."""
    position = number(place, "position")
    return position > 0 and stands_at(GROUP, TOPIC) < position
