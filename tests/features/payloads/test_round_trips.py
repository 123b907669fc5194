"""Subscribers receive payloads, kinds and headers as they were published."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.test import override_settings
from django.utils.translation import gettext_lazy

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from tests.support.subscribers import poll_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
MEBIBYTE = 1_048_576
EVERY_CHARACTER = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000)]))
ASTRAL = "".join(map(chr, range(0x10000, sys.maxunicode + 1, 257)))


def round_trip(messages: Sequence[Any]) -> list[Any]:
    """Publish the messages, and return their deliveries in the same order."""
    answers = publish_many(TOPIC, messages)
    with Subscription(TOPIC, group="billing", batch_size=1000) as subscription:
        got = {delivery.offset: delivery for delivery in poll_until(subscription, len(messages))}
        assert len(got) == len(messages)
        subscription.ack(list(got.values()))
    return [got[answer.offset] for answer in answers]


def payloads(values: Sequence[Any]) -> list[Any]:
    return [delivery.payload for delivery in round_trip(values)]


PLAIN: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**53 + 1,
    -(2**63),
    2**64,
    10**300,
    0.1,
    1e308,
    5e-324,
    -0.0,
    "",
    " ",
    "a",
    "line\nand\ttab and \\ and \" and ' and % and %s and ; --",
    "\x00",
    "before\x00after",
    {"nul": "\x00", "\x00": 1},
    "🦉👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301 is not \u00e9",
    "\u2028\u2029\ufeff\u202e",
    "עברית, العربية, 中文, ไทย",
    [],
    {},
    [[], {}, [None]],
    {"a": {"b": [1, {"c": [None, True, "x"]}]}, "": {"": ""}},
    {"order": 1, "Order": 2, "ordér": 3, "order ": 4},
    list(range(1000)),
]


def test_json_comes_back_equal() -> None:
    """Numbers of any size, strings with any character that JSON can hold, and nested values."""
    assert payloads(PLAIN) == PLAIN
    assert [type(value) for value in payloads(PLAIN)] == [type(value) for value in PLAIN]


def test_every_character_comes_back_equal() -> None:
    """All characters of the first plane except lone surrogates, NUL included, and every 257th of the other planes."""
    assert payloads([EVERY_CHARACTER, ASTRAL, {EVERY_CHARACTER: ASTRAL}]) == [
        EVERY_CHARACTER,
        ASTRAL,
        {EVERY_CHARACTER: ASTRAL},
    ]


BINARY: list[bytes] = [
    b"",
    b"\x00",
    bytes(range(256)) * 4,
    b"\xff\xfe not UTF-8 \x80",
    b"null",
    b'{"looks": "like JSON"}',
    b"%s ' \" \\ \x1a \n \r ;",
]


def test_bytes_come_back_as_bytes() -> None:
    """This includes bytes that look like JSON, and bytes that are no text in any encoding."""
    got = payloads(BINARY)
    assert got == BINARY
    assert all(type(value) is bytes for value in got)


def test_other_bytes_like_objects_come_back_as_bytes() -> None:
    """``publish`` reads a ``bytearray`` or ``memoryview`` immediately. Later changes of the buffer do not matter."""
    buffer = bytearray(b"abc")
    assert payloads([buffer, memoryview(b"abcdef")[::2]]) == [b"abc", b"ace"]


class Lazy:
    """Values that Django's encoder converts to JSON."""

    VALUES: dict[str, Any] = {
        "date": date(2026, 2, 28),
        "moment": datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC),
        "moment elsewhere": datetime(2026, 2, 28, 12, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        "naive moment": datetime(2026, 2, 28, 12),
        "time": time(12, 30, 1, 500),
        "duration": timedelta(days=1, seconds=2, microseconds=3),
        "decimal": Decimal("12345678901234567890.123456789"),
        "uuid": uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057"),
        "lazy text": gettext_lazy("Yes"),
        "tuple": (1, (2, 3)),
        "keys": {1: "one", 2.5: "two and a half", None: "null"},
    }


def test_what_djangos_encoder_knows_comes_back_as_its_json() -> None:
    """Dates, decimals, UUIDs, lazy strings, tuples, and keys that are not strings."""
    expected = json.loads(json.dumps(Lazy.VALUES, cls=DjangoJSONEncoder))
    assert payloads([Lazy.VALUES, *Lazy.VALUES.values()]) == [expected, *expected.values()]
    assert expected["decimal"] == "12345678901234567890.123456789"
    assert expected["date"] == "2026-02-28"


