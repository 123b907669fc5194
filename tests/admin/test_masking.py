"""Masks as functions: their argument and the use of their result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_mqueue import conf
from django_mqueue.browse.masking import FAILED, TOO_LONG, masked
from django_mqueue.inspect import Cut, FailedAttempt, Inspected

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MESSAGE = Inspected(
    offset=7, id="order-7", topic="orders", key="ada", kind="order", payload={"card": "5105105105105100", "order": 7},
    published_at=NOON, available_at=NOON, headers={"trace": "t-1"},
    errors=(FailedAttempt(NOON, 1, "worker-1", "ValueError: 5105105105105100"),),
)  # fmt: skip


def no_card(message: Inspected) -> Inspected:
    return replace(message, payload={**message.payload, "card": "…"})


def other(message: Inspected) -> Inspected:
    return replace(message, payload="other")


def no_errors(message: Inspected) -> Inspected:
    return replace(message, errors=tuple(replace(one, error="…") for one in message.errors))


def test_without_a_mask_nothing_is_hidden() -> None:
    assert masked(MESSAGE) is MESSAGE


@pytest.mark.parametrize("mask", [no_card, f"{__name__}.no_card"])
def test_a_mask_by_itself_or_by_its_path(mask: Any) -> None:
    with override_settings(MQUEUE={"MASK": mask}):
        assert masked(MESSAGE) == replace(MESSAGE, payload={"card": "…", "order": 7})


def test_a_topic_may_have_its_own_or_none() -> None:
    """A topic's mask also applies to the topics derived from it."""
    topics: dict[str, dict[str, Any]] = {"orders": {"MASK": other}, "mails": {"MASK": None}}
    with override_settings(MQUEUE={"MASK": no_card, "TOPICS": topics}):
        for topic in ("orders", "orders_dlq", "orders_scheduled", "orders_replies", "orders_dlq_dlq"):
            assert conf.mask(topic) is other, topic
        for topic in ("cards", "cards_scheduled", "orders2", "_dlq"):
            assert conf.mask(topic) is no_card, topic
        assert conf.mask("mails_dlq") is None


def test_a_mask_is_told_the_topic_that_a_message_is_of() -> None:
    def mask(message: Inspected) -> Inspected:
        return replace(message, payload=message.topic)

    with override_settings(MQUEUE={"MASK": mask}):
        found = masked(replace(MESSAGE, topic="orders_dlq"))
    assert (found.topic, found.payload) == ("orders_dlq", "orders")


def test_errors_are_masked_if_the_mask_does_it() -> None:
    with override_settings(MQUEUE={"MASK": no_card}):
        assert masked(MESSAGE).errors == MESSAGE.errors
    with override_settings(MQUEUE={"MASK": no_errors}):
        assert [one.error for one in masked(MESSAGE).errors] == ["…"]


def test_only_payload_headers_and_errors_are_taken() -> None:
    """A mask cannot change a message's offset, id, topic, key or status."""

    def mask(message: Inspected) -> Inspected:
        return replace(message, offset=1, id="x", topic="x", key="x", headers={"trace": "…"}, status="done")

    with override_settings(MQUEUE={"MASK": mask}):
        assert masked(MESSAGE) == replace(MESSAGE, headers={"trace": "…"})


def raising(message: Inspected) -> Inspected:
    raise ValueError(message.payload)


def leaving(message: Inspected) -> Inspected:
    raise RecursionError


def endless(message: Inspected) -> Inspected:
    payload: list[Any] = []
    payload.append(payload)
    return replace(message, payload=payload)


BAD: list[Callable[[Inspected], Any]] = [
    raising,
    leaving,
    endless,
    lambda message: None,
    lambda message: message.payload,
    lambda message: replace(message, payload=object()),
    lambda message: replace(message, headers=["5105105105105100"]),  # type: ignore[arg-type]
    lambda message: replace(message, headers={"a": object()}),
    lambda message: replace(message, errors=("5105105105105100",)),  # type: ignore[arg-type]
    lambda message: replace(message, errors=None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("mask", BAD)
def test_a_mask_that_fails_hides_all(mask: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The log shows no masked value either, not even in an error's text."""
    with override_settings(MQUEUE={"MASK": mask}):
        found = masked(MESSAGE)
    assert found.payload == FAILED
    assert found.headers == {}
    assert [one.error for one in found.errors] == [str(FAILED)]
    assert "5105105105105100" not in repr(found) + caplog.text
    assert "mask failed: topic 'orders'" in caplog.text


@pytest.mark.parametrize("mask", ["no.such.mask", 5])
def test_a_mask_that_is_not_there_hides_all(mask: Any) -> None:
    with override_settings(MQUEUE={"MASK": mask}):
        with pytest.raises(ImproperlyConfigured, match="MASK"):
            conf.mask("orders")
        assert masked(MESSAGE).payload == FAILED


def test_what_was_not_read_whole_is_not_shown() -> None:
    with override_settings(MQUEUE={"MASK": no_card}):
        found = masked(replace(MESSAGE, payload=Cut(b'{"card": 47', is_json=True)))
    assert found.payload == TOO_LONG
    assert found.headers == {}
