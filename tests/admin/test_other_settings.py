"""The pages in projects with other settings: time zone, templates, language, sites, database."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin import AdminSite
from django.db import connections
from django.test import Client, override_settings
from django.urls import path, reverse

from django_mqueue import publish, subscribe
from django_mqueue.admin import register
from django_mqueue.admin.base import row_ids
from django_mqueue.models import Message
from tests.support.fixtures import with_settings

from .dead_letters import TOPIC, give_up
from .looking import html_of, text
from .operating import confirm, staff, staff_client, told, url_of
from .rows import message

pytestmark = pytest.mark.django_db(transaction=True)

site = AdminSite(name="ops")
register(site)


class Urls:
    urlpatterns = [path("admin/", AdminSite(name="admin").urls), path("ops/", site.urls)]


client = staff_client(
    "view_deadletter", "view_message", "reset_consumergroup", "publish_message", "view_consumergroup",
    "view_subscriberheartbeat", "pause_consumergroup",
)  # fmt: skip


def errors(response: Any) -> list[str]:
    return [text(one) for one in re.findall(r'<ul class="errorlist.*?</ul>', response.content.decode())]


_naive = with_settings(autouse=False, USE_TZ=False, TIME_ZONE="Europe/Berlin")


@pytest.mark.usefixtures("_naive")
def test_times_without_use_tz(client: Client) -> None:
    """Every form reads times in the project's time zone."""
    give_up(1)
    publish(TOPIC, 2, id="new")
    of = {"topic": TOPIC}
    for page in ("message_changelist", "deadletter_list"):
        for moment, count in (("2020-01-01T00:00:00", 1), ("2100-01-01T00:00:00", 0)):
            response = client.get(url_of(page), {**of, "after": moment})
            assert errors(response) == []
            assert ("<tbody>" in response.content.decode()) == bool(count)
    shown = confirm(
        client, "reset_group", {**of, "group": "billing", "to": "time", "at": "2020-07-01T12:00:00"}
    )
    assert told(shown)[0].startswith("Group billing on topic orders now starts after offset")
    assert "2020-07-01 12:00:00 CEST" in told(shown)[0]
    form = {**of, "payload_format": "json", "payload": "1", "id": "later", "at": "2100-01-01T00:00:00"}
    shown = confirm(client, "publish_message", form)
    assert told(shown)[0].startswith("Message later was published")
    for moment in ("2026-03-29T02:30:00", "2026-10-25T02:30:00"):
        response = client.get(url_of("message_changelist"), {**of, "after": moment})
        assert errors(response) == [
            "This time does not exist, or occurs twice, in the time zone Europe/Berlin. Give another time."
        ]


def templates(*processors: str) -> list[dict[str, Any]]:
    names = [f"django.contrib.{one}" for one in processors]
    return [{**settings.TEMPLATES[0], "OPTIONS": {"context_processors": names}}]


def test_without_the_request_in_templates(client: Client) -> None:
    """Django's admin needs the request only for its sidebar, and works without it."""
    (letter,) = give_up(1)
    found = templates("auth.context_processors.auth", "messages.context_processors.messages")
    with override_settings(TEMPLATES=found):
        of = {"topic": TOPIC, "group": "billing"}
        for page, asked in (
            ("group", of), ("group_subscribers", of), ("deadletter_list", of), ("message_changelist", of),
            ("deadletter", {"offset": str(letter.pk)}),
        ):  # fmt: skip
            assert "Dead letters" in html_of(client, url_of(page), asked)
        assert told(confirm(client, "pause_group", of)) == ["Group billing on topic orders is paused."]


@override_settings(LANGUAGE_CODE="de", USE_THOUSAND_SEPARATOR=True)
def test_numbers_of_another_language(client: Client) -> None:
    """Attributes are not localized: they contain no ``1.234.567`` and no ``0,5``."""
    message(offset=1_234_567)
    *_, letter = give_up(1)
    assert letter.pk > 1_234_567
    of = {"topic": TOPIC, "group": "billing"}
    for page, asked in (
        ("group", of), ("deadletter_list", of), ("message_changelist", of), ("deadletter", {"offset": str(letter.pk)}),
    ):  # fmt: skip
        html = html_of(client, url_of(page), asked)
        main = html.partition('id="mqueue-main"')[2].partition("<footer")[0]
        attributes = re.findall(r' (?:href|value|max|d|[xy][12]?|viewBox|width|height)="([^"]*)"', main)
        assert not [one for one in attributes if re.search(r"\d\.\d{3}\b|\d,\d", unescape(one))]


def test_links_of_djangos_own_stay_on_their_site(admin_client: Client) -> None:
    """Links of the log of actions work on an admin site that is not the first."""
    subscribe(TOPIC, "billing")
    with override_settings(ROOT_URLCONF=Urls):
        for model, word in (
            ("topic", row_ids.encode((TOPIC,))), ("consumergroup", row_ids.encode((TOPIC, "billing"))),
            ("deadletter", "1"), ("topic", "x"), ("consumergroup", "x"), ("deadletter", "x"),
        ):  # fmt: skip
            url = reverse(f"admin:django_mqueue_{model}_change", args=(word,), current_app="ops")
            assert url.startswith("/ops/")
            assert admin_client.get(url).headers["Location"].startswith("/ops/")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_database_without_the_tables(admin_client: Client) -> None:
    """The index page and the overview say that ``migrate`` must run. The fragment returns 503."""
    with connections["other"].cursor() as cursor:
        cursor.execute("RENAME TABLE queue_messages TO queue_messages_away")
    try:
        with override_settings(MQUEUE={"DATABASE": "other"}):
            for url in (reverse("admin:app_list", args=("django_mqueue",)), url_of("overview")):
                assert "run manage.py migrate --database other" in html_of(admin_client, url)
            response = admin_client.get(url_of("overview"), {"fragment": "1"})
            assert response.status_code == 503
    finally:
        with connections["other"].cursor() as cursor:
            cursor.execute("RENAME TABLE queue_messages_away TO queue_messages")


@pytest.mark.usefixtures("_naive")
def test_a_message_is_rescheduled_without_use_tz() -> None:
    client = staff("view_message", "reschedule_message")
    publish(TOPIC, 1, delay=3600)
    offset = Message.objects.get(topic=f"{TOPIC}_scheduled").pk
    form = {"offset": offset, "at": "2020-07-01T12:00:00"}
    assert "in the past" in text(client.post(url_of("reschedule_message"), form).content.decode())
    assert "2020-07-01 12:00:00 CEST" in told(confirm(client, "reschedule_message", form))[0]
