"""Requests in users' own tests: ``requests_answered``, its fixture, and ``drain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import TestCase, TransactionTestCase

from django_mqueue import (
    DuplicateMessage,
    HandlerError,
    MQueueError,
    Reject,
    Reply,
    RequestFailed,
    RequestTimeout,
    publish,
    request,
)
from django_mqueue.testing import drain, published, requests_answered
from tests.support.running import registered
from tests.support.shop.models import Sale

from .asking import asked, boxes


def quote(message: Any) -> None:
    """Reply, raise or do nothing, as the payload says."""
    if message.payload == "reject":
        raise Reject("no such article")
    if message.payload == "fail":
        Sale.objects.create(number=message.attempt)
        raise ValueError("not yet")
    if message.payload != "silence":
        Sale.objects.create(number=1)
        message.reply(message.payload * 2, kind="price")


class Helpers:
    """Tests that run in both kinds of test cases."""

    @pytest.fixture(autouse=True)
    def handlers(self) -> Iterator[None]:
        with (
            registered("prices", quote, retry=[0], max_attempts=2),
            registered(
                "outer", lambda message: message.reply(request("prices", message.payload).payload + 1)
            ),
        ):
            yield

    def test_requests_are_answered_by_the_handlers(self) -> None:
        with requests_answered():
            assert request("prices", 2) == Reply(4, "price")
            assert request("prices", 3).payload == 6
        assert Sale.objects.count() == 2
        assert boxes("prices") == []
        assert [message.payload for message in published("prices")] == [2, 3]

    def test_also_those_of_handlers(self) -> None:
        with requests_answered():
            assert request("outer", 2).payload == 5
        assert boxes("prices") == boxes("outer") == []

    def test_who_gets_no_reply_is_told_at_once(self) -> None:
        with requests_answered():
            with pytest.raises(RequestTimeout):
                request("prices", "silence", timeout=3600)
            with pytest.raises(RequestFailed, match="no such article"):
                request("prices", "reject")
            with pytest.raises(RequestFailed, match="not yet"):
                request("prices", "fail")
            with pytest.raises(HandlerError):
                request("nobody", 1)
            assert request("prices", 2).payload == 4
        assert boxes("prices") == boxes("nobody") == []

    def test_to_a_group_that_no_worker_has_registered(self) -> None:
        with requests_answered():
            assert request("prices", 2, group="g").payload == 4

    def test_to_a_new_group_that_starts_at_the_latest(self) -> None:
        with registered("late", quote, start="latest"), requests_answered():
            assert request("late", 2).payload == 4

    def test_a_duplicate_leaves_the_test_usable(self) -> None:
        publish("prices", 2, id="one")
        with requests_answered():
            with pytest.raises(DuplicateMessage):
                request("prices", 2, id="one")
            assert request("prices", 2).payload == 4


class TestInATransaction(Helpers, TestCase):
    """Nothing is ever committed."""

    def test_without_the_helper_it_is_told_of(self) -> None:
        with pytest.raises(MQueueError, match=r"django_mqueue\.testing.requests_answered"):
            request("prices", 1)


class TestWithCommits(Helpers, TransactionTestCase):
    def test_a_requester_in_a_thread_and_drain(self) -> None:
        with asked("prices", 4, timeout=60) as requester:
            while not requester.is_done:
                drain("prices")
            assert requester.result().payload == 8


@pytest.mark.usefixtures("mqueue_requests_answered")
def test_the_fixture() -> None:
    with registered("prices", quote):
        assert request("prices", 2).payload == 4
