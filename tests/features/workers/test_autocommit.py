"""Workers send no ``SET autocommit`` between two transactions. Django's rules for commits stay the same."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_mqueue.store.connection.session_variables import lazy_autocommit
from tests.support.shop.models import Sale
from tests.support.transactions import Background

pytestmark = pytest.mark.django_db(transaction=True)


def is_on() -> bool:
    """Return the server's autocommit mode as the client library knows it from the server's last answer."""
    return bool(connection.connection.get_autocommit())


def kill(session: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("KILL %s", [session])


def committed() -> list[int]:
    """Return what another connection sees."""
    with Background(lambda: sorted(Sale.objects.values_list("number", flat=True))) as other:
        return other.result()


def test_it_stays_off_between_two_transactions_and_is_on_after_the_block() -> None:
    connection.ensure_connection()
    with lazy_autocommit("default"):
        for number in (1, 2):
            with transaction.atomic():
                Sale.objects.create(number=number)
            assert not is_on()
            assert connection.get_autocommit(), "Django does not know it"
            assert committed() == list(range(1, number + 1))
    assert is_on()


def test_a_statement_outside_a_transaction_is_committed_at_once() -> None:
    with lazy_autocommit("default"):
        with transaction.atomic():
            Sale.objects.create(number=1)
        Sale.objects.create(number=2)
        assert is_on()
        assert committed() == [1, 2]


def test_a_hook_after_the_commit_is_committed_at_once() -> None:
    with lazy_autocommit("default"):
        with transaction.atomic():
            transaction.on_commit(lambda: Sale.objects.create(number=2))
            Sale.objects.create(number=1)
        assert committed() == [1, 2]


def test_a_rollback_undoes_one_transaction() -> None:
    with lazy_autocommit("default"):
        with transaction.atomic():
            Sale.objects.create(number=1)
        with transaction.atomic():
            Sale.objects.create(number=2)
            transaction.set_rollback(True)
        assert committed() == [1]


def test_a_new_connection_begins_with_autocommit() -> None:
    with lazy_autocommit("default"):
        with transaction.atomic():
            Sale.objects.create(number=1)
        connection.close()
        Sale.objects.create(number=2)
        assert committed() == [1, 2]
        with transaction.atomic():
            Sale.objects.create(number=3)
            assert committed() == [1, 2]
    assert committed() == [1, 2, 3]


def test_a_connection_that_is_lost_at_the_end_is_no_error() -> None:
    with lazy_autocommit("default"):
        with transaction.atomic():
            Sale.objects.create(number=1)
        session = connection.connection.thread_id()
        with Background(lambda: kill(session)) as other:
            other.result()
    connection.close()
    assert committed() == [1]
