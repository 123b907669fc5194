"""``filter=``: messages that a handler does not want are acked unread."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from django_mqueue import Message, consumer, publish
from django_mqueue.models import DeliveryState
from tests.support.running import Seen, registered, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

ORDERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"n": 0, "customer": {"id": 7}, "lines": [{"sku": "a"}]}, {"type": "order"}),
    ({"n": 1, "customer": {"id": 8}, "lines": []}, {"type": "invoice"}),
    ({"n": 2, "customer": {"id": 7}, "paid": True}, {"type": "invoice", "urgent": 1}),
    ({"n": 3, "customer": None, "paid": 1}, {}),
]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ({"type": "invoice"}, [1, 2]),
        ({"type": {"invoice", "order"}}, [0, 1, 2]),
        ({"payload__customer__id": 7}, [0, 2]),
        ({"payload__customer__id": 7, "type": "order"}, [0]),
        ({"payload__lines__0__sku": "a"}, [0]),
        ({"payload__lines__1__sku": "a"}, []),
        ({"payload__lines": []}, [1]),
        ({"payload__customer": None}, [3]),
        ({"payload__paid": True}, [2]),
        ({"payload__paid": 1}, [3]),
        ({"urgent": 1}, [2]),
        ({"urgent": None}, []),
        ({"payload__nowhere": None}, []),
        (lambda message: message.payload["n"] % 2 == 0, [0, 2]),
        (lambda message: message.headers.get("type"), [0, 1, 2]),
    ],
)
def test_what_matches_is_handled_and_the_rest_is_done(wanted: Any, taken: list[int]) -> None:
    for payload, headers in ORDERS:
        publish("t", payload, headers=headers)
    seen = Seen()
    with registered("t", seen, filter=wanted):
        run()
    assert sorted(message.payload["n"] for message in seen.messages) == taken
    assert list(DeliveryState.objects.values_list("acked", "failure_count")) == [(True, 0)] * 4


def test_bytes_match_no_path() -> None:
    publish("t", b"\x00")
    publish("t", "text")
    seen = Seen()
    with registered("t", seen, filter={"payload__n": 1}):
        run()
    assert (seen.messages, DeliveryState.objects.filter(acked=True).count()) == ([], 2)


def test_a_filter_that_raises_is_a_failed_attempt() -> None:
    publish("t", 1)
    seen = Seen()
    with registered("t", seen, filter=lambda message: message.payload["n"], retry=None):
        run()
    (state,) = DeliveryState.objects.all()
    assert (state.failure_count, seen.messages) == (1, [])
    assert "not subscriptable" in (state.errors or [])[0]["error"]


def test_with_strict_order_and_atomic() -> None:
    for number in range(6):
        publish("t", number, key="k")
    seen = Seen()
    with registered("t", seen, filter=odd, strict=True, atomic=True):
        run()
    assert seen.payloads == [1, 3, 5]


def odd(message: Message) -> bool:
    return bool(message.payload % 2)


@pytest.mark.parametrize(
    ("wanted", "error", "match"),
    [
        ("type", TypeError, "filter must be a mapping or a callable"),
        ({}, ValueError, "filter is empty, but must name"),
        ({1: 2}, TypeError, "filter's keys must be names"),
        ({"payload__": 2}, ValueError, "empty part"),
        ({"payload__a____b": date.min}, ValueError, "empty part"),
    ],
)
def test_bad_filters(wanted: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        consumer("t", group="g", filter=wanted)
