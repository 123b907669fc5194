"""Rows become messages whose ids do not depend on the order of the rows. Nothing here needs Spark."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from django.db import connection

from django_mqueue import publish, subscribe
from django_mqueue.exceptions import NotRegistered
from django_mqueue.models import Message
from django_mqueue.policy.encoding import encode
from django_mqueue.spark.errors import OptionError, RowError
from django_mqueue.spark.writer.row_buffer import RowBuffer, append
from django_mqueue.spark.writer.rows import Rows, Task
from django_mqueue.spark.writer.write_options import WriteOptions, write_options
from django_mqueue.store import gates
from django_mqueue.store.log import NewRow
from tests.support.transactions import Background, HeldTransaction

TASK = Task("w", 0)
OPTIONS = write_options({"topic": "orders"}, streaming=False)


def made(
    rows: list[dict[str, Any]], task: Task = TASK, options: WriteOptions = OPTIONS
) -> list[tuple[str, NewRow]]:
    columns = {name: [row.get(name) for row in rows] for name in {name for row in rows for name in row}}
    return list(Rows(task, options).messages(columns, len(rows)))


def ids(rows: list[dict[str, Any]], task: Task = TASK) -> list[str]:
    return [row.id for _, row in made(rows, task)]


def test_columns_are_what_publish_takes() -> None:
    (topic, row), (_, other) = made([
        {"topic": "mail", "key": "ada", "id": "m-1", "kind": "hi", "headers": '{"by": [1]}', "payload": '{"a":1.50}'},
        {"payload": b"\x00\xff", "headers": [("by", "web")]},
    ])  # fmt: skip
    assert (topic, row.partition, row.id) == ("mail", "ada", "m-1")
    assert row.content.body == b'{"a":1.50}', "stored as it is"
    assert row.content.metadata == encode(1, "hi", {"by": [1]}, 100).metadata
    assert other.partition.startswith(" ")
    assert other.content == encode(b"\x00\xff", "", {"by": "web"}, 100)


def test_ids_depend_on_the_write_the_partition_and_the_content_alone() -> None:
    rows = [{"payload": str(n % 40), "key": f"k{n % 3}"} for n in range(100)]
    shuffled = random.Random(7).sample(rows, len(rows))
    assert sorted(ids(rows)) == sorted(ids(shuffled))
    assert len(set(ids(rows))) == 100, "rows that are equal are as many messages"
    assert not set(ids(rows)) & set(ids(rows, Task("w", 1)))
    assert not set(ids(rows)) & set(ids(rows, Task("v", 0)))


def test_without_a_partition_they_are_the_same_in_whichever_tasks_equal_rows_are_together() -> None:
    rows = [{"payload": str(n % 40), "key": f"k{n % 3}"} for n in range(100)]
    task = Task("w", None)
    cut = [[row for row in rows if int(row["payload"]) % 7 == part] for part in range(7)]
    assert sorted(ids(rows, task)) == sorted(id for part in cut for id in ids(part, task))
    assert len(set(ids(rows, task))) == 100


def test_rows_that_may_come_in_other_tasks_need_ids() -> None:
    task = Task("w", 0, adaptive=True)
    assert ids([{"payload": "1", "id": "a"}], task) == ["a"]
    without: list[list[dict[str, Any]]] = [
        [{"payload": "1"}],
        [{"payload": "1", "id": "a"}, {"payload": "2"}],
    ]
    for rows in without:
        with pytest.raises(OptionError, match=r"without an id.*stateless\.enabled to false"):
            made(rows, task)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"payload": None}, "payload is null"),
        ({"payload": "{"}, "payload is not JSON"),
        ({"payload": "NaN"}, "NaN is not a JSON value"),
        ({"payload": "1", "key": " k"}, "key must not begin or end with blanks"),
        ({"payload": "1", "id": ""}, "id must not be empty"),
        ({"payload": "1", "topic": "orders_dlq"}, "reserved for dead letters"),
        ({"payload": "1", "headers": "[]"}, "headers must be a mapping"),
        ({"payload": "1", "headers": "{"}, "Expecting"),
        ({"payload": "1", "kind": "k" * 256}, "kind may have at most 255"),
        ({"payload": b"12345678901"}, "over MAX_PAYLOAD_BYTES"),
        ({"payload": "[" * 250 + "]" * 250}, "nested at most 200"),
    ],
    ids=str,
)
def test_what_cannot_be_a_message_is_told(row: dict[str, Any], named: str) -> None:
    options = write_options({"topic": "orders", "maxPayloadBytes": "10"}, streaming=False)
    with pytest.raises(RowError, match=f"row 2 of this task cannot be a message: .*{named}"):
        made([{"payload": "1"}, row], options=options)


def test_without_any_topic_it_is_told() -> None:
    with pytest.raises(RowError, match="no option 'topic'"):
        made([{"payload": "1", "topic": None}], options=write_options({}, streaming=False))


@pytest.mark.parametrize(
    ("options", "streaming", "named"),
    [
        ({"topic": "orders_dlq"}, False, "reserved for dead letters"),
        ({"topic": "a", "subscribe": "b"}, False, "'subscribe'"),
        ({"topic": "a", "path": "/tmp"}, False, "'path'"),
        ({"topic": "a", "password": "secret"}, False, "MQUEUE_PASSWORD"),
        ({"topic": "a", "spread": "5000"}, False, "at most 4096"),
        ({"topic": "a", "writeId": "x"}, True, "an id of its own"),
        ({"topic": "a", "writeId": " "}, False, "writeId"),
        ({"topic": "a", "target": "g" * 129}, False, "target"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], streaming: bool, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        write_options(options, streaming=streaming)


def test_rows_may_be_for_one_group_alone() -> None:
    options = write_options({"topic": "orders", "target": "billing"}, streaming=False)
    rows = [{"payload": "1", "target": "mail"}, {"payload": "1"}, {"payload": "1", "target": ""}]
    found = [row for _, row in made(rows, options=options)]
    assert [row.group for row in found] == ["mail", "billing", ""]
    assert len({row.id for row in found}) == 3


def test_ids_of_rows_for_all_are_those_of_before_there_were_targets() -> None:
    assert ids([{"topic": "t", "payload": "1"}]) == ["spark-f4374db48d5903ea46cca47a6ab7a287"]


def new(id: str, partition: str = "k") -> NewRow:
    return NewRow(partition, id, encode(id, "", None, 1000))


@pytest.mark.django_db(transaction=True)
def test_what_is_there_is_not_stored_again_and_the_rest_is_in_order() -> None:
    publish("orders", "here", key="k", id="b")
    append("default", "orders", [new("a"), new("b"), new("c"), new("a")])
    append("default", "orders", [new("a"), new("b"), new("c")])
    append("default", "orders", [new("d"), new("e")])
    stored = Message.objects.filter(topic="orders").order_by("offset")
    assert [row.message_id for row in stored] == ["b", "a", "c", "d", "e"]


@pytest.mark.django_db(transaction=True)
def test_a_group_that_is_not_registered_is_given_nothing() -> None:
    subscribe("orders", "billing")
    rows = [
        NewRow("k", str(n), encode(n, "", None, 1000), group) for n, group in enumerate(["billing", "mail"])
    ]
    with pytest.raises(NotRegistered, match="group 'mail' is not registered"):
        append("default", "orders", rows)
    assert not Message.objects.filter(topic="orders").exists()
    append("default", "orders", rows[:1])
    with pytest.raises(NotRegistered, match="group 'mail' is not registered"):
        append("default", "orders", rows)


@pytest.mark.django_db(transaction=True)
def test_a_message_waits_for_the_gate_like_any_other() -> None:
    """Otherwise it could commit below the settled offset."""

    def lock_gate() -> None:
        with connection.cursor() as cursor:
            slots = gates.slots(gates.gate_of("orders"))
            assert gates.free_slots(cursor, slots) == slots

    publisher = Background(lambda: append("default", "orders", [new("a")]))
    with HeldTransaction(lock_gate) as gate, publisher:
        assert publisher.is_blocked
        gate.rollback()
        publisher.result()


@pytest.mark.django_db(transaction=True)
def test_a_row_buffer_keeps_the_order_of_each_topic(options: dict[str, str]) -> None:
    buffer = RowBuffer(write_options({**options, "topic": "t"}, streaming=False))
    for number in range(1300):
        buffer.put(f"t{number % 2}", new(str(number)))
    buffer.flush()
    buffer.close()
    for topic in range(2):
        stored = (
            Message.objects.filter(topic=f"t{topic}").order_by("offset").values_list("message_id", flat=True)
        )
        assert list(stored) == [str(number) for number in range(1300) if number % 2 == topic]


NAMED = write_options({"topic": "orders", "writeId": "import"}, streaming=False)
AGAIN = Task("import", None)


@pytest.mark.parametrize(
    "row",
    [
        {"payload": '{"sum": 0.30000000000000004}'},
        {"payload": '{"by": [{"sum": 1.2345678901234567E9}]}'},
        {"payload": '{"sum": "0.30000000000000004"}'},
        {"payload": '{"0.30000000000000004": 1}'},
        {"payload": "-0.7308781907032909"},
        {"payload": b'{"sum": 0.30000000000000004}'},
        {"payload": "1", "headers": [("sum", "0.30000000000000004")]},
        {"payload": "1", "headers": '{"sum": 0.30000000000000004}'},
        {"payload": "1", "key": "0.30000000000000004"},
    ],
)
def test_a_write_with_a_name_makes_no_ids_of_numbers_whose_last_digits_may_differ(
    row: dict[str, Any],
) -> None:
    """A sum of floats in another order gives a different number, and so a second message."""
    column = next(name for name in ("key", "headers", "payload") if "." in str(row.get(name, "")))
    with pytest.raises(
        RowError, match=rf"row 1 of this task .* column '{column}' has the number .*a column 'id'"
    ):
        made([row], AGAIN, NAMED)
    stable = write_options({"topic": "orders", "writeId": "import", "stableContent": "true"}, streaming=False)
    assert len(made([row], AGAIN, stable)) == len(made([{**row, "id": "a"}], AGAIN, NAMED)) == 1
    assert len(made([row], AGAIN, OPTIONS)) == 1, "it has no name: nobody runs it again"


@pytest.mark.parametrize(
    "payload",
    [
        '{"grams": 500, "price": 12.50, "at": "2026-05-03T10:15:00.123456Z"}',
        '{"n": 12345678901234567890, "exact": 0.100000000000000000, "half": 0.5E10}',
        '{"text": "it is 0.30000000000000004 or so"}',
        '{"text": "{\\"sum\\": 0.30000000000000004}"}',
        b"0.30000000000000004\xff",
        struct.pack("<d", 0.1 + 0.2),
    ],
)
def test_a_write_with_a_name_makes_ids_of_all_else(payload: Any) -> None:
    assert len(made([{"payload": payload}], AGAIN, NAMED)) == 1
