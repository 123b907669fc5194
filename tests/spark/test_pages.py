"""Pages of the log equal the stored rows, however the server sends them, and whatever they contain."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import Message
from django_mqueue.spark.reader import reading
from django_mqueue.spark.sql import pages
from tests.support.plans import planned
from tests.support.subscribers import QUICK, poll_until

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

ODD = [
    b"", b"\x00", b"\n", b"\n\n", b"\x1f", b"\x1e", b"\r", b"\r\n", b'"', b"\\", b",", b"\xff\xfe", b"\xef\xbb\xbf",
    b"a\nb\x1fc",
]  # fmt: skip


def test_payloads_hold_any_bytes() -> None:
    from .both_ways import read

    publish_many("raw", [OutgoingMessage(body, key="k") for body in ODD])
    found = read("raw")
    assert [row["payload"] for row in found] == ODD
    assert {row["encoding"] for row in found} == {"bytes"}


@pytest.mark.parametrize("body", ODD, ids=repr)
def test_each_odd_payload_is_told_or_noticed(body: bytes) -> None:
    from .both_ways import read

    publish_many("raw", [OutgoingMessage(body, key="k"), OutgoingMessage(b"plain", key="k")])
    assert [row["payload"] for row in read("raw")] == [body, b"plain"]


def test_payloads_that_look_like_lines_make_none(options: dict[str, str]) -> None:
    """Payloads are read separately from the lines."""
    publish_many("orders", [OutgoingMessage(n, key="k", id=str(n)) for n in range(reading.FIRST_ROWS + 10)])
    with connection.cursor() as cursor:
        block = pages.Pages("orders", ["partition", "payload"]).block("default", 0, 2**62)
        line = block.lines.split(b"\n")[-1]
        assert line.count(b"\x1f") == 4
        cursor.execute(
            "UPDATE queue_messages SET payload = %s WHERE id = '203'", [b"1\x1f0\n" + line.removesuffix(b"0")]
        )
    found = as_a_task(options)
    assert found[203]["payload"].startswith(b"1\x1f0\n")
    assert len(found) == reading.FIRST_ROWS + 10


@pytest.mark.parametrize("dense", [True, False])
def test_names_kinds_and_headers_are_as_published(dense: bool) -> None:
    from .both_ways import read

    subscribe("orders", "billing")
    messages = [
        OutgoingMessage(1, key="Ärger, \"x\" 'y' \\ é\u2028 {}", id="1"),
        OutgoingMessage(2, id="2"),
        OutgoingMessage(3, key="ada", id="\ufeffbom", kind="order.placed", headers={"by": "web"}),
        OutgoingMessage(
            4, key="ada", id='"', kind='a "b" \\ c', headers={"n": 1.5, "deep": {"a": [1, {"b": "}"}]}}
        ),
        OutgoingMessage(5, key="ada", id="\\", kind="Grüße", headers={"{": "}", "encoding": "json"}),
        OutgoingMessage(6, key="ada", id="6", headers={"x": '","encoding":"json"}', "y": "a\nb\x1fc\x1e"}),
        OutgoingMessage(7, key="ada", id="7", group="billing"),
    ]
    publish_many("orders", messages)
    found = read("orders", dense=dense)
    assert [(row["id"], row["key"]) for row in found] == [(one.id, one.key) for one in messages]
    assert [row["kind"] for row in found] == [one.kind for one in messages]
    assert [json.loads(row["headers"]) for row in found] == [one.headers or {} for one in messages]
    assert [row["target"] for row in found] == [""] * 6 + ["billing"]
    assert {row["topic"] for row in found} == {"orders"}
    assert found[1]["partition"].startswith(" ")
    assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
    stored = Message.objects.get(offset=found[0]["offset"])
    assert found[0]["published_at"].timestamp() * 1000 == pytest.approx(stored.published_at, abs=0.5)


def _odd(options: dict[str, str], **changes: str) -> dict[str, Any]:
    """Store a row that ``publish`` would not create, among others. Return it as a task reads it."""
    publish_many("orders", [OutgoingMessage(n, key="k") for n in range(reading.FIRST_ROWS + 10)])
    publish("orders", 1, key="k", id="odd", kind="a", headers={"h": 1})
    publish_many("orders", [OutgoingMessage(n, key="k") for n in range(10)])
    sets = ", ".join(f"{name} = %s" for name in changes)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE queue_messages SET {sets} WHERE id = 'odd'", list(changes.values()))
    (row,) = [row for row in as_a_task(options) if row["id"] == "odd"]
    return row


def as_a_task(options: dict[str, str]) -> list[dict[str, Any]]:
    """Return all rows of a topic as a task reads them, in order."""
    from django_mqueue.spark.reader.columns import schema_of
    from django_mqueue.spark.reader.options import read_options
    from django_mqueue.spark.reader.planning import batch

    wanted = read_options({**options, "topic": "orders", "includeHeaders": "true"})
    (planned,) = batch("default", wanted)
    parts = list(reading.read(planned, schema_of(wanted), wanted))
    for part in parts:
        part.validate(full=True)
    found = [row for part in parts for row in part.to_pylist()]
    stored = Message.objects.filter(topic="orders", consumer_group="").order_by("offset")
    assert [row["offset"] for row in found] == list(stored.values_list("offset", flat=True))
    return found


@pytest.mark.parametrize(
    "key", ["a\nb", "a\x1fb", "\ra", "a\r", "a\r\nb", "a\x1fb\nc", "\n", "\x1f"], ids=repr
)
def test_a_block_that_does_not_tell_its_rows_is_read_as_rows(key: str, options: dict[str, str]) -> None:
    assert _odd(options, partition_key=key)["partition"] == key


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ('{"encoding": "json", "headers": {"a": 1}, "kind": "b"}', ("b", "json", {"a": 1})),
        ('{"kind": "b", "headers": {"a": {}}, "more": {}, "encoding": "json"}', ("b", "json", {"a": {}})),
        ('{"kind": "b", "headers": {}, "encoding": "json", "retry": {"offset": 1}}', ("b", "json", {})),
        ('{\n  "kind": "b",\n  "headers": {\n},\n  "encoding": "json"\n}', ("b", "json", {})),
        ("{}", (None, None, None)),
        ("[1]", (None, None, None)),
        ('{"kind": null, "headers": null}', (None, None, None)),
    ],
)
def test_metadata_that_others_wrote(
    metadata: str, expected: tuple[Any, ...], options: dict[str, str]
) -> None:
    row = _odd(options, metadata=metadata)
    assert (row["kind"], row["encoding"], row["headers"] and json.loads(row["headers"])) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        "[1]",
        "5",
        "null",
        '{"retry": [1]}',
        '{"retry": {"offset": "x", "published_at": 1.5}}',
        '{"retry": {"offset": 18446744073709551615, "published_at": true}}',
    ],
)
def test_metadata_that_others_wrote_has_no_retry(metadata: str, options: dict[str, str]) -> None:
    """Only a row with an original id may be a retry."""
    row = _odd(options, metadata=metadata, original_id="first")
    assert (row["original_id"], row["retry_of"], row["first_published_at"]) == ("first", None, None)


def test_sizes_change_amid_a_range(options: dict[str, str]) -> None:
    """Blocks of small rows meet large rows, are truncated, and are read as rows. Then small rows follow again."""
    sizes = [10] * 3000 + [400_000] * 60 + [10] * 3000 + [20_000] * 600 + [10] * 500
    publish_many("orders", [OutgoingMessage(b"x" * size, key="k") for size in sizes])
    assert [len(row["payload"]) for row in as_a_task(options)] == sizes


@pytest.mark.parametrize("most", [60_000, 60_001, 61_017])
def test_what_was_cut_off_is_noticed(
    most: int, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """The server may truncate the lines or the payloads."""
    publish_many("orders", [OutgoingMessage(b"x" * (n % 97), key="k" * 20) for n in range(3000)])
    monkeypatch.setattr(pages, "MOST", most)
    assert [len(row["payload"]) for row in as_a_task(options)] == [n % 97 for n in range(3000)]


def cut_between(
    columns: list[str], monkeypatch: pytest.MonkeyPatch, at: Callable[[pages.Block], int]
) -> None:
    """Read a block that the server truncates at a place where the rest looks complete."""
    from pyspark.sql.types import StructType

    from django_mqueue.spark.reader.batches import BatchMaker, UnparsableBlock
    from django_mqueue.spark.reader.columns import schema_of
    from django_mqueue.spark.reader.options import read_options

    publish_many("orders", [OutgoingMessage(b"x" * 100, key="k", id=f"{n:03}") for n in range(100)])
    whole = schema_of(read_options({"topic": "orders"}))
    maker = BatchMaker(StructType([field for field in whole if field.name in columns]), {})
    wanted = pages.Pages("orders", maker.fields)
    block = wanted.block("default", 0, 2**62, separate=True)
    assert maker.of_block(block).num_rows == 100
    monkeypatch.setattr(pages, "MOST", at(block))
    with pytest.raises(UnparsableBlock):
        maker.of_block(wanted.block("default", 0, 2**62, separate=True))


def test_a_block_without_its_last_lines_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_between(["id", "offset"], monkeypatch, lambda block: block.lines.index(b"\n", 500))


def test_a_block_without_its_last_payloads_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_between(["payload", "offset"], monkeypatch, lambda block: len(block.lines) + 100)


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_dead_letters_and_delivery_state_with_and_without_nulls() -> None:
    from .both_ways import read

    publish_many("orders", [OutgoingMessage(n, key="ada", id=str(n)) for n in range(4)])
    with Subscription("orders", "billing") as subscription:
        done, failed, bad, _ = poll_until(subscription, 4)
        done.ack()
        failed.nack(delay=3600, error='line\nand \x1f, "quoted" Ärger')
        bad.reject("no\nsuch \x1e customer")
    states = read("orders", "billing", table="deliveries")
    assert [(row["done"], row["in_flight"]) for row in states] == [
        (True, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert states[0]["errors"] is None
    assert json.loads(states[1]["errors"])[0]["error"] == 'line\nand \x1f, "quoted" Ärger'
    assert states[0]["done_at"] >= states[0]["delivered_at"]
    assert states[1]["done_at"] is None
    (letter,) = read("orders_dlq", table="dead_letters")
    assert (letter["last_error"], letter["original_id"]) == ("no\nsuch \x1e customer", "2")
    assert letter["failed_at"] is not None
    assert read("orders", table="dead_letters")[0]["last_error"] is None


@pytest.mark.parametrize(("dense", "index"), [(True, "PRIMARY"), (False, "queue_messages_tail")])
def test_a_block_is_found_by_index_and_reads_what_it_returns(dense: bool, index: str) -> None:
    publish_many("orders", range(2000))
    first = Message.objects.filter(topic="orders").order_by("offset").values_list("offset", flat=True)[0]
    with planned() as plans:
        block = pages.Pages("orders", ["id", "payload"], ("",), dense=dense).block(
            "default", first + 99, first + 199
        )
    assert block.rows == 100
    (plan,) = plans.values()
    (access,) = plan.of("m")
    assert (access.key, access.type) == (index, "range"), plan
    assert "temporary" not in access.extra
    assert "filesort" not in access.extra
    assert plan.read <= 102, plan


def test_delivery_state_in_a_block_is_found_by_index() -> None:
    publish_many("orders", [OutgoingMessage(n, key="ada") for n in range(50)])
    with Subscription("orders", "billing") as subscription:
        poll_until(subscription, 50)
        with planned() as plans:
            assert pages.Pages("orders", ["done"], group="billing").block("default", 0, 2**62).rows == 50
    (plan,) = plans.values()
    assert [(one.table, one.key) for one in plan.accesses] == [
        ("m", "queue_messages_tail"),
        ("s", "PRIMARY"),
    ], plan
    assert all("temporary" not in one.extra for one in plan.accesses)
    assert plan.read <= 102, plan
