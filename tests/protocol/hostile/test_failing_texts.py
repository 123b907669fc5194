"""Exceptions whose text cannot be read, and retry policies that exit.

No thread is lost, and the worker stops in order.
"""

from __future__ import annotations

import pytest

from django_mqueue import Message, Reject, Retry, publish
from django_mqueue.models import DeliveryState
from django_mqueue.workers import executor
from tests.support.running import Seen, registered, run

pytestmark = pytest.mark.django_db(transaction=True)


class Mute:
    """An object without a text: ``str`` and ``repr`` raise."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class MuteError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text either")


def exits(attempt: int) -> float:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "error", [Reject(Mute()), Retry(Mute()), MuteError(), ValueError(Mute())], ids=lambda e: type(e).__name__  # type: ignore[arg-type]
)  # fmt: skip
def test_an_error_that_cannot_be_told_fails_its_message_and_nothing_else(error: Exception) -> None:
    """The attempt fails. The same single thread handles the other messages, and draining ends."""

    def handle(message: Message) -> None:
        if message.payload == "bad":
            raise error

    for payload in ("bad", "good", "better"):
        publish("t", payload, key="k")
    with registered("t", seen := Seen(handle), retry=lambda attempt: 0.01, max_attempts=1):
        run(threads=1)
    assert {"good", "better"} <= set(seen.payloads)
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert DeliveryState.objects.filter(acked=True, failure_count=0).count() == 2


def test_a_retry_policy_that_exits_fails_its_message_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The retry is not due in this run."""
    monkeypatch.setattr(executor, "UNKNOWN_ERROR", executor.UNKNOWN_ERROR._replace(delay=600.0))

    def handle(message: Message) -> None:
        if message.payload == "bad":
            raise ValueError("the handler's own")

    for payload in ("bad", "good"):
        publish("t", payload, key="k")
    with registered("t", seen := Seen(handle), retry=exits, max_attempts=2):
        run(threads=1)
    assert sorted(seen.payloads) == ["bad", "good"]
    state = DeliveryState.objects.get(acked=False)
    assert (state.in_flight, state.failure_count) == (False, 1)
