"""Bad arguments are refused before any SQL. The error names the argument and the limit.

No test here may use the database, so each proves that no SQL is run.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe, unsubscribe

BLANKS_AND_CONTROLS = [
    " a",
    "a ",
    "\ta",
    "a\n",
    "\u00a0a",
    "a\u2003",
    "a\x00b",
    "a\x1fb",
    "a\x7fb",
    "a\x85b",
    "a\ud800",
]


def bad_names(argument: str, limit: int) -> list[tuple[Any, type[Exception], str]]:
    """Return (value, error, text of the error) for values that may not be a name."""
    return [
        ("", ValueError, f"{argument} must not be empty"),
        ("x" * (limit + 1), ValueError, rf"{argument} may have at most {limit} characters, not {limit + 1}"),
        *[(name, ValueError, argument) for name in BLANKS_AND_CONTROLS],
        (5, TypeError, f"{argument} must be a str, not int"),
        (b"bytes", TypeError, f"{argument} must be a str, not bytes"),
        (["list"], TypeError, f"{argument} must be a str, not list"),
    ]


class Unencodable:
    pass


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

BAD_PUBLISH: list[tuple[dict[str, Any], type[Exception], str]] = [
    *[({"topic": value}, error, text) for value, error, text in bad_names("topic", 100)],
    ({"topic": None}, TypeError, "topic"),
    ({"topic": "orders_dlq"}, ValueError, "topic .*_dlq"),
    ({"topic": "orders_scheduled"}, ValueError, "topic .*_scheduled"),
    *[({"key": value}, error, text) for value, error, text in bad_names("key", 255)],
    *[({"id": value}, error, text) for value, error, text in bad_names("id", 255)],
    ({"kind": None}, TypeError, "kind must be a str"),
    ({"kind": "k" * 256}, ValueError, "kind may have at most 255"),
    ({"kind": "\ud800"}, ValueError, "kind"),
    ({"headers": ["a"]}, TypeError, "headers must be a mapping"),
    ({"headers": "a"}, TypeError, "headers must be a mapping"),
    ({"headers": {1: "a"}}, TypeError, "headers must have str keys"),
    ({"headers": {"a": Unencodable()}}, TypeError, "headers"),
    ({"headers": {"a": float("nan")}}, ValueError, "headers"),
    ({"headers": {"a": "\udfff"}}, ValueError, "headers"),
    ({"headers": {"a": "x" * 65_536}}, ValueError, "headers .*65536"),
    ({"payload": Unencodable()}, TypeError, "payload"),
    ({"payload": {1, 2}}, TypeError, "payload"),
    ({"payload": {(1, 2): 3}}, TypeError, "payload"),
    ({"payload": float("nan")}, ValueError, "payload"),
    ({"payload": [float("inf")]}, ValueError, "payload"),
    ({"payload": "\ud83d"}, ValueError, "payload"),
    ({"payload": CIRCULAR}, ValueError, "payload"),
    ({"payload": DEEP}, TypeError, "payload"),
    ({"payload": 10**5000}, ValueError, "payload"),
    ({"payload": b"x" * 1_048_577}, ValueError, "payload is 1048577 bytes encoded, over MAX_PAYLOAD_BYTES"),
    ({"payload": "x" * 1_048_575}, ValueError, "payload is 1048577 bytes encoded, over MAX_PAYLOAD_BYTES"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_PUBLISH)
def test_publish_refuses(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    """The error has the right type and says what is wrong."""
    with pytest.raises(error, match=text):
        publish(**{"topic": "orders", "payload": 1, **arguments})


@pytest.mark.parametrize("value", ["maybe", "", None, True])
def test_publish_refuses_an_unknown_on_duplicate(value: Any) -> None:
    with pytest.raises(ValueError, match="on_duplicate must be"):
        publish("orders", 1, on_duplicate=value)


@pytest.mark.parametrize(
    ("arguments", "error", "text"), [bad for bad in BAD_PUBLISH if "topic" not in bad[0]]
)
def test_publish_many_refuses_a_bad_message_and_names_it(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The third message is wrong, and none is published."""
    bad = OutgoingMessage(**{"payload": 1, **arguments})
    with pytest.raises(error, match=rf"message 2: .*{text}"):
        publish_many("orders", [1, 2, bad, 4])


