"""Permissions to view the five tables. No permission lets a user write to them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core import serializers
from django.test import Client
from django.urls import reverse

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat

from .looking import html_of, links, listed
from .rows import PAGES, list_url, one_of_each

pytestmark = pytest.mark.django_db

MODELS = (Message, DeliveryState, PartitionLease, Offset, SubscriberHeartbeat)


def everything() -> list[Any]:
    """Return all rows of the five tables."""
    return [serializers.serialize("python", model.objects.order_by("pk")) for model in MODELS]


def staff(*codenames: str) -> Client:
    user = User.objects.create_user("looker", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("page", PAGES)
def test_strangers_are_sent_to_the_login(client: Client, admin_client: Client, page: str) -> None:
    one_of_each()
    for url in (list_url(page), *links(admin_client, page)):
        assert Client().get(url).headers["Location"].startswith(reverse("admin:login"))


@pytest.mark.parametrize("page", PAGES)
def test_staff_need_the_right_to_view_that_table(admin_client: Client, page: str) -> None:
    """The permission to view one table opens only the list and the rows of that table."""
    one_of_each()
    client = staff(f"view_{page}")
    assert listed(client, page)
    assert html_of(client, links(admin_client, page)[0])
    assert html_of(client, reverse("admin:index")).count("/admin/django_mqueue/") >= 1
    for other in set(PAGES) - {page}:
        assert client.get(list_url(other)).status_code == 403
        assert client.get(links(admin_client, other)[0]).status_code == 403


def test_staff_without_rights_do_not_see_the_queue(admin_client: Client) -> None:
    assert "django_mqueue" not in html_of(staff(), reverse("admin:index"))
    assert "django_mqueue" in html_of(admin_client, reverse("admin:index"))


@pytest.mark.parametrize("page", PAGES)
def test_the_rights_to_change_change_nothing(page: str, admin_client: Client) -> None:
    """A user with every permission of the table and a superuser cannot add, change or delete a row."""
    one_of_each()
    before = everything()
    (url,) = links(admin_client, page)
    for client in (admin_client, staff(*(f"{verb}_{page}" for verb in ("view", "add", "change", "delete")))):
        for target in (f"{list_url(page)}add/", url.replace("/change/", "/delete/")):
            assert client.get(target).status_code == 403
            assert client.post(target, {"post": "yes"}).status_code == 403
        refused = (403, 405) if page == "message" else (403,)
        stolen = {"topic": "stolen", "acked": "on", "_save": "Save"}
        assert client.post(url, stolen).status_code in refused
        assert client.post(url, {"_saveasnew": "1"}).status_code in refused
        chosen = {"action": "delete_selected", "_selected_action": "1", "post": "yes", "index": "0"}
        for form in (chosen, {"_save": "Save", "form-TOTAL_FORMS": "1"}):
            assert client.post(list_url(page), form).status_code in (200, 302, *refused)
    assert everything() == before


@pytest.mark.parametrize("page", PAGES)
def test_lists_offer_no_action(admin_client: Client, page: str) -> None:
    one_of_each()
    html = html_of(admin_client, list_url(page))
    assert "_selected_action" not in html
    assert f"{list_url(page)}add/" not in html
    assert 'name="action"' not in html
