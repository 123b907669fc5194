"""The pages of work items in Django's admin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from importlib import reload
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import clear_url_caches, reverse
from django.utils import timezone

import tests.urls
from django_mqueue.testing import drain, published
from django_mqueue.worklists import State, WorkItem, Worklist
from django_mqueue.worklists.admin import WorkItemInline
from django_mqueue.worklists.admin.display import state_badge
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import an_item, fails, newest, refunded, request, steps_of, team, user

pytestmark = pytest.mark.django_db

LIST = "admin:mqueue_worklists_workitem_changelist"


def client_of(who: User) -> Client:
    client = Client()
    client.force_login(who)
    return client


def listed(client: Client, **query: str) -> list[str]:
    """Return the titles in the list, in order."""
    response = client.get(reverse(LIST), query)
    assert response.status_code == 200
    return [item.title for item in response.context["cl"].result_list]


def page_of(client: Client, item: WorkItem) -> str:
    response = client.get(reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,)))
    assert response.status_code == 200
    return unescape(response.content.decode())


def press(client: Client, verb: str, *items: WorkItem, follow: bool = True, **data: object) -> str:
    """Send the form of a step, for the versions that these objects have. Return the page that follows."""
    url = reverse("admin:mqueue_worklists_step", args=(verb,))
    chosen = [f"{item.pk}-{item.version}" for item in items]
    assert client.get(url, {"item": chosen}).status_code == 200
    response = client.post(url, {"item": chosen, "comment": "", **data}, follow=follow)
    return unescape(response.content.decode())


def buttons(client: Client, item: WorkItem) -> list[str]:
    response = client.get(reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,)))
    return [verb for verb, *_rest in response.context["buttons"]]


class TestList:
    def test_my_items_are_first(self, refunds: type[Worklist]) -> None:
        ann = user("ann", "take")
        mine, _other = an_item(50), an_item(60)
        mine.take(by=ann)
        assert listed(client_of(ann)) == [mine.title]

    def test_the_views(self, declare: Declare) -> None:
        declare(states=["review"], due=60)
        ann, accounting = user("ann", "take"), team("accounting")
        ann.groups.add(accounting)
        free, reviewed, teams, ended, late = [an_item(100 + number, kind=str(number)) for number in range(5)]
        reviewed.assign(to=ann)
        reviewed.move("review")
        teams.assign(to=accounting)
        ended.cancel()
        WorkItem.objects.filter(pk=late.pk).update(due_at=late.created_at)
        client = client_of(ann)
        assert listed(client, view="unassigned") == [late.title, free.title, teams.title]
        assert listed(client, view="team") == [teams.title]
        assert listed(client, view="review") == [reviewed.title]
        assert listed(client, view="cancelled") == [ended.title]
        assert listed(client, view="overdue") == [late.title]
        assert listed(client, view="open") == [one.title for one in (late, free, reviewed, teams)]

    def test_overdue_items_are_an_alarm(self, declare: Declare) -> None:
        declare(due=60)
        item, client = an_item(), client_of(user("ann", "take"))
        assert "overdue." not in client.get(reverse(LIST)).content.decode()
        WorkItem.objects.filter(pk=item.pk).update(due_at=item.created_at)
        assert "1 item is overdue." in client.get(reverse(LIST)).content.decode()

    def test_the_worklists_that_the_user_may_view(self, declare: Declare) -> None:
        declare()
        declare(Worklist, "checks", source="checks-wanted")
        an_item()
        client = client_of(user("cleo", "take", worklist="checks"))
        assert listed(client, view="open") == []
        assert listed(client, view="open", worklist="refunds") == []
        assert listed(client_of(user("ann", "take")), view="open", worklist="refunds") == [newest().title]

    def test_users_without_permission_see_nothing(self, refunds: type[Worklist]) -> None:
        item, client = an_item(), client_of(user("eve"))
        assert client.get(reverse(LIST)).status_code == 403
        assert (
            client.get(reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,))).status_code == 404
        )
        assert (
            client.get(f"{reverse('admin:mqueue_worklists_step', args=('take',))}?id={item.pk}").status_code
            == 404
        )
        assert "Work items" not in client.get(reverse("admin:index")).content.decode()

    def test_search_by_number_message_object_and_attribute(self, declare: Declare) -> None:
        declare(attributes=["country"])
        Sale.objects.create(pk=77, number=7)
        item, _other = an_item(50, sale=7, country="DE"), an_item(60, country="FR")
        client = client_of(user("ann", "view"))
        for term in (str(item.pk), item.message_id, "77", "DE"):
            assert listed(client, q=term) == [item.title], term

    def test_many_items_at_once(self, refunds: type[Worklist]) -> None:
        ann, bob = user("ann", "take"), user("bob", "take")
        first, second, third = an_item(), an_item(), an_item()
        client = client_of(ann)
        data = {"action": "take", "_selected_action": [first.pk, second.pk, third.pk]}
        asked = client.post(f"{reverse(LIST)}?view=open", data)
        assert asked.status_code == 200
        chosen = re.findall(r'name="item" value="([^"]+)"', asked.content.decode())
        second.take(by=bob)
        url = reverse("admin:mqueue_worklists_step", args=("take",))
        page = client.post(url, {"item": chosen, "comment": "for today"}, follow=True).content.decode()
        assert "2 items changed: Take." in page
        assert "is assigned to bob: take is allowed in unassigned, delayed" in page
        taken = WorkItem.objects.order_by("pk").values_list("assignee__username", flat=True)
        assert list(taken) == ["ann", "bob", "ann"]

    def test_items_that_left_the_list_meanwhile(self, refunds: type[Worklist]) -> None:
        ann, bob = user("ann", "take"), user("bob", "take")
        item = an_item()
        item.take(by=bob)
        data = {"action": "take", "_selected_action": [item.pk]}
        page = client_of(ann).post(f"{reverse(LIST)}?view=unassigned", data, follow=True)
        assert "The selected items are no longer in this list." in page.content.decode()

    def test_the_rights_on_another_worklist_do_not_count(self, declare: Declare) -> None:
        declare()
        declare(Worklist, "checks", source="checks-wanted")
        item, ann = an_item(), user("ann", "view")
        ann.user_permissions.add(Permission.objects.get(codename="assign_checks"))
        data = {"action": "assign", "_selected_action": [item.pk]}
        assert client_of(ann).post(f"{reverse(LIST)}?view=open&worklist=refunds", data).status_code == 403

    def test_what_another_user_has_changed_meanwhile_stays(self, refunds: type[Worklist]) -> None:
        """The lead has seen unassigned items. Assigning is also allowed for those that are assigned by now."""
        boss, ann, bob = user("boss", "assign"), user("ann", "take"), user("bob", "take")
        item = an_item()
        seen = newest()
        item.take(by=bob)
        assert "was changed meanwhile: it is assigned to bob" in press(
            client_of(boss), "assign", seen, user=ann.pk
        )
        assert newest().assignee == bob

    def test_items_of_two_worklists_are_not_selected_together(
        self, declare: Declare, admin_client: Client
    ) -> None:
        declare(attributes=["country"])
        declare(Worklist, "checks", source="refund-requests", attributes=["country"])
        request(50, country="DE")
        drain()
        pks = list(WorkItem.objects.values_list("pk", flat=True))
        page = admin_client.post(
            f"{reverse(LIST)}?q=DE", {"action": "take", "_selected_action": pks}, follow=True
        )
        assert "Select items of one worklist." in page.content.decode()

    def test_lookups_cannot_find_what_a_mask_hides(self, refunds: type[Worklist]) -> None:
        an_item(50, card="4711")
        response = client_of(user("eve", "view")).get(reverse(LIST), {"payload__card__startswith": "47"})
        assert response.status_code == 400

    def test_a_field_of_another_model_may_search_items(self, refunds: type[Worklist]) -> None:
        """Django's ``autocomplete_fields``, which pass other arguments to the paginator than the list."""
        item = an_item(50)
        query = {
            "app_label": "mqueue_worklists",
            "model_name": "workattribute",
            "field_name": "item",
            "term": str(item.pk),
        }
        response = client_of(user("ann", "view")).get(reverse("admin:autocomplete"), query)
        assert [found["id"] for found in response.json()["results"]] == [str(item.pk)]

    def test_items_without_a_due_date_come_last(self, refunds: type[Worklist]) -> None:
        undated, dated = an_item(50), an_item(60)
        dated.set_due(at=timedelta(days=1))
        assert listed(client_of(user("ann", "take")), view="open") == [dated.title, undated.title]

    def test_the_badge_of_an_overdue_item(self, declare: Declare) -> None:
        declare(due=60)
        WorkItem.objects.filter(pk=an_item().pk).update(due_at=timezone.now() - timedelta(days=1))
        page = client_of(user("ann", "take")).get(reverse(LIST), {"view": "open"}).content.decode()
        assert '<span class="mqueue-badge mqueue-bad">overdue</span>' in page


