"""A standalone cluster of one master and two workers, and a Spark Connect server, all on this machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from django_mqueue import publish, publish_many
from django_mqueue.models import Message
from django_mqueue.spark.archives.catalog import Archive
from tests.support.processes import Worker, wait_until
from tests.support.waiting import SPARK_PATIENCE

from .clusters import FAST, Service, connect_server, standalone
from .commands import NO_DJANGO, arguments_of, command, started_by
from .streams import stands_at

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

MODULE = ("django_mqueue.spark",)
ROWS = 6000


@pytest.fixture
def password() -> dict[str, str]:
    return {"MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}


def on_cluster(url: str) -> tuple[str, ...]:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "500m",
        "spark.driver.extraJavaOptions": FAST,
        "spark.executor.extraJavaOptions": FAST,
    }
    given = (word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))
    return ("--master", url, "--memory", "500m", *given)


def at_work(crew: list[Service]) -> set[int]:
    """Return the numbers of the workers that have an executor."""
    return {
        number
        for number, each in enumerate(crew)
        if any("CoarseGrainedExecutorBackend" in line for line in started_by(each.process.pid).values())
    }


def test_a_topic_is_archived_by_two_workers(
    options: dict[str, str], password: dict[str, str], tmp_path: Path
) -> None:
    """The workers and the driver have the password in their environment. The cluster stores nothing of the job."""
    for begin in range(0, ROWS, 1000):
        publish_many("orders", [{"order": number} for number in range(begin, begin + 1000)])
    database = arguments_of(options)
    with standalone(tmp_path, password) as (url, crew):
        spark = on_cluster(url)
        with command(MODULE, ("doctor", *database, *spark), {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0
            assert f"ok  Spark:         {__import__('pyspark').__version__}, {url}" in worker.output()
            assert "ok  executor:" in worker.output()
        place = ("--to", str(tmp_path / "archive"))
        asked = ("archive", "--topic", "orders", *place, "--batch-rows", "2500", "--json")
        with command(MODULE, (*asked, *database, *spark), {**NO_DJANGO, **password}) as worker:
            seen: set[int] = set()

            def ended(worker: Worker = worker) -> bool:
                seen.update(at_work(crew))
                return not worker.running

            wait_until(ended, "the archive run ends", seconds=SPARK_PATIENCE, every=0.2)
            assert worker.wait() == 0, worker.output()
            said = worker.output()
        assert seen == {0, 1}
        wait_until(lambda: not at_work(crew), "the executors end with the job")
        assert "Traceback" not in said
    (done,) = json.loads(said[said.index("[\n") :])
    assert done["rows"]["messages"] == ROWS
    archive = Archive.open(str(tmp_path / "archive"))
    assert sum(entry.rows for entry in archive.entries("orders")) == ROWS
    newest = Message.objects.order_by("-offset").values_list("offset", flat=True)[0]
    assert archive.upto("orders") == stands_at("archive") == newest


def test_a_server_elsewhere_reads_archives_and_tells_errors(
    options: dict[str, str], password: dict[str, str], tmp_path: Path
) -> None:
    """With Spark Connect this process has no Java.

    The server's processes have the password, but not Django's settings.
    """
    publish_many("orders", range(500))
    database = arguments_of(options)
    with connect_server(**password) as url:
        with command(MODULE, ("doctor", *database, "--remote", url), {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0
            assert f"ok  Spark:         {__import__('pyspark').__version__}, Spark Connect" in worker.output()
            assert "ok  executor:" in worker.output()
            assert not any("java" in line for line in started_by(worker.pid).values())
        asked = ("archive", "--topic", "orders", "--to", str(tmp_path / "archive"))
        with command(MODULE, (*asked, *database, "--remote", url), {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
        with command(
            ("tests.spark.trying",),
            ("count", "orders", *database, "--remote", url),
            {**NO_DJANGO, **password},
        ) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
            assert worker.output() == "500\n"
        with command(("tests.spark.trying",), ("fail", "--remote", url), NO_DJANGO) as worker:
            assert worker.wait(SPARK_PATIENCE) == 1
            assert worker.output().endswith("fail: the database is away, seen from an executor\n")
            assert "Traceback" not in worker.output()
        with command(("tests.spark.trying",), ("again", "--remote", url), NO_DJANGO) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
            assert "the same: True, spark.sql.shuffle.partitions: 3\n" in worker.output()
            assert "local[1]: 3 rows\n" in worker.output()
    assert sum(entry.rows for entry in Archive.open(str(tmp_path / "archive")).entries("orders")) == 500


def test_a_condition_means_the_same_to_a_server_elsewhere(
    options: dict[str, str], password: dict[str, str]
) -> None:
    """The server evaluates the condition when the job runs. The client sets the session, and so its time zone."""
    for n, (day, hour) in enumerate([(3, 23), (4, 0), (4, 12), (4, 23), (5, 0)]):
        found = publish("orders", {"n": n})
        at = int(datetime(2026, 5, day, hour, tzinfo=UTC).timestamp() * 1000)
        Message.objects.filter(offset=found.offset).update(published_at=at)
    asked = (
        "replay", "--topic", "orders", "--to", "again", "--name", "spring", "--where",
        "date(published_at) = '2026-05-04'", "--conf", "spark.sql.session.timeZone=Pacific/Kiritimati",
    )  # fmt: skip
    with connect_server(**password) as url:
        ways = (*asked, *arguments_of(options), "--remote", url)
        with command(MODULE, ways, {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
            assert "3 messages of topic 'orders' would be stored in 'again'" in worker.output()
        with command(MODULE, (*ways, "--yes"), {**NO_DJANGO, **password}) as worker:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
    stored = [json.loads(bytes(row.payload))["n"] for row in Message.objects.filter(topic="again")]
    assert sorted(stored) == [1, 2, 3]