WHOLE: dict[str, Callable[[int], Any]] = {
    "bytes": lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256),
    "text": lambda size: "x" * (size - 2),
    "emoji": lambda size: "🦉" * ((size - 2) // 4) + "x" * ((size - 2) % 4),
    "escapes": lambda size: '"' * ((size - 2) // 2) + "x" * ((size - 2) % 2),
    "list": lambda size: [1] * ((size - 1) // 2) if size % 2 else [1] * ((size - 3) // 2) + [10],
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_payload_of_one_mebibyte_goes_through_whole(kind: str) -> None:
    """The payload has exactly the limit, alone and as one of several."""
    value = WHOLE[kind](MEBIBYTE)
    assert payloads([value]) == [value]
    assert payloads([value, 1, value]) == [value, 1, value]


@pytest.mark.parametrize("kind", WHOLE)
def test_one_byte_more_is_refused(kind: str, django_assert_num_queries: Callable[[int], Any]) -> None:
    """The error is raised before any SQL."""
    value = WHOLE[kind](MEBIBYTE + 1)
    with django_assert_num_queries(0):
        with pytest.raises(ValueError, match="payload is 1048577 bytes encoded"):
            publish(TOPIC, value)
        with pytest.raises(ValueError, match="message 1: payload is 1048577 bytes encoded"):
            publish_many(TOPIC, [1, value])


def test_a_raised_limit_lets_larger_ones_through() -> None:
    """The setting raises the limit for one topic only, up to the server's packet size."""
    value = b"\xff\x00" * (2 * MEBIBYTE)
    with override_settings(MQUEUE={"TOPICS": {TOPIC: {"MAX_PAYLOAD_BYTES": 4 * MEBIBYTE}}}):
        assert payloads([value]) == [value]
        with pytest.raises(ValueError, match="payload"):
            publish("payments", value)


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def test_deep_nesting_comes_back_or_is_refused() -> None:
    """A subscriber can read every depth that ``publish`` accepts."""
    taken = []
    for levels in (10, 50, 200, 400):
        try:
            publish(TOPIC, deep(levels))
        except (TypeError, ValueError):
            continue
        taken.append(deep(levels))
    with Subscription(TOPIC, group="billing") as subscription:
        got = [delivery.payload for delivery in poll_until(subscription, len(taken))]
    assert sorted(map(str, got)) == sorted(map(str, taken))


HEADERS: list[dict[str, Any]] = [
    {},
    {"trace": "00-4bf92f3577b34da6", "n": 1, "nested": {"list": [1, None, True, 0.5]}},
    {"": "", " blank ": " ", "nul": "\x00", "emoji": "🦉", "quote": "\"'\\%s"},
    {"Case": 1, "case": 2, "cäse": 3, "case ": 4},
    {"when": "2026-02-28T12:00:00Z", "control": "".join(map(chr, range(32))), "big": 2**63 - 1},
    {"large": "x" * 60_000},
]


def test_headers_come_back_equal() -> None:
    """Subscribers receive equal JSON objects, also from MySQL, whose JSON columns normalize their text."""
    got = round_trip([OutgoingMessage(n, headers=headers) for n, headers in enumerate(HEADERS)])
    assert [delivery.headers for delivery in got] == HEADERS


BAD_HEADERS: list[tuple[dict[str, Any], str]] = [
    ({"deep": deep(20)}, "nested at most 20 levels"),
    ({"deep": deep(120)}, "nested at most 20 levels"),
    ({"mapping": {"big": 2**64}}, "at most 64 bits"),
    ({"list": [-(2**63) - 1]}, "at most 64 bits"),
]


@pytest.mark.parametrize(("headers", "text"), BAD_HEADERS)
def test_headers_that_a_server_would_refuse_or_round_are_refused_before_any_sql(
    headers: dict[str, Any], text: str, django_assert_num_queries: Callable[[int], Any]
) -> None:
    """MariaDB's JSON columns allow 32 levels.

    MySQL's allow 100 levels and integers of 64 bits. Payloads have no such limits.
    """
    with django_assert_num_queries(0), pytest.raises(ValueError, match=f"headers may .*{text}"):
        publish(TOPIC, 1, headers=headers)


def test_headers_at_their_limits_come_back_equal() -> None:
    """Use the deepest, largest and smallest headers that ``publish`` accepts."""
    headers = {"deep": deep(18), "big": 2**64 - 1, "small": -(2**63)}
    (delivery,) = round_trip([OutgoingMessage(1, headers=headers)])
    assert delivery.headers == headers


def test_headers_that_djangos_encoder_knows_come_back_as_its_json() -> None:
    (delivery,) = round_trip([OutgoingMessage(1, headers=Lazy.VALUES | {"keys": "none"})])
    assert delivery.headers["uuid"] == "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize(
    "kind", ["", "invoice.created", "🦉" * 255, " blanks ", "Kind", "kind", "\x00", "a\nb"]
)
def test_kinds_come_back_equal(kind: str) -> None:
    """A kind is a value, not a name, so it can be any string."""
    (delivery,) = round_trip([OutgoingMessage(1, kind=kind)])
    assert delivery.kind == kind


def test_a_delivery_carries_what_was_published() -> None:
    """Check every field of a first delivery."""
    before = datetime.now(UTC) - timedelta(minutes=5)
    answer = publish(TOPIC, {"order": 1}, key="customer-1", id="mine", kind="created", headers={"a": "b"})
    with Subscription(TOPIC, group="billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
    assert (delivery.offset, delivery.id, delivery.topic) == (answer.offset, "mine", TOPIC)
    assert (delivery.key, delivery.payload, delivery.kind) == ("customer-1", {"order": 1}, "created")
    assert (delivery.headers, delivery.group, delivery.attempt) == ({"a": "b"}, "billing", 1)
    assert delivery.last_error == ""
    assert delivery.published_at.tzinfo is UTC
    assert before < delivery.published_at < before + timedelta(minutes=10)
    assert (delivery.failed_at, delivery.failure_count) == (None, None)
    assert (delivery.original_topic, delivery.failed_group) == (None, None)


def test_a_keyless_delivery_has_no_key() -> None:
    (delivery,) = round_trip([1])
    assert delivery.key is None
