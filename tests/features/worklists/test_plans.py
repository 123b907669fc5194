"""No search and no list reads much more than it returns. The number of items does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_mqueue.worklists import WorkItem, find
from tests.support.emptying import forget_deleted_rows
from tests.support.many import NUMBERS
from tests.support.plans import planned
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import team, user

pytestmark = pytest.mark.django_db(transaction=True)

ITEMS = 20_000
PAGE = 50
READ_MOST = 600
"""Rows that a search for one page may read: a list reads the keys of 501 items, and the rows of a page."""
STATES = ("unassigned", "assigned", "delayed", "review", "finished", "finished", "finished", "cancelled")


@pytest.fixture
def ann(declare: Declare) -> Iterator[User]:
    """Fill the tables. Yield a user with many items."""
    forget_deleted_rows()
    declare(states=["review"], attributes=["country"])
    ann, accounting, sale = user("ann", "take"), team("accounting"), Sale.objects.create(pk=1, number=1)
    ann.groups.add(accounting)
    # Without the statistics of the background thread and with more than 20 sampled pages: the plans depend on them.
    set_statistics("STATS_AUTO_RECALC = 0, STATS_SAMPLE_PAGES = 10000")
    try:
        fill(ITEMS, ann.pk, accounting.pk, ContentType.objects.get_for_model(sale).pk)
        yield ann
    finally:
        set_statistics("STATS_AUTO_RECALC = DEFAULT, STATS_SAMPLE_PAGES = DEFAULT")


def set_statistics(options: str) -> None:
    with connection.cursor() as cursor:
        for table in ("worklist_items", "worklist_attributes"):
            cursor.execute(f"ALTER TABLE {table} {options}")


def fill(count: int, user: int, team: int, linked_type: int) -> None:
    """Insert items made a second apart: an eighth in each of ``STATES``, with users, teams, objects and attributes."""
    states = ", ".join(f"'{state}'" for state in STATES)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO worklist_items (worklist, state, kind, title, assignee_id, team_id, linked_type_id, linked_id,"
            " message_id, message_key, message_kind, message_offset, payload, headers, error, is_open, is_automated,"
            " version, created_at, due_at,"
            " ended_at) SELECT 'refunds', ELT(n %% 8 + 1, "
            + states
            + "), CONCAT('kind-', n %% 5), CONCAT('item ', n), IF(n %% 8 = 1, %s, NULL), IF(n %% 8 = 0, %s, NULL), %s,"
            " n %% 1000, CONCAT('id-', n), '', '', n, '{}', '{}', '', n %% 8 < 4, n %% 8 = 4, 1,"
            " UNIX_TIMESTAMP() * 1000 - n * 1000, UNIX_TIMESTAMP() * 1000 + (n - 200) * 1000,"
            f" IF(n %% 8 < 4, NULL, UNIX_TIMESTAMP() * 1000 - n * 500) FROM {NUMBERS} WHERE n < %s ORDER BY n",
            [user, team, linked_type, count],
        )
        cursor.execute(
            "INSERT INTO worklist_attributes (item_id, worklist, name, value)"
            " SELECT id, worklist, 'country', CONCAT('country-', message_offset %% 1000) FROM worklist_items",
            [],
        )
        cursor.execute("ANALYZE TABLE worklist_items, worklist_attributes")
        cursor.fetchall()


@contextmanager
def reads_little() -> Iterator[None]:
    with planned() as plans:
        yield
    costly = [str(plan) for plan in plans.values() if "worklist_" in plan.sql and plan.read > READ_MOST]
    assert not costly, "\n".join(costly)


def test_searches(ann: User) -> None:
    sale, accounting = Sale.objects.get(), ann.groups.get()
    with reads_little():
        searches = [
            find("refunds", state="unassigned").order_by("due_at"),
            find("refunds", open=True).order_by("due_at"),
            find("refunds", overdue=True).order_by("due_at"),
            find("refunds", due_before=timezone.now()).order_by("due_at"),
            find("refunds", open=True, older_than=timedelta(hours=1)).order_by("created_at"),
            find("refunds", open=True, kind="kind-3").order_by("created_at"),
            find(assignee=ann, open=True).order_by("due_at"),
            find(team=accounting, open=True).order_by("due_at"),
            find(linked=sale),
            find(message_id="id-77"),
            find("refunds", attributes={"country": "country-77"}),
        ]
        found = [len(search[:PAGE]) for search in searches]
    assert all(found), found


def test_lists(ann: User) -> None:
    client = Client()
    client.force_login(ann)
    views = ("mine", "unassigned", "team", "open", "overdue", "review", "finished")
    for query in (*({"view": view} for view in views), {"q": "id-77"}, {"q": "country-77"}):
        with reads_little():
            response = client.get(reverse("admin:mqueue_worklists_workitem_changelist"), query)
        assert len(response.context["cl"].result_list) > 0, query


def test_one_item_and_the_figures(ann: User) -> None:
    client, item = Client(), WorkItem.objects.get(message_id="id-77")
    client.force_login(ann)
    with reads_little():
        assert (
            client.get(reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,))).status_code == 200
        )
    with planned() as plans:
        page = client.get(reverse("admin:mqueue_worklists_figures", args=("refunds",)))
    assert page.context["open"][0] == ("unassigned", "2,500")
    assert not [str(plan) for plan in plans.values() if plan.read > ITEMS]
