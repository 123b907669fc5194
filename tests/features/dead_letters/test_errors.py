"""The error of a failure is kept, whatever its text. Bad arguments of a settlement are refused."""

from __future__ import annotations

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import DeliveryState, Message
from tests.support.subscribers import consume, poll_until
from tests.support.transactions import statements

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, DEAD = "orders", "orders_dlq"

ERRORS = [
    "",
    "plain",
    "line\nand\ttab, \"quotes\", 'quotes', \\ backslash, %s and %",
    "".join(map(chr, range(32))) + "\x7f\x85\u2028",
    "🦉 עברית 中文",
    '{"looks": "like JSON"}',
]


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_the_error_says_is_kept(error: str) -> None:
    """The retried message has the error, and so has its dead letter."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing", max_attempts=2) as subscription:
        poll_until(subscription, 1)[0].nack(error=error)
        (again,) = poll_until(subscription, 1)
        assert again.last_error == error
        again.nack(error=error)
    with Subscription(DEAD, group="watchers") as subscription:
        (letter,) = consume(subscription, 1)
    assert letter.last_error == error
    assert Message.objects.get(topic=DEAD).last_error == error


def test_an_error_that_cannot_be_stored_does_not_keep_a_message_from_being_given_up() -> None:
    """Lone surrogates, for example from a file name in a traceback, are replaced. A long text loses its middle."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(2)])
    with Subscription(TOPIC, group="billing", max_attempts=2) as subscription:
        for _ in range(2):
            first, second = poll_until(subscription, 2)
            first.nack(error="cannot open \ud800.txt")
            second.nack(error="begin" + "🦉" * 100_000 + "end")
    with Subscription(DEAD, group="watchers") as subscription:
        one, other = consume(subscription, 2)
    assert one.last_error.startswith("cannot open ")
    assert other.last_error.startswith("begin")
    assert other.last_error.endswith("end")
    assert len(other.last_error.encode()) <= 4096


def test_only_the_newest_errors_are_kept() -> None:
    """A message that fails for weeks does not keep growing."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing", max_attempts=100) as subscription:
        for attempt in range(1, 16):
            (delivery,) = poll_until(subscription, 1)
            delivery.nack(error=f"error {attempt}")
    errors = DeliveryState.objects.get().errors or []
    assert [one["error"] for one in errors] == [f"error {n}" for n in range(6, 16)]
    assert [one["attempt"] for one in errors] == list(range(6, 16))


BAD_ANSWERS: list[tuple[str, dict[str, object]]] = [
    ("nack", {"delay": -1}),
    ("nack", {"delay": "1"}),
    ("nack", {"delay": float("nan")}),
    ("nack", {"error": None}),
    ("nack", {"error": b"bytes"}),
    ("reject", {"reason": 5}),
    ("postpone", {"delay": -1}),
    ("postpone", {"delay": None}),
    ("extend", {"seconds": -1}),
    ("extend", {"seconds": "1"}),
    ("extend", {"seconds": 1e12}),
]


@pytest.mark.parametrize(("verb", "arguments"), BAD_ANSWERS)
def test_a_bad_answer_is_refused_and_changes_nothing(verb: str, arguments: dict[str, object]) -> None:
    """The error names the argument and is raised before any SQL. The delivery can still be acked."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
        with statements() as seen, pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
            getattr(delivery, verb)(**arguments)
        assert seen == []
        assert delivery.ack()
