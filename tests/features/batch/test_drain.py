"""Batch handlers in users' own tests: ``drain``, in a ``TestCase`` and in a ``TransactionTestCase``."""

from __future__ import annotations

import asyncio

from django.db import IntegrityError
from django.test import TestCase, TransactionTestCase

from django_mqueue import BatchFailure, Delivery, OutgoingMessage, Postpone, Reject, publish, publish_many
from django_mqueue.testing import drain, published
from tests.support.running import registered
from tests.support.shop.models import Door, Sale

from .batches import AT_ONCE, LATER, Batches, letters, publish_all, states


class Helpers:
    def test_lists_of_one_partition_until_nothing_is_left(self) -> None:
        publish_many("t", [OutgoingMessage(n, key=f"k{n % 2}") for n in range(14)])
        with registered("t", seen := Batches(), batch=True, batch_size=5):
            handled = drain()
        assert sorted(map(len, seen.given)) == [2, 2, 5, 5]
        assert [m.payload for m in handled] == seen.handled
        assert states() == [(True, 0, 0)] * 14

    def test_failures_in_part(self) -> None:
        publish_all("t", range(5))

        def handle(messages: list[Delivery]) -> None:
            if len(messages) == 5:
                raise BatchFailure(
                    {messages[1]: ValueError("no"), messages[2]: Reject("x"), messages[3]: Postpone(0)}
                )

        with registered("t", seen := Batches(handle), batch=True, retry=AT_ONCE):
            drain()
        assert seen.payloads == [[0, 1, 2, 3, 4], [1, 3]]
        assert states() == [(True, 0, 0), (True, 1, 1), (True, 1, 0), (True, 0, 0), (True, 0, 0)]
        assert letters("t") == {b"2": "x"}

    def test_atomic_ones_in_part(self) -> None:
        publish_all("t", range(3))

        def handle(messages: list[Delivery]) -> None:
            for message in messages:
                Sale.objects.create(number=message.payload)
            publish("next", [message.payload for message in messages])
            if bad := {m: ValueError("bad") for m in messages if m.payload == 1}:
                raise BatchFailure(bad)

        with registered("t", seen := Batches(handle), batch=True, atomic=True, retry=LATER):
            drain()
        assert seen.payloads == [[0, 1, 2], [0, 2]]
        assert sorted(Sale.objects.values_list("number", flat=True)) == [0, 2]
        assert [message.payload for message in published("next")] == [[0, 2]]
        assert states() == [(True, 0, 0), (False, 1, 0), (True, 0, 0)]

    def test_a_database_error_is_of_its_batch_alone(self) -> None:
        Door.objects.create(name="front")
        publish_all("t", [1, 2])

        def handle(messages: list[Delivery]) -> None:
            Sale.objects.create(number=1)
            Door.objects.create(name="front")

        with registered("t", handle, batch=True, retry=None):
            drain()
        assert IntegrityError.__name__ in letters("t")[b"1"]
        assert states() == [(True, 1, 0)] * 2

    def test_an_async_handler_is_cancelled(self) -> None:
        publish_all("t", range(2))

        async def handle(messages: list[Delivery]) -> None:
            await asyncio.sleep(30)

        with registered("t", handle, batch=True, max_runtime=0.05, retry=LATER):
            drain()
        assert states() == [(False, 1, 0)] * 2


class TestInATransaction(Helpers, TestCase): ...


class TestWithCommits(Helpers, TransactionTestCase): ...
