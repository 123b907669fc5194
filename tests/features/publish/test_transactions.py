"""A message exists exactly when the transaction that published it commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import OperationalError, connection, transaction

from django_mqueue import DuplicateMessage, OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import Message
from tests.support.subscribers import consume, in_log
from tests.support.threads import lost_after_its_commit
from tests.support.transactions import HeldTransaction, rolled_back

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"

WAYS: dict[str, Callable[[], list[int]]] = {
    "publish": lambda: [publish(TOPIC, 1, key="k").offset],
    "publish with an id": lambda: [publish(TOPIC, 1, key="k", id="mine").offset],
    "publish_many": lambda: [one.offset for one in publish_many(TOPIC, range(700))],
    "publish_many with ids": lambda: [
        one.offset for one in publish_many(TOPIC, [OutgoingMessage(n, key="k", id=str(n)) for n in range(3)])
    ],
}


class Undo(Exception):
    pass


@pytest.mark.parametrize("way", WAYS)
def test_a_rollback_publishes_nothing(way: str) -> None:
    """Nothing is stored, and the same messages can be published again."""
    with rolled_back():
        ContentType.objects.create(app_label="bookshop", model="order")
        WAYS[way]()
    assert not Message.objects.exists()
    assert not ContentType.objects.filter(app_label="bookshop").exists()
    offsets = WAYS[way]()
    assert in_log(TOPIC) == sorted(offsets)


@pytest.mark.parametrize("way", WAYS)
def test_a_commit_publishes_all_with_the_callers_rows(way: str) -> None:
    """Others see neither of them before the commit, and both after it."""

    def order() -> list[int]:
        ContentType.objects.create(app_label="bookshop", model="order")
        return WAYS[way]()

    with HeldTransaction(order) as held:
        assert not Message.objects.exists()
        assert not ContentType.objects.filter(app_label="bookshop").exists()
        offsets = held.commit()
    assert in_log(TOPIC) == sorted(offsets)
    assert ContentType.objects.filter(app_label="bookshop").exists()


@pytest.mark.parametrize("way", WAYS)
def test_outside_a_transaction_a_publish_commits_by_itself(way: str) -> None:
    """Every other connection sees the messages as soon as the call returns."""
    offsets = WAYS[way]()
    with HeldTransaction(lambda: in_log(TOPIC)) as other:
        assert other.result() == sorted(offsets)


def test_nested_atomic_blocks_commit_with_the_outermost() -> None:
    """Inner blocks that succeed commit nothing by themselves."""

    def nested() -> None:
        publish(TOPIC, "outer", key="k")
        with transaction.atomic():
            publish(TOPIC, "inner", key="k")
            with transaction.atomic(savepoint=False):
                publish_many(TOPIC, ["innermost"])

    with HeldTransaction(nested) as held:
        assert in_log(TOPIC) == []
        held.commit()
    assert len(in_log(TOPIC)) == 3


def test_an_outer_rollback_takes_the_inner_publishes_with_it() -> None:
    """An inner block's success is no commit."""
    with rolled_back(), transaction.atomic():
        publish(TOPIC, "inner", key="k")
    assert in_log(TOPIC) == []


def test_a_rollback_to_a_savepoint_takes_only_what_came_after_it() -> None:
    """Messages before and after the failed block are published in order. The failed block publishes nothing."""
    subscribe(TOPIC, "billing")
    with transaction.atomic():
        publish(TOPIC, "before", key="k")
        with rolled_back():
            publish(TOPIC, "lost", key="k")
            publish_many(TOPIC, [OutgoingMessage("lost", key="k")] * 3)
        publish(TOPIC, "after", key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        assert [d.payload for d in consume(subscription, 2)] == ["before", "after"]


def test_a_publish_after_a_rollback_to_the_first_savepoint_is_published() -> None:
    """The rollback to the savepoint releases the gate's lock. The next publish takes it again."""
    subscribe(TOPIC, "billing")
    with transaction.atomic():
        with rolled_back():
            publish(TOPIC, "lost", key="k")
        publish(TOPIC, "kept", key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        assert [d.payload for d in consume(subscription, 1)] == ["kept"]


def test_an_id_rolled_back_to_a_savepoint_is_free_again() -> None:
    """The same transaction can publish the id again."""
    with transaction.atomic():
        with rolled_back():
            assert publish(TOPIC, 1, key="k", id="mine").created
        assert publish(TOPIC, 2, key="k", id="mine").created
    assert len(in_log(TOPIC)) == 1


def test_a_refused_duplicate_leaves_the_callers_transaction_usable() -> None:
    """``DuplicateMessage`` is no database error, so the transaction commits everything else."""
    publish(TOPIC, 1, key="k", id="mine")
    with transaction.atomic():
        with pytest.raises(DuplicateMessage):
            publish(TOPIC, 2, key="k", id="mine", on_duplicate="error")
        publish(TOPIC, 3, key="k")
    assert len(in_log(TOPIC)) == 2


def test_bad_input_leaves_the_callers_transaction_usable() -> None:
    """The error is raised before any SQL."""
    with transaction.atomic():
        with pytest.raises(ValueError, match="key"):
            publish(TOPIC, 1, key="")
        with pytest.raises(TypeError, match="payload"):
            publish_many(TOPIC, [1, object()])
        publish(TOPIC, 3, key="k")
    assert len(in_log(TOPIC)) == 1


def test_publish_many_outside_a_transaction_is_all_or_nothing() -> None:
    """700 rows take two statements. If the second one fails, the rows of the first one are rolled back."""
    failed: list[str] = []

    def fail_the_second(execute: Callable[..., object], sql: str, *rest: object) -> object:
        if sql.startswith("INSERT INTO queue_messages"):
            failed.append(sql)
            if len(failed) == 2:
                raise Undo
        return execute(sql, *rest)

    with pytest.raises(Undo), connection.execute_wrapper(fail_the_second):
        publish_many(TOPIC, range(700))
    assert len(failed) == 2
    assert in_log(TOPIC) == []


def test_publishing_with_autocommit_off_waits_for_the_callers_commit() -> None:
    """The same holds for a caller that manages its transaction without ``atomic``."""
    connection.set_autocommit(False)
    try:
        publish(TOPIC, 1, key="k")
        publish_many(TOPIC, [2, 3])
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    assert in_log(TOPIC) == []


def test_a_connection_that_is_lost_after_its_commit_is_not_taken_for_a_transaction() -> None:
    """Django has not turned autocommit on again at that point. The next publish must not wait for a caller's COMMIT."""
    with lost_after_its_commit(), pytest.raises(OperationalError):
        publish_many(TOPIC, range(700))
    publish_many(TOPIC, range(700))
    assert len(in_log(TOPIC)) == 1400
    assert transaction.get_autocommit()
