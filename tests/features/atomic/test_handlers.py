"""``@consumer(atomic=True)`` commits a handler's writes, its publishes and its ack together, or none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError
from django.db import IntegrityError, OperationalError, connection, transaction

from django_mqueue import Delivery, NoRetry, Postpone, Reject, Retry, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Door, Sale
from tests.support.steps import equal_counts, sold
from tests.support.subscribers import let_leases_expire, payloads_in_log, take_leases_away
from tests.support.threads import Background, RawConnection, raw_connection
from tests.support.transactions import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("fast"),
]


def sell(message: Delivery) -> None:
    Sale.objects.create(number=message.payload)
    publish("sold", message.payload)


def attempts() -> list[tuple[bool, int]]:
    """Return (acked, failures) of each delivery."""
    return list(DeliveryState.objects.order_by("message_offset").values_list("acked", "failure_count"))


def errors() -> list[str]:
    return [error["error"] for state in DeliveryState.objects.all() for error in state.errors or []]


def test_effects_publishes_and_ack_are_one_commit() -> None:
    """Another connection sees equal numbers of sales, acks and messages at any time while the handlers run."""
    publish_many("orders", range(100))
    with equal_counts() as wait_for_a_look:

        def sell_watched(message: Delivery) -> None:
            """Keep the sale uncommitted until the other connection has read at least once."""
            sell(message)
            wait_for_a_look()

        with registered("orders", sell_watched, atomic=True):
            run()
    assert sold() == list(range(100))
    assert sorted(map(int, payloads_in_log("sold"))) == list(range(100))
    assert attempts() == [(True, 0)] * 100


def test_a_commit_hook_may_write_to_another_database() -> None:
    """The handler itself may not, because that write would not be undone with it."""

    def handle(message: Delivery) -> None:
        sell(message)
        transaction.on_commit(lambda: Sale.objects.using("other").create(number=message.payload))

    publish("orders", 1)
    with registered("orders", handle, atomic=True):
        run()
    assert sold() == list(Sale.objects.using("other").values_list("number", flat=True)) == [1]


def test_no_commit_of_its_own_for_the_ack() -> None:
    """The worker writes the ack at the end of the handler's transaction.

    The handler still reads an open state, and a commit hook reads an acked one.
    """
    publish("orders", 1)
    seen: list[list[tuple[bool, int]]] = []

    def handle(message: Delivery) -> None:
        sell(message)
        transaction.on_commit(lambda: seen.append(attempts()))
        seen.append(attempts())

    with registered("orders", handle, atomic=True):
        run()
    assert seen == [[(False, 0)], [(True, 0)]]


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (ValueError("no"), [(False, 1)]),
        (Retry("later", delay=600), [(False, 1)]),
        (Postpone(600), [(False, 0)]),
        (Reject("never"), [(True, 1)]),
        (SystemExit(1), [(False, 1)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_a_handler_that_raises_nothing_stays(error: BaseException, left: list[tuple[bool, int]]) -> None:
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        sell(message)
        raise error

    with registered("orders", handle, atomic=True, retry=lambda attempt: 600):
        run()
    assert (sold(), payloads_in_log("sold"), attempts()) == ([], [], left)


def test_a_failed_attempt_leaves_nothing_and_the_next_one_counts() -> None:
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        sell(message)
        if message.attempt < 3:
            raise ValueError("not yet")

    with registered("orders", handle, atomic=True, retry=[0]):
        run()
    assert (sold(), attempts()) == ([1], [(True, 2)])
    assert len(payloads_in_log("sold")) == 1


@pytest.mark.parametrize("durable", [False, True])
def test_nested_atomic_blocks(durable: bool) -> None:
    """Nested blocks are savepoints and can fail on their own.

    Django refuses a durable block, because it must be outermost.
    """
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        Sale.objects.create(number=1)
        try:
            with transaction.atomic():
                Sale.objects.create(number=2)
                raise KeyError
        except KeyError:
            pass
        with transaction.atomic(durable=durable):
            Sale.objects.create(number=3)

    with registered("orders", handle, atomic=True, retry=None):
        run()
    if durable:
        assert sold() == []
        assert "durable" in errors()[0]
    else:
        assert (sold(), attempts()) == ([1, 3], [(True, 0)])


def test_a_duplicate_key_in_a_nested_block_may_be_kept_to_oneself() -> None:
    Door.objects.create(name="front")
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        try:
            with transaction.atomic():
                Door.objects.create(name="front")
        except IntegrityError:
            sell(message)

    with registered("orders", handle, atomic=True):
        run()
    assert (sold(), attempts()) == ([1], [(True, 0)])


def test_an_async_handler() -> None:
    publish("orders", 1)

    async def handle(message: Delivery) -> None:
        await Sale.objects.acreate(number=1)
        await sync_to_async(publish)("sold", 1)
        if message.attempt == 1:
            raise ValueError("not yet")

    with registered("orders", handle, atomic=True, retry=[0]):
        run()
    assert (sold(), len(payloads_in_log("sold")), attempts()) == ([1], 1, [(True, 1)])


def commits(message: Delivery) -> None:
    with connection.cursor() as cursor:
        cursor.execute("COMMIT")


def rolls_back(message: Delivery) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


def makes_a_table(message: Delivery) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop_made_by_a_handler (id INT)")
        cursor.execute("DROP TABLE shop_made_by_a_handler")


def calls_a_procedure(message: Delivery) -> None:
    """Django passes ``callproc`` to no ``execute_wrapper``."""
    with connection.cursor() as cursor:
        cursor.callproc("shop_commits")


def uses_the_driver(message: Delivery) -> None:
    with connection.connection.cursor() as cursor:
        cursor.execute("COMMIT")


@pytest.fixture
def procedure() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE PROCEDURE shop_commits() COMMIT")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP PROCEDURE shop_commits")


@pytest.mark.usefixtures("procedure")
@pytest.mark.parametrize("ending", [commits, rolls_back, makes_a_table, calls_a_procedure, uses_the_driver])
def test_a_handler_that_ends_the_transaction_itself_is_found_out(ending: Callable[[Delivery], None]) -> None:
    """The attempt fails, and the worker rolls back what the handler wrote after that."""
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        ending(message)
        sell(message)

    with registered("orders", handle, atomic=True, retry=NoRetry()):
        run()
    assert (sold(), payloads_in_log("sold"), attempts()) == ([], [], [(True, 1)])
    (error,) = errors()
    assert error.startswith("django_mqueue.exceptions.BrokenTransaction")
    assert "COMMIT or ROLLBACK" in error


def test_a_deadlock_that_the_handler_keeps_to_itself() -> None:
    """The handler catches the error after the server rolled back its writes.

    The attempt fails, and none of its later writes stay.
    """
    Sale.objects.bulk_create(Sale(number=number) for number in (101, 102))
    first, second = Sale.objects.order_by("id").values_list("id", flat=True)
    publish("orders", 1)
    met: list[int] = []

    def handle(message: Delivery) -> None:
        sell(message)
        if message.attempt > 1:
            return
        with raw_connection() as other:
            # This connection has changed more rows, so the server rolls back the handler.
            other.execute("UPDATE shop_sale SET number = number WHERE id = %s", [second])
            for _ in range(50):
                other.execute("INSERT INTO shop_sale (number) VALUES (0)")
            Sale.objects.filter(id=first).update(number=7)
            met.append(deadlock_with(other, first, second))
            other.rollback()
        Sale.objects.create(number=8)

    with registered("orders", handle, atomic=True, retry=[0]):
        run()
    assert met == [1213]
    assert sold() == [1, 101, 102]
    assert attempts() == [(True, 1)]
    assert errors()[0].startswith("django_mqueue.exceptions.BrokenTransaction")


def deadlock_with(other: RawConnection, first: int, second: int) -> int:
    """Update a row that closes a deadlock with the other connection. Return the number of the error, or 0."""
    waiting = Background(
        lambda: other.execute("UPDATE shop_sale SET number = 0 WHERE id = %s", [first]),
        connection_id=other.connection_id,
    ).start()
    try:
        assert waiting.is_blocked
        with connection.cursor() as cursor:
            cursor.execute("UPDATE shop_sale SET number = 9 WHERE id = %s", [second])
    except OperationalError as error:
        return int(error.args[0])
    finally:
        waiting.join()
    return 0


def test_a_write_to_another_database_is_refused_before_it_is_made() -> None:
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        assert Sale.objects.using("other").count() == 0  # Reading is allowed.
        sell(message)
        Sale.objects.using("other").create(number=1)

    with registered("orders", handle, atomic=True, retry=None):
        run()
    assert (sold(), Sale.objects.using("other").count(), attempts()) == ([], 0, [(True, 1)])
    (error,) = errors()
    assert error.startswith("django_mqueue.exceptions.WrongDatabase")
    assert "MQUEUE['DATABASE']" in error


def test_without_atomic_other_databases_are_nobodys_business() -> None:
    publish("orders", 1)
    with registered("orders", lambda message: Sale.objects.using("other").create(number=1)):
        run()
    assert Sale.objects.using("other").count() == 1


def test_a_hook_that_fails_after_the_commit_changes_nothing() -> None:
    """The message stays acked, and the error is in the log."""
    publish("orders", 1)

    def handle(message: Delivery) -> None:
        sell(message)
        transaction.on_commit(lambda: 1 // 0)

    with registered("orders", handle, atomic=True):
        output = run()
    assert (sold(), attempts()) == ([1], [(True, 0)])
    assert "stopped: ack 1" in output


def test_a_delivery_that_was_lost_rolls_everything_back() -> None:
    """The lease is stolen while the handler runs. Its sale is rolled back, and the sale of the next delivery stays."""
    subscribe("orders", "g")
    publish("orders", 1, key="k")
    seen = Seen()

    def handle(message: Delivery) -> None:
        seen(message)
        sell(message)
        if message.attempt == 1:
            take_leases_away()

    with registered("orders", handle, atomic=True):
        with pytest.raises(CommandError, match="other workers have leased their partitions"):
            run(drain_timeout=0.1)
        assert ([message.attempt for message in seen.messages], sold()) == ([1], [])
        let_leases_expire()
        run()
    assert [message.attempt for message in seen.messages] == [1, 2]
    assert (sold(), len(payloads_in_log("sold"))) == ([1], 1)
    assert DeliveryState.objects.get().acked


@pytest.mark.parametrize("atomic", [True, False])
def test_a_handler_that_asks_for_more_time_does_not_hold_up_its_worker(atomic: bool) -> None:
    """The handler extends in a transaction that stays open until its end.

    Meanwhile the worker handles other messages.
    """
    publish("orders", 0, key="a")
    seen = Seen()

    def handle(message: Delivery) -> None:
        seen(message)
        if message.payload == 0:
            with transaction.atomic():
                message.extend(0.05)
                state = DeliveryState.objects.filter(message_offset=message.offset)
                asked = state.get().invisible_until
                if not atomic:  # The worker extends no delivery of an atomic handler.
                    wait_until(lambda: state.get().invisible_until > asked, "its worker extends it further")
                Background(lambda: publish_many("orders", range(1, 4))).start().result()
                wait_until(lambda: len(seen.messages) == 4, "the others are handled meanwhile")

    with registered("orders", handle, atomic=atomic, visibility_timeout=3, retry=None):
        run(threads=2)
    assert attempts() == [(True, 0)] * 4


def test_what_does_not_need_the_database_is_one_commit_too() -> None:
    publish_many("orders", range(5))
    with registered("orders", lambda message: None, atomic=True):
        run()
    assert attempts() == [(True, 0)] * 5
