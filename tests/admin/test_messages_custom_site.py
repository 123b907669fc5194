"""The pages of messages on a custom admin site, with the queue in another database than the users."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_mqueue import publish, subscribe
from django_mqueue.admin import register
from django_mqueue.inspect import messages
from django_mqueue.models import Message
from tests.support.fixtures import with_settings

from .operating import hidden

site = AdminSite(name="own")
register(site)
urlpatterns = [path("own/", site.urls)]

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.urls(__name__),
]
HREF = re.compile(r'(?:href|action)="([^"#]+)"')
LIST = "/own/django_mqueue/message/"


_other_database = with_settings(MQUEUE={"DATABASE": "other"})


def html_of(client: Client, url: str, asked: dict[str, Any] | None = None) -> str:
    with CaptureQueriesContext(connections["default"]) as captured:
        response = client.get(url, asked or {})
    assert response.status_code == 200
    assert [one["sql"] for one in captured if "queue_" in one["sql"]] == []
    html = response.content.decode()
    links = [
        link for link in map(unescape, HREF.findall(html)) if not link.startswith(("/static/", "?", "/own/"))
    ]
    assert [link for link in links if link != "/"] == []
    return html


def test_all_of_them(admin_client: Client) -> None:
    subscribe("orders", "billing")
    offset = publish("orders", {"order": 1}, key="k", id="order-1").offset
    publish("orders", {"order": 2}, key="k", id="order-2", delay=60)
    publish("orders", {"order": 3}, using="default")
    lists: list[dict[str, str]] = [
        {},
        {"topic": "orders"},
        {"topic": "orders", "group": "billing"},
        {"topic": "orders", "status": "scheduled"},
    ]
    for asked in lists:
        assert "order-" in html_of(admin_client, LIST, asked)
    page = html_of(admin_client, f"{LIST}{offset}/change/")
    assert f"{LIST}hurry/?topic=orders&amp;group=billing&amp;offset={offset}" in page
    assert f"{LIST}publish/?copy_of={offset}" in page
    assert "&quot;order&quot;: 1" in html_of(admin_client, f"{LIST}publish/", {"copy_of": offset})
    operations: list[tuple[str, dict[str, Any], str]] = [
        (
            "publish",
            {"topic": "orders", "payload_format": "json", "payload": "4", "id": "order-4"},
            "order-4",
        ),
        ("hurry", {"topic": "orders", "group": "billing", "offset": offset}, f"orders@{offset}"),
    ]
    for name, data, begun in operations:
        shown = admin_client.post(f"{LIST}{name}/", data)
        assert shown.status_code == 200
        response = admin_client.post(f"{LIST}{name}/", hidden(shown.content.decode()))
        assert response.status_code == 302
        assert response.headers["Location"].startswith(LIST)
        assert begun in LogEntry.objects.latest("pk").object_repr
    assert [one.payload for one in messages("orders", using="other")] == [{"order": 1}, 4]
    assert [one.status for one in messages("orders", group="billing", using="other")] == [
        "waiting",
        "pending",
    ]
    assert Message.objects.using("default").filter(topic="orders").count() == 1
