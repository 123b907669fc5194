"""Reminders, overdue items and escalation, by the database's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_mqueue.testing import drain
from django_mqueue.worklists import WorkItem, Worklist, find
from django_mqueue.worklists.fields import MomentField
from django_mqueue.worklists.figures import open_items

from .conftest import Declare
from .lists import an_item, newest, steps_of, team, user

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
