"""Dead letters on a custom admin site, with the queue in another database than the users."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import path, reverse

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.admin import register
from django_mqueue.admin.dead_letters import background
from django_mqueue.browse import bulk_redrive
from django_mqueue.models import Message
from django_mqueue.policy.names import OPERATIONS_TOPIC
from django_mqueue.service import actions
from django_mqueue.service.bulk_work import GROUP
from django_mqueue.testing import drain
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, poll_until

from .operating import hidden

site = AdminSite(name="own")
register(site)
urlpatterns = [path("own/", site.urls)]

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.urls(__name__),
]

TOPIC, DEAD = "orders", "orders_dlq"


elsewhere = with_settings(MQUEUE={**QUICK, "DATABASE": "other", "RETENTION": 3600})


def url_of(page: str) -> str:
    return reverse(f"admin:django_mqueue_{page}", current_app="own")


def press(client: Client, page: str, asked: dict[str, Any], **more: str) -> str:
    """Submit the confirmation form and return the redirect's URL."""
    shown = client.post(url_of(page), asked)
    assert shown.status_code == 200
    response = client.post(url_of(page), {**hidden(shown.content.decode()), **more})
    assert response.status_code == 302, response.content.decode()
    return str(response.headers["Location"])


def test_every_page_and_button_stays_there(admin_client: Client) -> None:
    subscribe(TOPIC, "billing")
    publish_many(TOPIC, [OutgoingMessage({"n": n}, id=f"order-{n}") for n in range(4)])
    with Subscription(TOPIC, "billing") as subscription:
        for delivery in poll_until(subscription, 4):
            delivery.reject("ValueError: no")
    rows = Message.objects.using("other")
    letters = rows.filter(topic=DEAD).order_by("offset")
    first, second, *_ = letters.values_list("pk", flat=True)
    pages: list[tuple[str, dict[str, Any]]] = [
        ("deadletter_changelist", {}),
        ("deadletter_errors", {"topic": TOPIC}),
        ("deadletter_list", {"topic": TOPIC}),
        ("deadletter", {"offset": first}),
        ("edit_deadletter", {"offset": first}),
        ("redrive_matching", {"topic": TOPIC}),
        ("purge_matching", {"topic": TOPIC}),
    ]
    for page, query in pages:
        html = admin_client.get(url_of(page), query).content.decode()
        found = [unescape(url) for url in re.findall(r'(?:href|action|formaction)="(/[^"]+)"', html)]
        found = [url for url in found if "/static/" not in url]
        assert found
        assert {url.split("/")[1] for url in found} == {"own"}, page
    form = admin_client.get(url_of("edit_deadletter"), {"offset": first}).content.decode()
    edited = {**hidden(form), "payload_format": "json", "payload": "7", "headers": "{}"}
    assert press(admin_client, "edit_deadletter", edited).startswith("/own/")
    assert press(admin_client, "redrive_selected", {"topic": TOPIC, "offsets": [second]}).startswith("/own/")
    assert letters.count() == 2
    assert press(admin_client, "purge_matching", {"topic": TOPIC}, typed=TOPIC).startswith("/own/")
    assert letters.count() == 0
    assert rows.filter(topic=TOPIC, consumer_group="billing").count() == 2
    assert not Message.objects.using("default").exists()
    entries = list(LogEntry.objects.order_by("pk"))
    assert len(entries) == 3
    for entry in entries[:2]:
        url = entry.get_admin_url()
        assert url is not None
        assert admin_client.get(url.replace("/admin/", "/own/"), follow=True).status_code == 200


@pytest.mark.parametrize("stops", [False, True])
def test_a_worker_does_the_rest(admin_client: Client, stops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler is atomic, and writes to the log of actions, which is in the other database, after its commit."""
    for module, name in (
        (bulk_redrive, "STEP_DEAD_LETTERS"),
        (bulk_redrive, "AT_ONCE"),
        (background, "AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 2)
    subscribe(TOPIC, "billing")
    publish_many(TOPIC, range(7))
    with Subscription(TOPIC, "billing") as subscription:
        for delivery in poll_until(subscription, 7):
            delivery.reject("ValueError: no")
    with Subscription(OPERATIONS_TOPIC, GROUP):
        url = press(admin_client, "redrive_matching", {"topic": TOPIC})
    if stops:
        admin_client.post(url, {"stop": "Stop"})
    drain(OPERATIONS_TOPIC)
    entry = LogEntry.objects.get().change_message
    if stops:
        assert entry == "Stopped: 2 dead letters were redriven so far; 2 were examined: topic orders."
        assert actions.recent(TOPIC)[0].details["messages_in_all"] == 2
    else:
        assert entry == "7 dead letters were redriven: topic orders."
    assert Message.objects.using("other").filter(topic=DEAD).count() == (5 if stops else 0)
    assert not Message.objects.using("other").filter(topic=f"{OPERATIONS_TOPIC}_dlq").exists()
