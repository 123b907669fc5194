"""Signals of batches, and of handlers that exceed their time limit."""

from __future__ import annotations

import pytest

from django_mqueue import BatchFailure, Delivery, OutgoingMessage, publish, publish_many
from tests.features.time_limits.hanging import LimitedWait
from tests.support.fixtures import with_settings
from tests.support.processes import FAST
from tests.support.running import registered, run
from tests.support.waiting import PATIENCE

from .listening import listening

pytestmark = pytest.mark.django_db(transaction=True)


fast = with_settings(MQUEUE=FAST)


@pytest.mark.parametrize("atomic", [False, True])
def test_each_message_of_a_batch_is_told_by_itself(atomic: bool) -> None:
    def handle(messages: list[Delivery]) -> None:
        if failed := [message for message in messages if message.id == "1" and message.attempt == 1]:
            raise BatchFailure({message: ValueError("no") for message in failed})

    publish_many("t", [OutgoingMessage(n, key="k", id=str(n)) for n in range(3)])
    with listening() as heard, registered("t", handle, batch=True, retry=[0], atomic=atomic):
        run()
    told = {n: [name for name, each in heard.calls if each["id"] == str(n)] for n in range(3)}
    again = ["delivered", "postponed"] if atomic else []
    assert told[1] == ["delivered", "failed", "delivered", "acked"]
    assert told[0] == told[2] == [*again, "delivered", "acked"]
    assert heard.of("failed")[0]["retry_in"] == 0


def test_a_batch_that_fails_as_one_is_told_message_by_message() -> None:
    def handle(messages: list[Delivery]) -> None:
        raise ValueError("no")

    publish_many("t", [OutgoingMessage(n, key="k", id=str(n)) for n in range(2)])
    with listening() as heard, registered("t", handle, batch=True, retry=[0], max_attempts=2):
        run()
    assert heard.names.count("failed") == 4
    assert sorted(told["id"] for told in heard.of("dead_lettered")) == ["0", "1"]


def test_a_handler_that_is_given_up_has_failed_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = LimitedWait(monkeypatch)

    def handle(message: Delivery) -> None:
        if message.attempt == 1:
            leave.wait(PATIENCE)

    publish("t", 1, id="one")
    try:
        with listening() as heard, registered("t", handle, max_runtime=0.5, retry=[0]):
            run(max_messages=2)
            assert heard.names == ["delivered", "failed", "delivered", "acked"]
    finally:
        leave.set()
    assert "TimeLimitExceeded" in heard.of("failed")[0]["error"]
