"""Two sides change the same item at once. One wins, the other gets a clear error, and work is done once.

The first side stops after its compare-and-set, so it holds the item's row. The second side must wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection, transaction

from django_mqueue.protocol.delivery import Options
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.protocol.tailer import Tailer
from django_mqueue.signals import EventQueue
from django_mqueue.testing import drain
from django_mqueue.worklists import ItemChanged, WorkItem, Worklist, automation
from tests.protocol.interleavings.sides import waits
from tests.protocol.interleavings.steps import COMMIT, Stopped
from tests.support.transactions import Background, HeldTransaction

from .lists import SOURCE, again, an_item, calls, newest, published_step, refunded, request, steps_of, user

pytestmark = pytest.mark.django_db(transaction=True)


def loses(first: Callable[[], None], second: Callable[[], None], error: str) -> None:
    """Let the second side wait for the first, and lose."""
    with Stopped(first, COMMIT) as side, pytest.raises(ItemChanged, match=error):
        waits(side, second)


@pytest.mark.parametrize("names", [("ann", "bob"), ("bob", "ann")])
def test_two_take_the_same_item(refunds: type[Worklist], names: tuple[str, str]) -> None:
    first, second = (user(name, "take") for name in names)
    item = an_item()
    seen = again(item)
    loses(
        partial(item.take, by=first), partial(seen.take, by=second), f"it is assigned to {names[0]}; nothing"
    )
    assert newest().assignee == first
    assert steps_of(item) == ["created", "taken"]


def test_two_finish_the_same_item(refunds: type[Worklist]) -> None:
    item = an_item(50)
    item.assign(to=user("ann", "take"))
    seen = again(item)
    loses(item.finish, seen.finish, "it is finished")
    assert calls == [50]
    assert refunded() == [50]


@pytest.mark.parametrize("finish_first", [True, False])
def test_one_finishes_and_one_cancels(refunds: type[Worklist], finish_first: bool) -> None:
    item = an_item(50)
    item.assign(to=user("ann", "take"))
    seen = again(item)
    if finish_first:
        loses(item.finish, seen.cancel, "it is finished")
    else:
        loses(item.cancel, seen.finish, "it is cancelled")
    assert refunded() == ([50] if finish_first else [])


def automated() -> WorkItem:
    request(10)
    drain(SOURCE)
    return newest()


def test_a_person_takes_an_item_from_the_handler_that_finishes_it(refunds: type[Worklist]) -> None:
    item = automated()
    with Stopped(partial(drain, "worklist.refunds"), "INSERT INTO `worklist_steps`") as handler:
        assert newest().state == "automated"
        with pytest.raises(ItemChanged, match="it is finished"):
            waits(handler, item.unassign)
    assert refunded() == [10]


def test_the_handler_finds_that_a_person_has_taken_the_item(refunds: type[Worklist]) -> None:
    item = automated()
    with Stopped(item.unassign, COMMIT) as person:
        waits(person, partial(drain, "worklist.refunds"))
    assert newest().state == "unassigned"
    assert refunded() == []


def test_a_comment_conflicts_with_no_step(refunds: type[Worklist]) -> None:
    """It waits, because its row refers to the item."""
    item = an_item()
    seen = again(item)
    with Stopped(partial(item.take, by=user("ann", "take")), COMMIT) as step:
        waits(step, partial(seen.comment, "hello"))
    assert sorted(steps_of(item)) == ["commented", "created", "taken"]


def test_a_comment_in_a_snapshot_that_is_out_of_date(refunds: type[Worklist]) -> None:
    """The caller's transaction at REPEATABLE READ has read the item before another step changed it."""
    item = an_item()

    def work() -> None:
        connection.isolation_level = "repeatable read"  # type: ignore[attr-defined]
        assert newest().state == "unassigned"
        with Background(lambda: newest().cancel()) as other:
            other.result()
        item.comment("seen")

    with HeldTransaction(work, isolation="repeatable read") as held:
        held.commit()
    assert steps_of(item) == ["created", "cancelled", "commented"]


def test_the_end_of_a_last_attempt_waits_for_no_locked_item(refunds: type[Worklist]) -> None:
    """The handler that hangs holds the item's row. The worker's loop must rest, and not end."""
    item = an_item(50)
    WorkItem.objects.filter(pk=item.pk).update(state="automated")
    offset = published_step(f"work {item.pk} {item.version}")
    tailer = Tailer("default", EventQueue())
    subscriber = Subscriber(
        "worklist.refunds", "worklist.refunds", "w", Options("default"), tailer, polled_by_caller=False
    )
    with (
        HeldTransaction(lambda: WorkItem.objects.select_for_update().get(pk=item.pk)),
        subscriber.backoff_after_lock_wait(),
        transaction.atomic(),
    ):
        automation.after_failure(item.rules, "default", offset, is_final=True)
    assert subscriber.backing_off
    assert again(item).state == "automated"