class TestItem:
    def test_it_shows_message_object_and_history(self, declare: Declare, admin_client: Client) -> None:
        declare(attributes=["country"])
        Sale.objects.create(number=7)
        item = an_item(50, sale=7, country="DE")
        item.comment("the customer called")
        page = page_of(admin_client, item)
        for text in ('"amount": 50', "Sale: 7", "country", "the customer called", "commented", "created"):
            assert text in page, text

    def test_the_buttons_of_each_user(self, refunds: type[Worklist]) -> None:
        ann, boss, rita = user("ann", "take"), user("boss", "assign"), user("rita", "review")
        item = an_item()
        assert buttons(client_of(ann), item) == ["take", "delay", "comment"]
        assert buttons(client_of(boss), item) == [
            "assign",
            "delay",
            "automate",
            "set_due",
            "cancel",
            "comment",
        ]
        assert buttons(client_of(rita), item) == ["comment"]
        item.take(by=ann)
        assert buttons(client_of(ann), item) == ["hand_back", "finish", "delay", "move", "comment"]
        item.move("review", by=ann)
        assert buttons(client_of(rita), item) == ["finish", "move", "comment"]
        assert buttons(client_of(ann), item) == ["comment"]

    def test_a_masked_topic(self, declare: Declare) -> None:
        declare(attributes=["secret"])
        item = an_item(50, secret="hidden-card-number")
        client = client_of(user("ann", "take"))
        assert "hidden-card-number" in page_of(client, item)
        mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
        with override_settings(MQUEUE={"TOPICS": mask}):
            assert "hidden-card-number" not in page_of(client, item)
            assert listed(client, q="hidden-card-number") == []

    def test_the_error_of_the_handler_is_masked(self, declare: Declare) -> None:
        declare(max_attempts=1)
        fails.append(RuntimeError("no card 4711"))
        item, client = an_item(10), client_of(user("ann", "take"))
        mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
        with override_settings(MQUEUE={"TOPICS": mask}):
            assert "4711" not in page_of(client, item)

    def test_a_step_is_not_published_by_hand(self, refunds: type[Worklist], admin_client: Client) -> None:
        form = {"topic": "worklist.refunds", "payload_format": "json", "payload": "{}", "id": "work 1 2"}
        page = admin_client.post(reverse("admin:django_mqueue_publish_message"), form).content.decode()
        assert "This topic holds the steps of work items. Change the work items instead." in page

    def test_a_step_of_a_masked_topic_is_hidden_on_the_page_of_its_message(self, declare: Declare) -> None:
        declare(max_attempts=1)
        fails.append(RuntimeError("no card 4711"))
        an_item(10)
        step, reader = published("worklist.refunds")[-1], user("eve", "view")
        reader.user_permissions.add(Permission.objects.get(codename="view_message"))
        client = client_of(reader)
        page = reverse("admin:django_mqueue_message_change", args=(step.offset,))
        assert "4711" in client.get(page).content.decode()
        mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
        with override_settings(MQUEUE={"TOPICS": mask}):
            assert "4711" not in client.get(page).content.decode()

    def test_the_linked_object_for_users_who_may_not_view_it(self, refunds: type[Worklist]) -> None:
        Sale.objects.create(pk=77, number=123456)
        item = an_item(50, sale=123456)
        WorkItem.objects.filter(pk=item.pk).update(title="a refund")
        page = page_of(client_of(user("ann", "take")), item)
        assert "Sale 77" in page
        assert "Sale: 123456" not in page

    def test_what_the_handler_could_not_do(self, declare: Declare) -> None:
        declare(max_attempts=1)
        fails.append(RuntimeError("the bank is closed"))
        page = page_of(client_of(user("ann", "take")), an_item(10))
        assert "The handler gave this item to people: RuntimeError: the bank is closed" in page


