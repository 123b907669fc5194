"""The pages for users without permission, and for what does not exist; users who may only look; the bar of pages."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import translation

from django_mqueue.admin.base.urls import NAVIGATION, PERMISSIONS
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.subscribers import QUICK

from .dead_letters import give_up
from .looking import html_of, text
from .operating import staff, url_of
from .rows import PAGES, list_url
from .rows import one_of_each as rows_of_each

pytestmark = pytest.mark.django_db(transaction=True)

VIEWS = [f"view_{model.__name__.lower()}" for model in apps.get_app_config("django_mqueue").get_models()]


def reader() -> Client:
    """Return a client for a user with every permission to view, and no other permission."""
    client = staff(*VIEWS, name="reader")
    user = User.objects.get(username="reader")
    user.user_permissions.add(Permission.objects.get(codename="view_logentry"))
    return client


def is_styled(response: Any) -> bool:
    html = response.content.decode()
    return 'id="mqueue-main"' in html and 'class="errornote"' in html


@pytest.mark.parametrize("page", sorted(set(PERMISSIONS) - {"message_change"}))
def test_no_permission(page: str) -> None:
    response = staff("view_topic" if page == "group" else "view_consumergroup").get(url_of(page))
    if page in ("consumergroup_changelist", "group", "recurring_jobs") and response.status_code != 403:
        response = staff("view_topic", name="other").get(url_of(page))
    assert response.status_code == 403
    assert is_styled(response)
    assert "permission" in text(response.content.decode())


def test_no_permission_names_it() -> None:
    response = staff("view_topic").get(url_of("pause_topic"), {"topic": "orders"})
    assert "It needs the permission django_mqueue.pause_topic." in text(response.content.decode())
    assert f'href="{url_of("topic_changelist")}"' in response.content.decode()


@pytest.mark.parametrize("page", PAGES)
def test_no_permission_for_a_row(page: str) -> None:
    rows_of_each()
    client = staff("view_topic")
    for url in (f"{list_url(page)}1/change/", f"{list_url(page)}add/", f"{list_url(page)}1/delete/"):
        response = client.get(url)
        assert response.status_code == 403
        assert is_styled(response), url


def test_a_page_refuses_after_it_has_read_the_message() -> None:
    """The topic has a mask, and the user may not see its hidden parts."""
    (dead_letter,) = give_up({"card": 1})
    client = staff("view_deadletter", "redrive_deadletter", "edit_deadletter")
    with override_settings(MQUEUE={**QUICK, "MASK": lambda message: message}):
        response = client.get(url_of("edit_deadletter"), {"offset": dead_letter.offset})
    assert response.status_code == 403
    assert is_styled(response)


def test_a_dead_letter_without_an_offset(admin_client: Client) -> None:
    with translation.override("de"):
        response = admin_client.get(url_of("deadletter"))
    assert response.status_code == 404
    assert "identified" not in text(response.content.decode())


def test_strangers_still_come_to_the_login() -> None:
    assert (
        Client().get(url_of("topic"), {"topic": "x"}).headers["Location"].startswith(reverse("admin:login"))
    )


@pytest.mark.parametrize(
    ("page", "query"), [("topic", {}), ("group", {"topic": "x"}), ("topic", {"topic": " x "})]
)
def test_pages_that_need_a_name(admin_client: Client, page: str, query: dict[str, str]) -> None:
    response = admin_client.get(url_of(page), query)
    assert response.status_code == 404
    assert is_styled(response)
    assert "This page needs a topic" in text(response.content.decode())


def test_a_message_that_does_not_exist() -> None:
    client = staff("view_message")
    response = client.get(url_of("message_change", 4711))
    assert response.status_code == 404
    assert is_styled(response)
    assert "There is no message 4711." in text(response.content.decode())
    hostile = client.get(url_of("message_change", "<b>x</b>"))
    assert hostile.status_code == 404
    assert "<b>x" not in hostile.content.decode()


def test_a_reader_may_open_every_page_and_is_offered_no_button() -> None:
    """Follow every link of the queue from the overview. No page fails, and no button changes anything."""
    one_of_each()
    client = reader()
    start = reverse("admin:app_list", args=("django_mqueue",))
    todo, seen = [start, url_of("actions"), *(list_url(page) for page in PAGES)], set()
    while todo:
        url = todo.pop()
        if url in seen:
            continue
        seen.add(url)
        response = client.get(url, follow=True)
        assert response.status_code == 200, url
        main = response.content.decode().partition('<main id="content-start"')[2].partition("<footer")[0]
        assert "formaction" not in main, url
        assert set(re.findall(r'type="submit"[^>]*value="([^"]*)"', main)) <= {"Search", "Find"}, url
        for link in re.findall(r'href="([^"#]+)', main):
            to = urlsplit(urljoin(url, unescape(link)))
            target = f"{to.path}?{to.query}" if to.query else to.path
            if to.path.startswith("/admin/django_mqueue/") and len(seen) < 250:
                todo.append(target)
    pages = {urlsplit(url).path for url in seen}
    assert {
        url_of("topic"),
        url_of("group"),
        url_of("group_partitions"),
        url_of("group_subscribers"),
    } <= pages
    assert any("/message/" in path and path.endswith("/change/") for path in pages)
    operations = {
        url_of(page) for page, needed in PERMISSIONS.items() if not all(_views(one) for one in needed)
    }
    assert not operations & pages
    for page in ("group", "topic"):
        html = html_of(client, f"{url_of(page)}?topic={TOPIC}&group={GROUP}")
        assert not any(url in html for url in operations)


def _views(permission: str) -> bool:
    return permission.rpartition(".")[2].startswith("view_")


def test_the_bar_has_each_table_of_the_side_bar(admin_client: Client) -> None:
    html = html_of(admin_client, url_of("topic_changelist"))
    bar = html.partition('class="mqueue-navigation"')[2].partition("</nav>")[0]
    in_bar = {unescape(url): text(name) for url, name in re.findall(r'href="([^"]+)"[^>]*>(.*?)</a>', bar)}
    models = apps.get_app_config("django_mqueue").get_models()
    for model in models:
        url = url_of(f"{model.__name__.lower()}_changelist")
        assert in_bar[url].lower() == str(model._meta.verbose_name_plural).lower()
    assert set(map(str, NAVIGATION.values())) >= set(in_bar.values()) - {"Overview"}
