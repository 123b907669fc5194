"""A message whose transaction commits after later messages were consumed and collected is still delivered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_mqueue import OutgoingMessage, publish, publish_many
from django_mqueue.store import gates
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

from .scenario import KEY, TOPIC, assert_nothing_lost, late_commit

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE=QUICK)


class Publishers:
    """Start late publishers, and end all that a failed test left open."""

    def __init__(self) -> None:
        self.open: list[HeldTransaction[object]] = []

    def held(self, work: object, isolation: str = "READ COMMITTED") -> HeldTransaction[object]:
        transaction: HeldTransaction[object] = HeldTransaction(work, isolation=isolation)  # type: ignore[arg-type]
        self.open.append(transaction)
        return transaction.__enter__()

    def end(self) -> None:
        for transaction in self.open:
            transaction.__exit__(None, None, None)


@pytest.fixture
def publishers() -> Iterator[Publishers]:
    started = Publishers()
    yield started
    started.end()


class BehindADuplicate:
    """A publisher that has its offset, and waits for another uncommitted message with its id."""

    def __init__(self, publishers: Publishers) -> None:
        self.first = publishers.held(lambda: publish(TOPIC, "first", key=KEY, id="a"))
        self.second = Background(lambda: publish(TOPIC, "late", key=KEY, id="a"))
        self.second.start()
        wait_for_lock_wait(self.second)

    def commit(self) -> None:
        """Roll back the other publisher, so that this publisher commits."""
        self.first.rollback()
        assert self.second.result().created
        self.second.join()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_late_commit_is_delivered(publishers: Publishers, isolation: str) -> None:
    """The publisher's transaction may have any isolation level."""
    told = late_commit(
        lambda: publishers.held(lambda: publish(TOPIC, "late", key=KEY), isolation), expected=["late"]
    )
    assert_nothing_lost(told, ["late"])


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """Set REPEATABLE READ, the server's default, for all connections of the project."""
    options = connection.settings_dict["OPTIONS"]
    usual = options["isolation_level"]
    options["isolation_level"] = "repeatable read"
    connection.close()
    yield
    options["isolation_level"] = usual
    connection.close()


@pytest.mark.usefixtures("repeatable_read")
def test_a_late_commit_is_delivered_where_everybody_reads_repeatably(publishers: Publishers) -> None:
    """Workers and publishers connect with REPEATABLE READ. The queue's own transactions set READ COMMITTED."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert connection.isolation_level == "repeatable read"  # type: ignore[attr-defined]
    told = late_commit(lambda: publishers.held(lambda: publish(TOPIC, "late", key=KEY)), expected=["late"])
    assert_nothing_lost(told, ["late"])


def test_a_commit_later_than_any_interval_is_delivered(publishers: Publishers) -> None:
    """The publisher stays open for many collections and settlings. Time does not matter."""
    told = late_commit(
        lambda: publishers.held(lambda: publish(TOPIC, "late", key=KEY)), expected=["late"], open_for=3.5
    )
    assert_nothing_lost(told, ["late"])


def test_a_commit_later_than_the_gates_whole_cycle_is_delivered(
    publishers: Publishers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycle of slots starts again while the publisher still holds its slot. It is shorter here, for all sides."""
    monkeypatch.setattr(gates, "SLOT_MS", 50)
    cycle = gates.SLOTS * gates.SLOT_MS / 1000
    told = late_commit(
        lambda: publishers.held(lambda: publish(TOPIC, "late", key=KEY)),
        expected=["late"],
        open_for=cycle + 1,
    )
    assert_nothing_lost(told, ["late"])


def test_a_late_multi_row_publish_is_delivered_whole(publishers: Publishers) -> None:
    """A multi-row INSERT gets all its offsets at its start."""
    payloads = [f"late-{n}" for n in range(700)]
    messages = [OutgoingMessage(payload, key=KEY) for payload in payloads]
    told = late_commit(lambda: publishers.held(lambda: publish_many(TOPIC, messages)), expected=payloads)
    assert_nothing_lost(told, payloads)


def test_a_publisher_that_waited_on_a_duplicate_id_is_delivered(publishers: Publishers) -> None:
    """The publisher got its offset before it waited. While it waited, its row was not visible."""
    told = late_commit(lambda: BehindADuplicate(publishers), expected=["late"], early_id="z")
    assert_nothing_lost(told, ["late"])


def test_several_late_commits_in_whatever_order_are_delivered(publishers: Publishers) -> None:
    """Three transactions overlap. The transaction that began last commits first, and another rolls back."""

    class Three:
        def __init__(self) -> None:
            self.held = [publishers.held(lambda n=n: publish(TOPIC, f"late-{n}", key=KEY)) for n in range(3)]

        def commit(self) -> None:
            self.held[2].commit()
            self.held[1].rollback()
            self.held[0].commit()

    told = late_commit(Three, expected=["late-0", "late-2"])
    assert sorted(told.late) == ["late-0", "late-2"]
    assert told.left_in_log == told.left_in_state == []


class TestWithoutTheGuard:
    """The same scenarios with every slot reported as free. The message is lost, so the gate is what protects it."""

    @pytest.fixture(autouse=True)
    def no_guard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gates, "free_slots", lambda cursor, candidates: set(candidates))

    def tell_and_lose(self, begin: object, early_id: str | None = None) -> None:
        told = late_commit(begin, expected=[], early_id=early_id)  # type: ignore[arg-type]
        assert told.early == ["early"]
        assert told.kept_meanwhile == [], "what was done was collected at once"
        assert told.late == [], "the late message was delivered without the guard: this test proves nothing"

    def test_a_late_commit_is_lost(self, publishers: Publishers) -> None:
        self.tell_and_lose(lambda: publishers.held(lambda: publish(TOPIC, "late", key=KEY)))

    def test_a_late_multi_row_publish_is_lost(self, publishers: Publishers) -> None:
        messages = [OutgoingMessage("late", key=KEY)] * 3
        self.tell_and_lose(lambda: publishers.held(lambda: publish_many(TOPIC, messages)))

    def test_a_publisher_that_waited_on_a_duplicate_id_is_lost(self, publishers: Publishers) -> None:
        self.tell_and_lose(lambda: BehindADuplicate(publishers), early_id="z")


def test_a_rolled_back_publisher_holds_nothing_back(publishers: Publishers) -> None:
    """Its offset stays a hole for ever. After the rollback, all later messages are settled and collected."""

    class RolledBack:
        def __init__(self) -> None:
            self.held = publishers.held(lambda: publish(TOPIC, "never", key=KEY))

        def commit(self) -> None:
            self.held.rollback()

    told = late_commit(RolledBack, expected=[])
    assert told.late == []
    assert told.left_in_log == told.left_in_state == []
    assert told.watermark >= told.early_offset