def mask(message: Any) -> Any:
    return replace(message, payload={"amount": "***"}, errors=())


class TestSteps:
    def test_the_form_is_only_for_users_who_may_take_the_step(self, refunds: type[Worklist]) -> None:
        """The form of ``assign`` names all users who may take items."""
        item, url = an_item(), reverse("admin:mqueue_worklists_step", args=("assign",))
        query = {"item": f"{item.pk}-{item.version}"}
        clients = [client_of(user(right, right)) for right in ("view", "take", "assign")]
        assert [client.get(url, query).status_code for client in clients] == [403, 403, 200]
        assert [client.post(url, query).status_code for client in clients] == [403, 403, 400]

    def test_the_error_of_the_work_is_masked_and_logged(
        self, refunds: type[Worklist], caplog: pytest.LogCaptureFixture
    ) -> None:
        ann, item = user("ann", "take"), an_item(50)
        item.take(by=ann)
        mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
        with override_settings(MQUEUE={"TOPICS": mask}):
            fails.append(ValueError("no card 4711"))
            page = press(client_of(ann), "finish", item)
            assert f"Item {item.pk}: its work failed. The error is masked." in page
            assert "4711" not in page
        assert "no card 4711" in caplog.text
        fails.append(ValueError("no card 4711"))
        assert "no card 4711" in press(client_of(ann), "finish", item)

    def test_take_with_one_click(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        page = press(client_of(ann), "take", item)
        assert "1 item changed: Take." in page
        assert newest().assignee == ann

    def test_a_page_that_is_out_of_date_changes_nothing(self, refunds: type[Worklist]) -> None:
        ann, bob = user("ann", "take"), user("bob", "take", "assign")
        item = an_item()
        seen = newest()
        item.take(by=bob)
        item.unassign()
        page = press(client_of(ann), "take", seen)
        assert "was changed meanwhile: it is unassigned; nothing was changed" in page
        assert newest().assignee is None

    def test_assign_to_a_user_or_a_team(self, refunds: type[Worklist]) -> None:
        boss, ann, accounting = user("boss", "assign"), user("ann", "take"), team("accounting")
        accounting.permissions.set(ann.user_permissions.all())
        item = an_item()
        page = press(client_of(boss), "assign", item, user=ann.pk, team=accounting.pk)
        assert "Give a user or a team, and not both." in page
        press(client_of(boss), "assign", item, user=ann.pk)
        assert newest().assignee == ann
        press(client_of(boss), "assign", newest(), team=accounting.pk)
        assert (newest().assignee, newest().team) == (None, accounting)

    def test_only_users_who_may_take_items_are_offered(self, refunds: type[Worklist]) -> None:
        boss, _ann, _eve = user("boss", "assign"), user("ann", "take"), user("eve", "view")
        url = reverse("admin:mqueue_worklists_step", args=("assign",))
        page = client_of(boss).get(url, {"item": f"{an_item().pk}-1"}).content.decode()
        assert ">ann</option>" in page
        assert ">eve</option>" not in page

    def test_delay(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        press(client_of(ann), "delay", item, until="2099-01-02T03:04:05")
        delayed = newest().delayed_until
        assert delayed is not None
        assert (newest().state, delayed.isoformat()) == ("delayed", "2099-01-02T03:04:05+00:00")
        page = press(client_of(ann), "delay", an_item(), until="2001-01-01T00:00:00")
        assert "until must lie in the future" in page

    def test_finish_with_a_result(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        press(client_of(ann), "finish", item, result="sent by post", comment="done")
        assert (newest().state, newest().result) == ("finished", "sent by post")
        assert "sent by post" in page_of(client_of(ann), item)

    def test_work_that_fails_is_shown(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        fails.append(RuntimeError("the bank is closed"))
        page = press(client_of(ann), "finish", item)
        assert "Nothing was changed." in page
        assert "RuntimeError: the bank is closed" in page
        assert (newest().state, refunded()) == ("assigned", [])

    def test_review(self, declare: Declare) -> None:
        declare(states=[State("review", required=True, own=False)])
        ann, rita, item = user("ann", "take", "review"), user("rita", "review"), an_item()
        item.take(by=ann)
        press(client_of(ann), "move", item, state="review")
        assert "another user" in press(client_of(ann), "finish", newest())
        press(client_of(rita), "finish", newest())
        assert steps_of(item) == ["created", "taken", "moved", "finished"]

    def test_a_step_that_is_not_permitted(self, refunds: type[Worklist]) -> None:
        item, url = an_item(), reverse("admin:mqueue_worklists_step", args=("take",))
        query = {"item": f"{item.pk}-{item.version}", "comment": ""}
        assert client_of(user("eve", "view")).post(url, query).status_code == 403
        assert newest().state == "unassigned"

    def test_cancel_and_comment(self, refunds: type[Worklist]) -> None:
        boss, item = client_of(user("boss", "assign")), an_item()
        assert "This field is required." in press(boss, "comment", item)
        press(boss, "comment", item, comment="a duplicate?")
        press(boss, "cancel", item, comment="a duplicate")
        assert steps_of(item) == ["created", "commented", "cancelled"]


class TestFigures:
    def test_open_items_and_what_was_finished(self, declare: Declare) -> None:
        declare(due=timedelta(days=1))
        an_item(10), an_item(11), an_item(60)
        an_item(50).cancel()
        page = client_of(user("ann", "view")).get(
            reverse("admin:mqueue_worklists_figures", args=("refunds",))
        )
        assert page.context["weeks"][0][2] == "100%"
        assert page.context["open"][0] == ("unassigned", "1")

    def test_it_needs_the_permission(self, refunds: type[Worklist]) -> None:
        url = reverse("admin:mqueue_worklists_figures", args=("refunds",))
        assert client_of(user("eve")).get(url).status_code == 403
        assert client_of(user("ann", "view")).get(url.replace("refunds", "returns")).status_code == 404


@pytest.fixture
def sale_admin() -> Iterator[None]:
    """Register an admin of ``Sale`` with the inline."""

    class SaleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
        inlines = [WorkItemInline]

    admin.site.register(Sale, SaleAdmin)
    reload(tests.urls)
    clear_url_caches()
    yield
    admin.site.unregister(Sale)
    reload(tests.urls)
    clear_url_caches()


def test_everything_about_an_object_on_its_own_page(
    refunds: type[Worklist], sale_admin: None, admin_client: Client
) -> None:
    sale = Sale.objects.create(number=7)
    item, other = an_item(50, sale=7), an_item(60)
    page = admin_client.get(reverse("admin:shop_sale_change", args=(sale.pk,)))
    assert page.status_code == 200
    html = page.content.decode()
    assert reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,)) in html
    assert reverse("admin:mqueue_worklists_workitem_change", args=(other.pk,)) not in html
    assert str(state_badge(item)) in html
