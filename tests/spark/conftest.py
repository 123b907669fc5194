"""One Spark session for the tests of this folder, streaming queries, and the options of the test database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_mqueue.spark.database import following, heartbeating
from django_mqueue.spark.launching import session, settings_options
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.streams.query import Query
from tests.support.needing_spark import all_need_spark

from .archive_runs import Runs
from .jobs import FAST_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Query]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore tests that import Spark or Arrow if PySpark is not installed."""
    if find_spec("pyspark") is not None or collection_path.suffix != ".py":
        return None
    return True if all_need_spark(collection_path) else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run two tasks at once, try each twice, and use little memory.

    The password is in the environment, as users have it.
    """
    password = str(connection.settings_dict["PASSWORD"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MQUEUE_PASSWORD", password)
        patch.delenv("DATABASE_URL", raising=False)
        found = session("tests", master="local[2,2]", memory="700m", config=FAST_JVM)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def archive_tasks_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide also a batch of a few rows among the cores, so that small archives are made by several tasks."""
    monkeypatch.setattr("django_mqueue.spark.archives.requests.ROWS_MIN", 1)


@pytest.fixture(autouse=True)
def no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop queries that a failed test has left. They would read the messages of the next test."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture
def options(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the options of the test database, as a user would write them."""
    monkeypatch.setenv("MQUEUE_PASSWORD", str(connection.settings_dict["PASSWORD"]))
    return settings_options()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def run(spark: SparkSession, options: dict[str, str], place: str) -> Runs:
    return Runs(spark, options, Path(place))


@pytest.fixture
def make(options: dict[str, str]) -> Iterator[Make]:
    """Yield a function that makes streaming queries of the group ``archive``, and stop them at the end."""
    made: list[Query] = []

    def query(created: float | None = None, **more: str) -> Query:
        what = {} if more.keys() & {"subscribe", "subscribePattern"} else {"topic": "orders"}
        asked = {**options, **what, "group": "archive", "pollInterval": "0.01", **more}
        made.append(Query(read_options(asked, streaming=True), created))
        return made[-1]

    yield query
    for each in made:
        each.stop()


@pytest.fixture
def connections_allowed(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Allow connections to a false server in a test that does not need the database."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def quick_hearts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ALIVE_MS", 600_000)
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
