"""At REPEATABLE READ: replies in transactions whose snapshot shows an earlier state of the box."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_mqueue import Reply, Subscription
from tests.support.processes import database_ms
from tests.support.shop.models import Sale
from tests.support.transactions import Background, HeldTransaction

from .asking import asked, boxes, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("repeatable_read")]


def test_a_second_group_s_reply_is_none_at_once() -> None:
    with Subscription("prices", "one") as first, Subscription("prices", "two") as second:
        requester = asked("prices", 1, timeout=60).start()
        mine, other = one(first), one(second)
        deadline = boxes("prices")[0].available_at
        with transaction.atomic():
            assert not Sale.objects.exists()
            with Background(lambda: other.reply("two")) as background:
                assert background.result() is True
            assert requester.result() == Reply("two")
            assert mine.reply("one") is False
            assert database_ms() < deadline


def test_a_second_reply_in_the_same_transaction_is_none_at_once() -> None:
    with Subscription("prices", "one") as subscription:
        requester = asked("prices", 1, timeout=60).start()
        delivery = one(subscription)
        deadline = boxes("prices")[0].available_at
        with transaction.atomic():
            assert not Sale.objects.exists()
            assert (delivery.reply("first"), delivery.reply("second")) == (True, False)
            assert database_ms() < deadline
        assert requester.result() == Reply("first")


def test_the_second_of_two_groups_at_once_counts_if_the_first_is_rolled_back() -> None:
    with Subscription("prices", "one") as first, Subscription("prices", "two") as second:
        requester = asked("prices", 1).start()
        mine, other = one(first), one(second)

        def reply() -> bool:
            with transaction.atomic():
                assert not Sale.objects.exists()
                return other.reply("two")

        with HeldTransaction(lambda: mine.reply("one")) as held, Background(reply) as background:
            assert background.keeps_trying()
            held.rollback()
            assert background.result() is True
        assert requester.result() == Reply("two")
    assert boxes("prices") == []