@pytest.mark.parametrize(("arguments", "error", "text"), [bad for bad in BAD_PUBLISH if "topic" in bad[0]])
def test_publish_many_refuses_a_bad_topic(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The topic is checked even without messages."""
    with pytest.raises(error, match=text):
        publish_many(messages=[], **arguments)


@pytest.mark.parametrize("messages", [5, None, "a text", b"bytes", {"a": "mapping"}, OutgoingMessage(1)])
def test_publish_many_refuses_what_is_no_collection_of_messages(messages: Any) -> None:
    """A string, bytes or a mapping is probably a payload without its list.

    ``publish_many`` does not iterate over it.
    """
    with pytest.raises(TypeError, match="messages must be"):
        publish_many("orders", messages)


@pytest.mark.parametrize("limit", [10, 1000])
def test_the_payload_limit_is_the_settings(limit: int) -> None:
    """The error names the limit, which may be set for one topic."""
    with (
        override_settings(MQUEUE={"TOPICS": {"orders": {"MAX_PAYLOAD_BYTES": limit}}}),
        pytest.raises(ValueError, match=rf"payload is {limit + 1} bytes .*MAX_PAYLOAD_BYTES \({limit}\)"),
    ):
        publish("orders", b"x" * (limit + 1))


def test_an_own_dead_letter_suffix_is_reserved() -> None:
    """No message can be published to a topic with a configured dead-letter suffix."""
    with override_settings(MQUEUE={"DLQ_SUFFIX": ".dead", "TOPICS": {"orders": {"DLQ_SUFFIX": ".failed"}}}):
        for topic in ("payments.dead", "orders.failed"):
            with pytest.raises(ValueError, match=r"topic .*reserved for dead letters"):
                publish(topic, 1)


BAD_MEMBER: list[tuple[dict[str, Any], type[Exception], str]] = [
    *[({"topic": value}, error, text) for value, error, text in bad_names("topic", 114)],
    *[({"group": value}, error, text) for value, error, text in bad_names("group", 128)],
    ({"topic": None}, TypeError, "topic"),
    ({"group": None}, TypeError, "group"),
]
BAD_START: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"start": "newest"}, TypeError, 'start must be "earliest", "latest", an aware datetime or an offset'),
    ({"start": None}, TypeError, "start"),
    ({"start": True}, TypeError, "start"),
    ({"start": 1.5}, TypeError, "start"),
    ({"start": date(2026, 1, 1)}, TypeError, "start"),
    ({"start": -1}, ValueError, "start must be an offset of 0 or more"),
    ({"start": datetime(2026, 1, 1)}, ValueError, "start must be an aware datetime"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_MEMBER + BAD_START)
def test_subscribe_refuses(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        subscribe(**{"topic": "orders", "group": "billing", **arguments})


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_MEMBER)
def test_unsubscribe_refuses(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        unsubscribe(**{"topic": "orders", "group": "billing", **arguments})


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    *[({"name": value}, error, text) for value, error, text in bad_names("name", 128)],
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1 and at most 1000"),
    ({"batch_size": 1001}, ValueError, "batch_size must be at least 1 and at most 1000"),
    ({"batch_size": "10"}, TypeError, "batch_size must be an int"),
    ({"batch_size": True}, TypeError, "batch_size must be an int"),
    ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1"),
    ({"max_attempts": 1.0}, TypeError, "max_attempts must be an int"),
    ({"visibility_timeout": 0}, ValueError, "visibility_timeout must be at least"),
    ({"visibility_timeout": -1}, ValueError, "visibility_timeout must be at least"),
    ({"visibility_timeout": timedelta(0)}, ValueError, "visibility_timeout must be at least"),
    ({"visibility_timeout": float("nan")}, ValueError, "visibility_timeout"),
    ({"visibility_timeout": float("inf")}, ValueError, "visibility_timeout"),
    ({"visibility_timeout": 1e11}, ValueError, "visibility_timeout must be at most"),
    ({"visibility_timeout": "60"}, TypeError, "visibility_timeout must be a timedelta or a number"),
    ({"visibility_timeout": None}, TypeError, "visibility_timeout must be a timedelta or a number"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_MEMBER + BAD_START + BAD_OPTIONS)
def test_a_subscription_refuses_when_it_is_made(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The constructor raises the error, not ``open`` later."""
    with pytest.raises(error, match=text):
        Subscription(**{"topic": "orders", "group": "billing", **arguments})


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), ("1", TypeError), (True, TypeError), (None, TypeError)],
)
def test_poll_refuses(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_messages must be"):
        Subscription("orders", "billing").poll(value)


def test_names_may_be_as_long_as_the_limits_say() -> None:
    """The limits count characters, including characters of four bytes."""
    Subscription("🦉" * 114, "🦉" * 128, "🦉" * 128)
