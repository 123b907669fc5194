"""Find items by what an index serves, and the figures of what was finished."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command

from django_mqueue.worklists import WorkItem, Worklist, WorklistError, find
from django_mqueue.worklists.figures import finished
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import an_item, newest, request, team, user

pytestmark = pytest.mark.django_db


def test_by_state_user_team_and_kind(refunds: type[Worklist]) -> None:
    ann, accounting = user("ann", "take"), team("accounting")
    mine, theirs, other = an_item(), an_item(kind="return"), an_item()
    mine.take(by=ann)
    theirs.assign(to=accounting)
    assert list(find("refunds", state="assigned")) == [mine]
    assert list(find(assignee=ann)) == [mine]
    assert list(find(team=accounting)) == [theirs]
    assert list(find("refunds", kind="return")) == [theirs]
    assert set(find("refunds", state=["assigned", "unassigned"])) == {mine, theirs, other}


def test_by_the_linked_object_and_the_message(refunds: type[Worklist]) -> None:
    sale = Sale.objects.create(number=7)
    item, _other = an_item(50, sale=7), an_item()
    assert list(find(linked=sale)) == [item]
    assert list(find(message_id=item.message_id)) == [item]


def test_by_attributes(declare: Declare) -> None:
    declare(attributes=["country", "city"])
    bonn, _paris = an_item(50, country="DE", city="Bonn"), an_item(50, country="FR", city="Paris")
    _berlin = an_item(50, country="DE", city="Berlin")
    assert list(find("refunds", attributes={"country": "DE", "city": "Bonn"})) == [bonn]
    assert find("refunds", attributes={"country": "DE"}).count() == 2


def test_by_age(refunds: type[Worklist]) -> None:
    old, _new = an_item(), an_item()
    WorkItem.objects.filter(pk=old.pk).update(created_at=old.created_at - timedelta(days=3))
    assert list(find("refunds", open=True, older_than=timedelta(days=2))) == [old]


def test_what_no_index_serves_is_refused(refunds: type[Worklist]) -> None:
    with pytest.raises(ValueError, match="give worklist, assignee, team, linked or message_id"):
        find(kind="return")
    with pytest.raises(ValueError, match="attributes need worklist"):
        find(message_id="x", attributes={"country": "DE"})


def test_wrong_names_are_refused(refunds: type[Worklist]) -> None:
    with pytest.raises(WorklistError, match=r"has no state 'done'; the states are unassigned, .*, review"):
        find("refunds", state="done")
    with pytest.raises(WorklistError, match=r"no worklist has the state 'done'; .*, review"):
        find(message_id="x", state=["review", "done"])
    with pytest.raises(ValueError, match="has no attribute 'country'; its declaration names: none"):
        find("refunds", attributes={"country": "DE"})
    with pytest.raises(WorklistError, match=r"no worklist 'refund' is declared .* declared are: refunds"):
        find("refund", state="assigned")


def test_the_share_of_handlers_and_the_time_to_finish_by_week_and_kind(refunds: type[Worklist]) -> None:
    for amount in (10, 11, 50):
        item = an_item(amount)
        if item.is_open:
            item.assign(to=user("ann", "take"))
            item.finish()
    request(70)
    ended = WorkItem.objects.filter(is_open=False)
    ended.update(ended_at=item.ended_at)  # A week may have ended between them.
    ended.filter(is_automated=False).update(created_at=item.ended_at - timedelta(hours=3))
    (row,) = finished("refunds")
    assert (row.kind, row.count, row.by_handler) == ("refund", 3, 2)
    assert round(row.share, 2) == 0.67
    assert timedelta(minutes=59) < row.mean < timedelta(minutes=62)
    assert row.week.weekday() == 0


def test_overdue_items_are_open(refunds: type[Worklist]) -> None:
    with pytest.raises(ValueError, match="leave out open=False"):
        find("refunds", open=False, overdue=True)


def test_a_fixture_of_items_can_be_loaded(refunds: type[Worklist], tmp_path: Path) -> None:
    item, fixture = an_item(), tmp_path / "items.json"
    call_command("dumpdata", "mqueue_worklists.workitem", output=str(fixture), verbosity=0)
    WorkItem.objects.all().delete()
    call_command("loaddata", str(fixture), verbosity=0)
    assert newest().created_at == item.created_at
