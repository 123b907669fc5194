"""The driver receives all rows of a frame, or it raises an exception."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import django_mqueue.spark
from django_mqueue.spark import collect_all
from tests.support.waiting import SPARK_PATIENCE

from .commands import NO_DJANGO, command
from .dying_java import ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PACKAGE = Path(django_mqueue.spark.__file__).parent
FLIGHTS = PACKAGE.parents[1] / "example_project" / "flights"
MODULES = sorted({*PACKAGE.rglob("*.py"), *FLIGHTS.rglob("*.py")} - {PACKAGE / "archives" / "storage.py"})
"""All modules that may use a frame. ``storage`` collects lists of an object store."""

SHORT = {"collect", "toPandas"}
"""Methods of a frame whose result may lack rows without an exception."""


def said_by(how: str) -> str:
    with command(("tests.spark.dying_java",), (how,), NO_DJANGO) as worker:
        worker.wait(SPARK_PATIENCE)
        found = re.search(r"^(given \d+ rows|raised \w+)$", worker.output(), re.MULTILINE)
        assert found, "it said nothing"
        return found[1]


@pytest.mark.exhaustive
def test_pyspark_returns_a_short_list_if_java_dies_while_it_sends_rows() -> None:
    """A bug of PySpark's. When ``collect`` raises here, ``collect_all`` is no longer needed."""
    found = re.fullmatch(r"given (\d+) rows", said_by("collect"))
    assert found
    assert 0 < int(found[1]) < ROWS


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["collect_all", "stream"])
def test_what_java_did_not_send_is_an_exception(how: str) -> None:
    assert said_by(how).startswith("raised ")


def test_rows_are_those_of_collect(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT id, CAST(id AS STRING) AS text, id / 3 AS part, CAST(id AS DECIMAL(9, 2)) AS exact, id % 2 = 0 AS even,"
        " TIMESTAMP '2026-05-03 10:15:00.123456' AS at, DATE '2026-05-03' AS day, CAST('x' AS BINARY) AS raw,"
        " IF(id = 1, NULL, id) AS gap, array(id, 2) AS some, map('a', id) AS named,"
        " named_struct('start', TIMESTAMP '2026-05-03 10:00:00', 'n', id) AS hour FROM range(3)"
    )
    assert collect_all(frame) == frame.collect()
    row = collect_all(frame)[2]
    assert (row.text, row["hour"].n, row.asDict()["named"]) == ("2", 2, {"a": 2})
    assert collect_all(frame.where("id > 5")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_module_collects_in_another_way(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in SHORT, f"{path.name}:{node.lineno}: use collect_all(frame)"
