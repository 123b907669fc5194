"""Reminders, overdue items and escalation, by the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from django_mqueue import reset
from django_mqueue.inspect import redeliver, send_to_front
from django_mqueue.models import DeliveryState
from django_mqueue.testing import drain
from django_mqueue.worklists import WorkItem, Worklist, find
from django_mqueue.worklists.fields import MomentField
from django_mqueue.worklists.figures import open_items

from .conftest import Declare
from .lists import an_item, dead_reason, newest, steps_of, team, user

pytestmark = pytest.mark.django_db


def test_a_reminder_and_the_due_date_are_steps(declare: Declare) -> None:
    declare(due=timedelta(days=2), remind=timedelta(hours=4))
    item = an_item()
    drain(until=timedelta(hours=43))
    assert steps_of(item) == ["created"]
    drain(until=timedelta(hours=45))
    assert steps_of(item) == ["created", "reminded"]
    drain(until=timedelta(hours=49))
    assert steps_of(item) == ["created", "reminded", "overdue"]


def test_an_item_that_has_ended_is_not_overdue(declare: Declare) -> None:
    declare(due=timedelta(days=2), remind=timedelta(hours=4))
    item = an_item()
    item.cancel()
    drain(until=timedelta(days=3))
    assert steps_of(item) == ["created", "cancelled"]


def test_overdue_items_go_to_the_group_of_the_declaration(declare: Declare) -> None:
    supervisors = team("supervisors")
    declare(due=60, escalate_to="supervisors")
    item = an_item()
    item.take(by=user("ann", "take"))
    drain(until=timedelta(minutes=2))
    found = newest()
    assert (found.team, found.state, found.assignee) == (supervisors, "unassigned", None)
    assert steps_of(item) == ["created", "taken", "overdue", "assigned"]


def test_a_missing_group_does_not_hide_that_an_item_is_overdue(
    declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    declare(due=60, escalate_to="supervisor")
    item = an_item()
    drain(until=timedelta(minutes=2))
    assert steps_of(item) == ["created", "overdue"]
    assert "there is no group of users 'supervisor'" in caplog.text


def test_a_project_can_escalate_in_its_own_way(declare: Declare) -> None:
    class Stern(Worklist):
        def escalate(self, item: WorkItem) -> None:
            item.cancel(comment="too late")

    declare(Stern, due=60)
    item = an_item()
    drain(until=timedelta(minutes=2))
    assert steps_of(item) == ["created", "overdue", "cancelled"]


@pytest.mark.parametrize(
    "repeat",
    [
        partial(reset, "worklist.refunds", "worklist.refunds", to="earliest"),
        partial(redeliver, "worklist.refunds", group="worklist.refunds"),
    ],
)
def test_an_item_escalates_once_for_each_due_date(declare: Declare, repeat: Callable[[], int]) -> None:
    """The log still holds the messages of the due date when they are delivered again."""
    escalated: list[int] = []

    class Counting(Worklist):
        def escalate(self, item: WorkItem) -> None:
            escalated.append(item.pk)

    declare(Counting, due=timedelta(minutes=30), remind=timedelta(minutes=10))
    item = an_item()
    drain(until=timedelta(hours=1))
    assert steps_of(item) == ["created", "reminded", "overdue"]
    repeat()
    again = drain(until=timedelta(hours=1))
    assert {"due", "remind"} <= {message.kind for message in again}
    assert steps_of(item) == ["created", "reminded", "overdue"]
    newest().set_due(at=timedelta(hours=2))
    drain(until=timedelta(hours=3))
    assert steps_of(item)[3:] == ["due_changed", "reminded", "overdue"]
    assert escalated == [item.pk, item.pk]


@pytest.mark.parametrize("due", [timedelta(minutes=30), timedelta(days=2)])
def test_deliver_now_makes_no_item_overdue_before_its_time(declare: Declare, due: timedelta) -> None:
    """The message then waits in the log, or for more than an hour as a parked retry."""
    declare(due=due)
    item = an_item()
    assert send_to_front("worklist.refunds", group="worklist.refunds", kind="due") == 1
    assert [message.kind for message in drain()] == ["due"]
    assert steps_of(item) == ["created"]
    drain(until=due + timedelta(minutes=5))
    assert steps_of(item) == ["created", "overdue"]


def test_an_escalation_that_has_killed_its_worker_each_time_is_a_dead_letter(declare: Declare) -> None:
    """A death counts as a failed attempt of the delivery state."""
    escalated: list[int] = []

    class Deadly(Worklist):
        def escalate(self, item: WorkItem) -> None:
            escalated.append(item.pk)
            raise RuntimeError

    declare(Deadly, due=60)
    item = an_item()
    drain(until=timedelta(minutes=2))
    attempts = len(escalated)
    assert DeliveryState.objects.filter(topic="worklist.refunds", acked=False).update(failure_count=20) == 1
    drain(until=timedelta(hours=1))
    assert "the worker died" in dead_reason("worklist.refunds")
    assert (len(escalated), steps_of(item)) == (attempts, ["created"])


def test_overdue_items_are_found_and_counted(declare: Declare) -> None:
    declare(due=timedelta(days=2))
    late, _in_time = an_item(), an_item()
    WorkItem.objects.filter(pk=late.pk).update(due_at=late.created_at)
    assert list(find("refunds", overdue=True)) == [late]
    figures = open_items("refunds")
    assert (figures.overdue, figures.by_state["unassigned"]) == (1, 2)


def test_a_moment_is_milliseconds_in_the_table() -> None:
    field = MomentField()
    assert field.from_db_value(1_500, None, None).isoformat() == "1970-01-01T00:00:01.500000+00:00"  # type: ignore[union-attr]
