"""Results of tasks are data: nothing that a Spark Connect server sends runs as code here. Needs no JVM."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from django_mqueue.exceptions import LogGap
from django_mqueue.spark.archives.jobs import spread
from django_mqueue.spark.archives.parquet import FileEntry
from django_mqueue.spark.errors import ArchiveError, OptionError

pytestmark = pytest.mark.spark

ENTRY = FileEntry("messages/orders-0123456789ab/2026-11-21/a.parquet", "orders", "2026-11-21", 2, 1, 3, 100)


class Server:
    """A session whose server returns any outcome."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = outcomes

    @property
    def schema(self) -> StructType:
        kind = BinaryType() if isinstance(self._outcomes[0], bytes) else StringType()
        return StructType([StructField("number", LongType()), StructField("outcome", kind)])

    def range(self, *_: int) -> Server:
        return self

    def mapInArrow(self, run: Any, schema: str) -> Server:
        return self

    def toArrow(self) -> pa.Table:
        kind = pa.binary() if isinstance(self._outcomes[0], bytes) else pa.string()
        return pa.table({"number": range(len(self._outcomes)), "outcome": pa.array(self._outcomes, kind)})

    def collect(self) -> list[Any]:
        return [SimpleNamespace(number=n, outcome=outcome) for n, outcome in enumerate(self._outcomes)]


def answered(*outcomes: Any, kind: type[Any] = FileEntry) -> Any:
    server: Any = Server(*outcomes)
    return spread(server, lambda _: [], list(outcomes), kind)


class Malice:
    """Unpickling this object creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    pickled = pickle.dumps(Malice(trace))
    for outcome in (pickled, pickled.decode("latin-1")):
        with pytest.raises(ArchiveError, match="a task returned"):
            answered(outcome)
    assert not trace.exists()


@pytest.mark.parametrize(
    "found",
    [
        None,
        7,
        [None],
        ["text"],
        [{"path": "a"}],
        [{**asdict(ENTRY), "more": 1}],
        [{**asdict(ENTRY), "rows": "2"}],
        [{**asdict(ENTRY), "rows": True}],
        [{**asdict(ENTRY), "path": ["a"]}],
    ],
    ids=str,
)
def test_what_no_task_returns_is_refused(found: Any) -> None:
    with pytest.raises(ArchiveError, match="install the same version of django_mqueue"):
        answered(json.dumps({"found": found}))


@pytest.mark.parametrize(
    "outcome", [None, "", "[]", "{}", "1", '"found"', '{"error": []}', '{"error": "LogGap"}']
)
def test_what_is_no_outcome_is_refused(outcome: str | None) -> None:
    with pytest.raises(ArchiveError, match="install the same version of django_mqueue"):
        answered(outcome)


def test_what_tasks_return_is_taken() -> None:
    assert answered(json.dumps({"found": [asdict(ENTRY)]}), json.dumps({"found": []})) == [[ENTRY], []]
    assert answered(json.dumps({"found": ["a", "b"]}), kind=str) == [["a", "b"]]
    with pytest.raises(LogGap, match="gone"):
        answered(json.dumps({"error": "LogGap", "text": "gone"}))
    with pytest.raises(OptionError, match="bad"):  # Also a ``ValueError``.
        answered(json.dumps({"error": "OptionError", "text": "bad"}))
    with pytest.raises(ArchiveError, match="odd"):
        answered(json.dumps({"error": "SystemExit", "text": "odd"}))
