"""Tasks that Spark runs twice on a cluster: a twin of a slow one, and those of a lost executor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.db import connection

from django_mqueue import publish_many
from django_mqueue.spark import Archive
from tests.support.waiting import SPARK_PATIENCE

from .clusters import standalone
from .commands import NO_DJANGO, arguments_of, command
from .streams import stands_at
from .test_cluster import MODULE, on_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

ROWS = 4000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.mark.parametrize(
    ("hook", "settings"), [("stalling", SPECULATION), ("losing", {})], ids=["a twin", "a lost executor"]
)
def test_an_archive_has_each_row_once(
    options: dict[str, str], tmp_path: Path, hook: str, settings: dict[str, str]
) -> None:
    password = {"MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    for begin in range(0, ROWS, 1000):
        publish_many("orders", range(begin, begin + 1000))
    place = tmp_path / "archive"
    asked = ("archive", "--topic", "orders", "--to", str(place), "--json")
    hooked = ("--connection-hook", f"tests.spark.hooks:{hook}")
    given = tuple(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))
    with standalone(tmp_path, password) as (url, _):
        ways = (*asked, *arguments_of(options), *hooked, *on_cluster(url), *given)
        with command(MODULE, ways, {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
            said = worker.output()
    (done,) = json.loads(said[said.index("[\n") :])
    assert done["rows"]["messages"] == ROWS
    archive = Archive.open(str(place))
    assert sum(entry.rows for entry in archive.entries("orders")) == ROWS
    assert archive.upto("orders") == stands_at("archive")
