"""Other transactions run between two statements of a promotion. None fails or is held up, and no message is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import (
    OutgoingMessage,
    Subscription,
    cancel,
    publish,
    publish_many,
    reschedule,
    reset,
    subscribe,
    unsubscribe,
)
from django_mqueue.protocol import promoting
from django_mqueue.protocol.promoting import IN_LOG, NOT_NEEDED, Promoter, Promotion
from django_mqueue.store import schedule as store
from django_mqueue.store.connection import session_variables
from tests.protocol.interleavings.steps import Stopped
from tests.support.subscribers import QUICK, consume, poll_until, settle_and_collect
from tests.support.transactions import Background, HeldTransaction, is_waiting_for_lock, wait_until

from .helping import ids_in_log, now, waiting

pytestmark = pytest.mark.django_db(transaction=True)

PAST = timedelta(seconds=-5)


def promote(topic: str = "t") -> Promotion:
    return Promoter("default", topic).promote()


def due(id: str, since: timedelta = PAST, topic: str = "t") -> None:
    publish(topic, id, id=id, key="k", at=now() + since)


def after(monkeypatch: pytest.MonkeyPatch, statement: str, happens: Callable[[], Any]) -> None:
    """Call ``happens`` once, after ``statement`` of a promotion."""
    original = getattr(store, statement)
    done: list[bool] = []

    def with_it(*arguments: Any) -> Any:
        result = original(*arguments)
        if not done:
            done.append(True)
            happens()
        return result

    monkeypatch.setattr(store, statement, with_it)


def test_an_id_that_is_published_between_two_statements_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    due("a")
    due("b")
    after(
        monkeypatch,
        "in_log",
        lambda: Background(lambda: publish("t", "at once", id="a", key="k")).start().result(),
    )
    promoter = Promoter("default", "t")
    assert promoter.promote() == Promotion(more=True)
    result = promoter.promote()
    assert (result.promoted, list(result.dropped.values())) == (1, [IN_LOG])
    assert (waiting("t"), sorted(ids_in_log("t"))) == ([], ["a", "b"])


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "replace"])
def test_changed_between_two_statements_it_is_told_that_it_comes_too_late(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The change comes in time or too late. In both cases no deadlock ends the caller's transaction."""
    # In the index of ids, this lies between the log's messages and the scheduled ones. While the server purges rows of
    # earlier tests, the caller's lock of an id may cover the gap before it.
    publish("t0", "between")
    due("a")
    due("b")
    changes: dict[str, Callable[[], Any]] = {
        "cancel": lambda: cancel("t", "a", key="k"),
        "reschedule": lambda: reschedule("t", "a", key="k", delay=3600),
        "replace": lambda: (
            publish("t", "other", id="a", key="k", delay=3600, on_duplicate="replace").replaced
        ),
    }

    def work() -> bool:
        with transaction.atomic():
            publish("elsewhere", 1)
            return bool(changes[verb]())

    changing = Background(work)

    def until_it_waits() -> None:
        changing.start()
        wait_until(lambda: is_waiting_for_lock(changing.connection_id), "it waits", every=0.25)

    after(monkeypatch, "lock_due", until_it_waits)
    promoter = Promoter("default", "t")
    promoted = promoter.promote().promoted
    if changing.result():
        assert (promoted, ids_in_log("t")) == (1, ["b"])
    else:
        assert (promoted, ids_in_log("t")) == (2, ["a", "b"])


class TestAGroupThatATransactionChanges:
    """The promotion sees that the registration is deleted, before the commit. It may come back."""

    @pytest.fixture
    def promoter(self) -> Promoter:
        """Return a promoter that has inserted the row of the promotion: this would wait for the gap's lock."""
        made = Promoter("default", "groups-change")
        made.promote()
        return made

    def come_at_last(self, promoter: Promoter) -> None:
        assert waiting("groups-change") == ["a"]
        wait_until(lambda: promoter.promote().promoted, "it comes", every=0.1)
        assert ids_in_log("groups-change")[-1].partition("~")[0] == "a"  # A retry has a longer id.

    def test_it_is_not_removed_after_all(self, promoter: Promoter) -> None:
        subscribe("groups-change", "g")
        publish("groups-change", 1, id="a", group="g", at=now() + PAST)
        with HeldTransaction(lambda: unsubscribe("groups-change", "g")) as held:
            assert promoter.promote() == Promotion()
            held.rollback()
        self.come_at_last(promoter)

    def test_it_is_reset(self, promoter: Promoter) -> None:
        """A reset deletes the registration, removes the old state, and inserts the registration again."""
        subscribe("groups-change", "g")
        publish("groups-change", 1, id="a", group="g", at=now() + PAST)
        with Stopped(lambda: reset("groups-change", "g", "latest"), "INSERT INTO queue_offsets") as stopped:
            assert promoter.promote() == Promotion()
            stopped.go()
        self.come_at_last(promoter)

    def test_a_reset_that_is_rolled_back_keeps_a_parked_retry(self, promoter: Promoter) -> None:
        with override_settings(MQUEUE=QUICK), Subscription("groups-change", "g") as subscription:
            publish("groups-change", 1, id="a", key="k")
            (delivery,) = poll_until(subscription, 1)
            delivery.nack(delay=7200, error="no")
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE queue_messages SET available_at = 5 WHERE topic = 'groups-change_scheduled'"
            )
        with HeldTransaction(lambda: reset("groups-change", "g", "latest")) as held:
            assert promoter.promote() == Promotion()
            held.rollback()
        self.come_at_last(promoter)


