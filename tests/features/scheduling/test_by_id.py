"""Publish, replace, cancel and reschedule a scheduled message by its id, also at the moment when it is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.test import override_settings

from django_mqueue import (
    DuplicateMessage,
    Published,
    Subscription,
    cancel,
    publish,
    reschedule,
    scheduled,
    subscribe,
)
from django_mqueue.protocol.promoting import Promoter, Promotion
from tests.support.processes import database_ms
from tests.support.subscribers import QUICK, consume, consume_rest
from tests.support.transactions import (
    Background,
    HeldTransaction,
    rolled_back,
    wait_for_lock_wait,
    wait_until,
)

from .helping import ids_in_log, now, waiting

pytestmark = pytest.mark.django_db(transaction=True)


def payloads(topic: str) -> list[object]:
    return [message.payload for message in scheduled(topic)]


def test_an_id_that_is_scheduled_is_ignored_and_told() -> None:
    first = publish("t", 1, id="a", delay=60)
    again = publish("t", 2, id="a", delay=5)
    assert (again.created, again.replaced, again.offset) == (False, False, first.offset)
    assert payloads("t") == [1]


def test_or_an_error() -> None:
    first = publish("t", 1, id="a", delay=60)
    with pytest.raises(DuplicateMessage) as caught:
        publish("t", 2, id="a", delay=60, on_duplicate="error")
    assert caught.value.published.offset == first.offset
    assert payloads("t") == [1]


def test_or_replaced_payload_kind_headers_and_time() -> None:
    first = publish("t", 1, id="a", key="k", delay=60, headers={"old": 1})
    again = publish(
        "t", 2, id="a", key="k", delay=3600, kind="new", headers={"new": 1}, on_duplicate="replace"
    )
    assert (again.created, again.replaced, again.offset) == (False, True, first.offset)
    (message,) = scheduled("t")
    assert (message.payload, message.kind, message.headers, message.key) == (2, "new", {"new": 1}, "k")
    assert timedelta(seconds=3500) < message.at - now() <= timedelta(seconds=3600)


def test_replacing_what_is_not_there_publishes_it() -> None:
    assert publish("t", 1, id="a", delay=60, on_duplicate="replace").created
    assert publish("t", 1, id="b", on_duplicate="replace").created
    assert (waiting("t"), ids_in_log("t")) == (["a"], ["b"])


def test_an_id_that_is_also_in_the_log_stays_scheduled() -> None:
    """Nothing is sent in its place, so it must come."""
    publish("t", "later", id="a", delay=60)
    publish("t", "now", id="a")
    again = publish("t", "again", id="a", on_duplicate="replace")
    assert (again.created, again.replaced) == (False, False)
    assert payloads("t") == ["later"]


def test_an_id_that_another_transaction_sends_now_stays_scheduled() -> None:
    publish("t", "later", id="a", delay=60)
    with HeldTransaction(lambda: publish("t", "now", id="a")) as held:
        again = Background(lambda: publish("t", "again", id="a", on_duplicate="replace")).start()
        wait_for_lock_wait(again)
        held.commit()
        assert (again.result().created, again.result().replaced) == (False, False)
    assert payloads("t") == ["later"]


def test_replaced_by_one_that_is_to_come_now() -> None:
    publish("t", 1, id="a", delay=60)
    now_instead = publish("t", 2, id="a", on_duplicate="replace")
    assert (now_instead.created, now_instead.replaced) == (False, True)
    assert (waiting("t"), ids_in_log("t")) == ([], ["a"])
    late = publish("t", 3, id="a", on_duplicate="replace")
    assert (late.created, late.replaced, late.offset) == (False, False, now_instead.offset)


@pytest.mark.parametrize("mode", ["ignore", "replace"])
def test_an_id_that_is_in_the_log_is_not_scheduled_again(mode: str) -> None:
    first = publish("t", 1, id="a")
    again = publish("t", 2, id="a", delay=60, on_duplicate=mode)  # type: ignore[arg-type]
    assert (again.created, again.replaced, again.offset) == (False, False, first.offset)
    assert waiting("t") == []


def test_cancel() -> None:
    publish("t", 1, id="a", delay=60)
    publish("t", 2, id="a", key="k", delay=60)
    with rolled_back():
        assert cancel("t", "a")
    assert cancel("t", "a")
    assert not cancel("t", "a"), "there is none any more"
    assert payloads("t") == [2], "another key's message of the same id is another message"
    assert cancel("t", "a", key="k")
    assert publish("t", 3, id="a", delay=60).created


def test_cancel_of_one_for_a_group() -> None:
    subscribe("t", "g")
    publish("t", 1, id="a", delay=60, group="g")
    assert not cancel("t", "a")
    assert cancel("t", "a", group="g")


def test_reschedule_as_soon_as_possible_and_to_tomorrow() -> None:
    publish("t", "soon", id="a", delay=3600)
    publish("t", "later", id="b", delay=0.3)
    due = database_ms() + 300
    assert reschedule("t", "b", at=now() + timedelta(days=1))
    assert reschedule("t", "a", delay=0)
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        assert [d.payload for d in consume(subscription, 1)] == ["soon"]
        wait_until(lambda: database_ms() > due, "the first time of the other one has come")
        assert consume_rest(subscription) == []
    assert waiting("t") == ["b"]
    assert not reschedule("t", "a", delay=5), "it is in the log"
    with pytest.raises(ValueError, match="delay or at"):
        reschedule("t", "b")


def test_scheduled_lists_by_time_and_finds_one() -> None:
    publish("t", 3, id="c", delay=3000)
    publish("t", 1, id="a", delay=1000)
    publish("t", 2, id="b", key="k", delay=2000)
    assert waiting("t") == ["a", "b", "c"]
    assert [m.id for m in scheduled("t", before=now() + timedelta(seconds=1500))] == ["a"]
    (one,) = scheduled("t", id="b", key="k")
    assert (one.payload, one.key, one.group, one.attempts) == (2, "k", "", 0)
    assert list(scheduled("t", id="b")) == []
    with pytest.raises(ValueError, match="give id"):
        scheduled("t", key="k")


def test_scheduled_reads_on_where_a_page_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """All eight messages are due at the same time, and a page has three."""
    monkeypatch.setattr("django_mqueue.service.scheduling.PAGE", 3)
    at = now() + timedelta(hours=1)
    for n in range(8):
        publish("t", n, at=at)
    assert payloads("t") == list(range(8))


def due(topic: str, id: str) -> None:
    publish(topic, "old", id=id, at=now() - timedelta(seconds=1))


def promote() -> Promotion:
    return Promoter("default", "t").promote()


CHANGES: dict[str, Callable[[str], bool | Published]] = {
    "cancel": lambda id: cancel("t", id),
    "reschedule": lambda id: reschedule("t", id, delay=3600),
    "replace": lambda id: publish("t", "new", id=id, delay=3600, on_duplicate="replace"),
}


@pytest.fixture
def id() -> str:
    """Return a new id. A statement that finds the deleted row of an earlier test also locks the gap before it."""
    return uuid4().hex


@pytest.mark.parametrize("change", CHANGES)
def test_changed_first_it_is_not_due(change: str, id: str) -> None:
    """The change is not committed when a worker promotes. The worker skips the message and does not wait."""
    due("t", id)
    with HeldTransaction(partial(CHANGES[change], id)) as held:
        publish("t", "other", id="b", at=now() - timedelta(seconds=1))
        assert promote().promoted == 1
        assert ids_in_log("t") == ["b"]
        held.commit()
    assert promote().promoted == 0
    assert ids_in_log("t") == ["b"]
    assert waiting("t") == ([] if change == "cancel" else [id])


@pytest.mark.parametrize("change", CHANGES)
def test_changed_first_and_rolled_back_it_comes(change: str, id: str) -> None:
    due("t", id)
    with HeldTransaction(partial(CHANGES[change], id)) as held:
        assert promote().promoted == 0
        held.rollback()
    assert promote().promoted == 1
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        assert [d.payload for d in consume(subscription, 1)] == ["old"]


@pytest.mark.parametrize("change", CHANGES)
def test_due_first_the_change_is_told_that_it_comes_too_late(change: str, id: str) -> None:
    """The worker has moved the message and not committed. The change waits, and then finds nothing to change."""
    due("t", id)
    with HeldTransaction(promote) as moving:
        late = Background(partial(CHANGES[change], id)).start()
        wait_for_lock_wait(late)
        moving.commit()
        told = late.result()
    if isinstance(told, Published):
        assert (told.created, told.replaced) == (False, False)
    else:
        assert told is False
    assert (ids_in_log("t"), waiting("t")) == ([id], [])
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        assert [d.payload for d in consume(subscription, 1)] == ["old"]
