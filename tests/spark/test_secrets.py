"""Spark writes and shows no password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_mqueue import publish_many
from tests.support.waiting import SPARK_PATIENCE

from .jobs import FAST_JVM

pytestmark = pytest.mark.spark

SECRET, SHOWN = "pa55word-nobody-writes-down", "a-configuration-is-written-down"

JOB = """
import json, sys
from django_mqueue.spark import archive, replay, session

place, options, config = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
spark = session(master="local[1]", memory="600m", config=config)
frame = spark.read.format("mqueue").options(**options, topic="orders").load()
frame.explain(mode="extended")
stream = spark.readStream.format("mqueue").options(**options, topic="orders", group="copies").load()
writer = stream.select("payload").writeStream.format("mqueue").options(**options, topic="copies")
query = writer.option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
query.explain(True)
print(query.lastProgress)
assert spark.read.format("mqueue").options(**options, topic="copies").load().count() == 3
archive(spark, "orders", place + "/archive", options=options)
done = replay(spark, "orders", "again", source=place + "/archive", to="again", options=options, dry_run=False)
assert done.stored == 3, done
try:
    spark.read.format("mqueue").options(**{**options, "user": "mqueue_nobody"}, topic="orders").load().count()
except Exception as error:
    print(error)
spark.stop()
"""


@pytest.fixture
def account(options: dict[str, str]) -> object:
    """Yield the options of an account whose password is easy to search for."""
    name = f"mqueue_{os.getpid()}"
    database = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {name}@'%%' IDENTIFIED BY '{SECRET}'", [])
        cursor.execute(f"GRANT ALL ON `{database}`.* TO {name}@'%%'", [])
    yield {**options, "user": name}
    with connection.cursor() as cursor:
        cursor.execute(f"DROP USER {name}@'%%'", [])


@pytest.mark.exhaustive
def test_the_password_is_in_nothing_that_spark_writes_down(account: dict[str, str], tmp_path: Path) -> None:
    """Search the event log, checkpoint, archive, plans, progress and errors.

    The event log does contain Spark's configuration.
    """
    publish_many("orders", range(3))
    (tmp_path / "events").mkdir()
    config = {
        **FAST_JVM,
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.executorEnv.SHOWN": SHOWN,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path), json.dumps(account), json.dumps(config)],
        env={
            **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
            "MQUEUE_PASSWORD": SECRET,
            "DATABASE_URL": f"mysql://root:{SECRET}@127.0.0.1/none",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"events", "checkpoint", "archive"} <= {path.relative_to(tmp_path).parts[0] for path in written}
    everything = {str(path): path.read_bytes() for path in written}
    everything |= {"output": done.stdout.encode(), "log": done.stderr.encode()}
    assert [name for name, text in everything.items() if SECRET.encode() in text] == []
    assert any(SHOWN.encode() in text for name, text in everything.items() if "/events/" in name), (
        "when Spark's configuration is not written down any more, it may hold a password"
    )
    assert "mqueue_nobody" in done.stdout, "the server refused nobody: this proves less"
