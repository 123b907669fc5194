"""``kinds=``: the kinds that a handler takes, and how their payloads are parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from django_mqueue import Message, consumer, publish
from django_mqueue.models import DeliveryState
from django_mqueue.models import Message as Row
from tests.support.running import Seen, registered, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


@dataclass(frozen=True)
class Created:
    order: int
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.order < 1:
            raise ValueError("order must be at least 1")


class Model(BaseModel):
    order: int
    at: date | None = None


def letters() -> list[str]:
    """Return the dead letters' errors, sorted because several threads settle at once."""
    return sorted(row.last_error or "" for row in Row.objects.filter(topic="t_dlq"))


def test_payloads_are_parsed_by_kind() -> None:
    publish("t", {"order": 1, "lines": ["a"]}, kind="created")
    publish("t", {"order": "2", "at": date(2026, 11, 21)}, kind="model")
    publish("t", "12", kind="number")
    publish("t", {"order": 3}, kind="plain")
    seen = Seen()
    with registered("t", seen, kinds={"created": Created, "model": Model, "number": int, "plain": None}):
        run()
    got = {message.kind: message.payload for message in seen.messages}
    assert got["created"] == Created(1, ["a"])
    assert got["model"] == Model(order=2, at=date(2026, 11, 21))
    assert (got["number"], got["plain"]) == (12, {"order": 3})


def test_another_kind_is_dead_lettered_at_once() -> None:
    publish("t", 1, kind="paid")
    publish("t", 2)
    publish("t", 3, kind="created")
    seen = Seen()
    with registered("t", seen, kinds=["created", "changed"], max_attempts=5):
        run()
    assert seen.payloads == [3]
    assert letters() == [
        "kind '' is not accepted by this handler; it accepts: 'changed', 'created'",
        "kind 'paid' is not accepted by this handler; it accepts: 'changed', 'created'",
    ]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"order": 1, "colour": "red", "size": 2}, "TypeError: Created has no field 'colour', 'size'"),
        ({}, "TypeError: Created.__init__() missing 1 required positional argument: 'order'"),
        ({"order": 0}, "ValueError: order must be at least 1"),
        ([1], "TypeError: Created needs a mapping, not list"),
    ],
)
def test_what_does_not_parse_is_dead_lettered_at_once(payload: Any, error: str) -> None:
    publish("t", payload, kind="created")
    seen = Seen()
    with registered("t", seen, kinds={"created": Created}, max_attempts=5):
        run()
    assert seen.messages == []
    assert letters() == [f"the payload of kind 'created' does not parse: {error}"]
    assert DeliveryState.objects.get().failure_count == 1


def test_what_pydantic_refuses_is_dead_lettered_with_its_words() -> None:
    publish("t", {"order": "one"}, kind="model")
    with registered("t", Seen(), kinds={"model": Model}, max_attempts=5):
        run()
    (error,) = letters()
    assert error.startswith(
        "the payload of kind 'model' does not parse: ValidationError: 1 validation error for Model"
    )


def test_a_parsed_message_can_be_extended_and_retried() -> None:
    publish("t", {"order": 1}, kind="created")

    def handle(message: Message) -> None:
        message.extend(60)  # type: ignore[attr-defined]
        if message.attempt == 1:
            raise ValueError(message.payload.order)

    seen = Seen(handle)
    with registered("t", seen, kinds={"created": Created}, retry=[0]):
        run()
    assert [message.attempt for message in seen.messages] == [1, 2]
    assert DeliveryState.objects.get().acked


def test_what_the_filter_leaves_out_is_not_parsed() -> None:
    publish("t", {"order": 0}, kind="other")
    seen = Seen()
    with registered("t", seen, kinds={"created": Created}, filter=lambda message: message.kind == "created"):
        run()
    assert (seen.messages, letters()) == ([], [])


@pytest.mark.parametrize(
    ("kinds", "error", "match"),
    [
        ("created", TypeError, "kinds must be a list of kinds"),
        ([], ValueError, "kinds must name at least one"),
        ([1], TypeError, "a kind must be a str"),
        ({"created": 5}, TypeError, r"kinds\['created'\] must be a dataclass"),
    ],
)
def test_bad_kinds(kinds: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        consumer("t", group="g", kinds=kinds)
