"""Signals in users' own tests: in a ``TestCase``, which commits nothing, and in a ``TransactionTestCase``."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection
from django.test import TestCase, TransactionTestCase

from django_mqueue import Message, Reject, publish
from django_mqueue.models import DeliveryState
from django_mqueue.testing import drain
from tests.support.running import Seen, registered
from tests.support.shop.models import Door

from .listening import LEASES, listening


def reject(message: Message) -> None:
    raise Reject("no")


class Draining:
    """Tests that run in both kinds of test cases."""

    def test_what_drain_does_is_told_before_it_returns(self) -> None:
        publish("t", 1, id="one")
        publish("bad", 2, id="two")
        with listening() as heard, registered("t", Seen()), registered("bad", reject):
            drain()
            told = [(name, each["id"]) for name, each in heard.calls]
        assert sorted(told) == [
            ("acked", "one"), ("dead_lettered", "two"), ("delivered", "one"), ("delivered", "two"), ("failed", "two"),
        ]  # fmt: skip
        assert told.index(("delivered", "one")) < told.index(("acked", "one"))
        assert heard.threads == {threading.current_thread().name}

    def test_leases_are_told_too(self) -> None:
        publish("t", 1, key="k")
        with listening(*LEASES) as heard, registered("t", Seen()):
            drain()
        assert heard.names == ["lease_won", "lease_lost"]

    def test_receivers_that_fail_break_neither_the_drain_nor_the_test(self) -> None:
        """The receiver raises a database error, which normally makes Django's transaction unusable."""

        def fail(**arguments: Any) -> None:
            Door.objects.create(name="once")
            Door.objects.create(name="once")

        publish("t", 1)
        publish("t", 2)
        with listening(then=fail) as heard, registered("t", Seen(), atomic=True):
            drain()
        assert heard.names.count("acked") == 2
        assert DeliveryState.objects.filter(acked=True).count() == 2

    def test_receivers_see_what_the_handler_wrote_and_run_in_no_transaction_of_its(self) -> None:
        depths: list[int] = []

        def look(**arguments: Any) -> None:
            depths.append(len(connection.savepoint_ids))

        publish("t", 1)
        with listening(then=look), registered("t", Seen(), atomic=True):
            drain()
        assert len(set(depths)) == 1


class TestDrainingInATestCase(Draining, TestCase):
    def test_a_publish_is_told_to_who_captures_on_commit_callbacks(self) -> None:
        with listening() as heard:
            with self.captureOnCommitCallbacks() as callbacks:
                publish("t", 1)
            assert heard.calls == []
            assert callbacks, "the signal waits for the commit"
            with self.captureOnCommitCallbacks(execute=True):
                publish("t", 2, id="two")
        assert [told["id"] for told in heard.of("published")] == ["two"]


@pytest.mark.django_db(transaction=True)
class TestDrainingInATransactionTestCase(Draining, TransactionTestCase):
    def test_a_publish_is_told_at_once(self) -> None:
        with listening() as heard:
            publish("t", 1)
            assert heard.names == ["published"]
