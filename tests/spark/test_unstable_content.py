"""A write with a name warns if its rows without ids seem to differ in each run."""

from __future__ import annotations

import json
import time
import uuid
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue.models import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.writer.sink import Writer

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

NAMES = ("key", "id", "kind", "headers", "payload")
OLD = datetime(2020, 5, 3, 10, 15, tzinfo=UTC).isoformat()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def random() -> str:
    return str(uuid.uuid4())


def writer(options: dict[str, str]) -> Writer:
    """Return the writer as Spark's driver creates it."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    from django_mqueue.spark import MQueueDataSource

    schema = StructType()
    for name in NAMES:
        schema = schema.add(name, BinaryType() if name == "payload" else StringType())
    named = {"topic": "orders", "writeId": "import", **options}
    return MQueueDataSource(named).writer(schema, overwrite=False)


def write(made: Writer, rows: Sequence[dict[str, Any]]) -> Any:
    """Write the rows as a Spark task does."""
    import pyarrow as pa

    columns = [pa.array([row.get(name) for row in rows], type=pa.string()) for name in NAMES[:-1]]
    payloads = pa.array([row["payload"] for row in rows])
    return made.write(iter([pa.record_batch([*columns, payloads], names=NAMES)]))


def said(options: dict[str, str], *tasks: Sequence[dict[str, Any]], fails: bool = False) -> list[str]:
    """Write tasks of these rows, and return the warnings of the driver."""
    made = writer(options)
    messages = [write(made, rows) for rows in tasks]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made.abort([*messages, None]) if fails else made.commit(messages)
    return [str(each.message) for each in found]


def payload(**fields: Any) -> dict[str, Any]:
    return {"payload": json.dumps(fields)}


def test_a_random_uuid_in_each_row_is_warned_of(options: dict[str, str]) -> None:
    first, second = ([payload(n=n, at=[{"by": random()}]) for n in range(3)] for _ in range(2))
    (text,) = said(options, first, [], second)
    assert text.startswith("write 'import': its rows without an id have a random UUID in column 'payload'.")
    assert "a column 'id'" in text
    assert "'stableContent'" in text
    assert Message.objects.count() == 6


@pytest.mark.parametrize("column", ["key", "headers"])
def test_a_random_uuid_in_another_column_is_warned_of(options: dict[str, str], column: str) -> None:
    rows = []
    for n in range(3):
        value = random() if column == "key" else json.dumps({"by": random()})
        rows.append({**payload(n=n), column: value})
    (text,) = said(options, rows)
    assert f"a random UUID in column '{column}'." in text


@pytest.mark.parametrize(
    "value",
    [
        now,
        lambda: now().replace("Z", "+00:00"),
        lambda: datetime.now().isoformat(" "),
        lambda: int(time.time()),
        lambda: int(time.time() * 1e3),
        lambda: int(time.time() * 1e6),
    ],
    ids=["UTC", "offset", "local", "seconds", "milliseconds", "microseconds"],
)
def test_a_time_of_the_write_in_all_rows_is_warned_of(options: dict[str, str], value: Any) -> None:
    at = value()
    (text,) = said(options, [payload(n=1, at=at)], [payload(n=2, at=at), payload(n=3, at=at)])
    assert f"the time {at} in column 'payload'." in text


def test_a_write_that_fails_warns_also(options: dict[str, str]) -> None:
    (text,) = said(options, [payload(by=random())], fails=True)
    assert "a random UUID in column 'payload'" in text


def test_bytes_that_are_json_are_looked_into(options: dict[str, str]) -> None:
    (text,) = said(options, [{"payload": json.dumps({"by": random()}).encode()}])
    assert "a random UUID in column 'payload'" in text


CUSTOMER = random()


@pytest.mark.parametrize(
    "rows",
    [
        [payload(n=n, customer=CUSTOMER) for n in range(2)],
        [payload(n=1, by=random()), payload(n=2)],
        [payload(n=n, by=str(uuid.uuid5(uuid.NAMESPACE_URL, str(n)))) for n in range(2)],
        [payload(n=n, at=OLD) for n in range(2)],
        [payload(n=n, at=datetime.fromtimestamp(time.time() - n, UTC).isoformat()) for n in range(2)],
        [{**payload(n=n, by=random(), at=now()), "id": str(n)} for n in range(2)],
        [{"payload": random().encode() + b"\xff"}],
        [{"payload": b"[" * 100_000}],
        [{"payload": b"[" * 900 + b"]" * 900}],
        [payload(n=n, big=10**400, inf="inf", none=None, day="0001-01-01") for n in range(2)],
        [],
    ],
    ids=["of-customers", "some-rows", "of-names", "old", "of-events", "ids", "bytes", "open", "deep", "odd", "none"],
)  # fmt: skip
def test_other_content_is_not_warned_of(options: dict[str, str], rows: list[dict[str, Any]]) -> None:
    assert not said(options, rows)


def test_rows_of_several_tasks_are_compared(options: dict[str, str]) -> None:
    assert not said(options, [payload(n=1, at=now(), by=random())], [payload(n=2, at=OLD)])


def test_stable_content_is_not_warned_of(options: dict[str, str]) -> None:
    assert not said({**options, "stableContent": "true"}, [payload(n=1, at=now(), by=random())])


def test_spark_warns_in_the_driver(spark: SparkSession, options: dict[str, str]) -> None:
    """Warnings are errors here, because a test cannot read the output of the driver's Python process."""
    from .probes import Strict

    spark.dataSource.register(Strict)
    frame = spark.range(0, 4, 1, 2)
    for column, expected in (
        ("uuid()", "a random UUID in column 'payload'"),
        ("current_timestamp()", r"the time \S+ in column 'payload'"),
    ):
        rows = frame.selectExpr(f"to_json(struct(id, {column} AS made)) AS payload")
        named = rows.write.format("mqueue_strict").options(**options, topic="orders", writeId=column)
        with pytest.raises(Exception, match=f"UserWarning: write .*{expected}"):
            named.mode("append").save()