def test_many_that_are_in_doubt_do_not_stand_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promoting, "ROWS", 3)
    for n in range(7):
        due(f"doubtful {n}", 2 * PAST)
    due("sure")
    ids = [OutgoingMessage(n, id=f"doubtful {n}", key="k") for n in range(7)]
    with HeldTransaction(lambda: publish_many("t", ids)) as held:
        with monkeypatch.context() as patch:
            patch.setattr(promoting, "DOUBTED_FOR", 3600.0)  # However slow a promotion is.
            promoter = Promoter("default", "t")
            wait_until(lambda: promoter.promote().promoted or ids_in_log("t"), "the other one comes")
        assert ids_in_log("t") == ["sure"]
        held.rollback()
    promoter = Promoter("default", "t")
    wait_until(lambda: not promoter.promote().promoted and not waiting("t"), "those in doubt come", every=0.1)
    assert len(ids_in_log("t")) == 8


def test_many_that_are_in_the_way_are_found_one_after_the_other() -> None:
    """After the first one is found, the search for the next ones starts with a few messages, not with all."""
    due("a")
    promoter = Promoter("default", "t")
    promoter._avoid_blocked(list(range(500)))
    assert promoter._rows == 62
    promoter._avoid_blocked([7])
    assert (promoter._rows, list(promoter._avoided)) == (1, [7])
    assert promoter.promote().promoted == 1
    assert promoter._rows == 8


def test_while_a_promotion_waits_publishers_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promotion does not lock the counter of offsets. MariaDB would lock it for an INSERT ... SELECT."""
    # No other test uses this topic. InnoDB locks the gap before an id that was just deleted.
    topic = "waits-in-promotion"
    due("b", topic=topic)
    due("c", topic=topic)
    # Wait as long as the publisher takes: the usual timeout of one second would be too short for this test.
    monkeypatch.setattr(session_variables, "short_lock_wait_timeout", lambda using: nullcontext())
    held = HeldTransaction(lambda: publish(topic, "at once", id="c", key="k"))
    after(monkeypatch, "in_log", lambda: held.start().result())
    with Background(lambda: promote(topic)) as promotion:
        wait_until(lambda: is_waiting_for_lock(promotion.connection_id), "it waits", every=0.25)
        publish("elsewhere", 1)
        assert not promotion.is_done, "published while it waited"
        held.rollback()
        assert promotion.result().promoted == 2


def test_what_was_set_aside_comes_after_a_reset_if_the_log_has_forgotten_it() -> None:
    """A reset to the start keeps the parked retry, which would be lost otherwise. A later start drops it."""

    def promoted_after_reset(to: Literal["earliest", "latest"]) -> Promotion:
        with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
            publish("t", "again", id="a", key="k")
            (delivery,) = poll_until(subscription, 1)
            delivery.nack(delay=7200, error="no")
            publish("t", "next", key="k")
            consume(subscription, 1)
            wait_until(lambda: settle_and_collect(subscription) and not ids_in_log("t"), "forgotten")
        reset("t", "g", to)
        assert waiting("t") == ["a"]
        with connection.cursor() as cursor:
            cursor.execute("UPDATE queue_messages SET available_at = 5 WHERE topic = 't_scheduled'")
        return promote()

    assert list(promoted_after_reset("latest").dropped.values()) == [NOT_NEEDED]
    assert promoted_after_reset("earliest").promoted == 1
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        (delivery,) = consume(subscription, 1)
    assert (delivery.id, delivery.payload, delivery.attempt) == ("a", "again", 2)


def test_a_time_that_could_not_be_given_back_is_refused() -> None:
    west, east = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))
    for at in (datetime(9999, 12, 31, 23, tzinfo=west), datetime(1, 1, 1, tzinfo=east)):
        with pytest.raises(ValueError, match="at must lie within the years 1 to 9999 in UTC"):
            publish("t", 1, at=at)
    publish("t", 1, id="a", at=datetime(9999, 12, 31, 11, tzinfo=west))
    assert waiting("t") == ["a"]
