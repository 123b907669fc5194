"""The page of a topic, and the list of topics."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_mqueue import pause, publish, publish_many, subscribe
from django_mqueue.admin.topics import status
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each

from .looking import html_of, text
from .operating import staff, url_of
from .overview_tables import rows, tiles

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    cache.clear()


def page(client: Client, topic: str = TOPIC, **query: str) -> str:
    return html_of(client, url_of("topic"), {"topic": topic, **query})


def listed(client: Client, **query: str) -> list[str]:
    return list(rows(html_of(client, url_of("topic_changelist"), query)))


def test_what_a_topic_holds_and_who_consumes_it(admin_client: Client) -> None:
    one_of_each()
    html = page(admin_client)
    found = tiles(html)
    assert (found["In the log"], found["Scheduled"], found["Dead letters"], found["Retention"]) == (
        "5",
        "1",
        "1",
        "1 h",
    )
    assert {name: row["Pending"] for name, row in rows(html).items()} == {GROUP: "1", "stock": "5"}
    assert "None: all messages in the log are within their retention" in text(html)
    for name in ("published", "finished by billing", "dead"):
        assert f"{name}: last" in html or f"{name} (none): last" in html


def test_an_hour_or_a_day(admin_client: Client) -> None:
    publish(TOPIC, 1)
    for query, current in (({}, "hour"), ({"span": "day"}, "day"), ({"span": "year"}, "hour")):
        html = page(admin_client, **query)
        (url,) = re.findall(r'<a href="([^"]+)" aria-current="true"', html)
        assert unescape(url) == f"?topic=orders&span={current}"
        assert html.count('<th scope="row">') >= (60 if current == "hour" else 96)


def test_buttons_by_right_and_by_how_groups_stand() -> None:
    subscribe(TOPIC, GROUP)
    everything = staff("view_topic", "pause_topic", "resume_topic")
    assert ("Pause all groups" in page(everything), "Resume all groups" in page(everything)) == (True, False)
    pause(TOPIC, GROUP)
    assert ("Pause all groups" in page(everything), "Resume all groups" in page(everything)) == (False, True)
    html = page(staff("view_topic", name="other"))
    assert "Resume all groups" not in html
    assert url_of("group") not in html
    assert url_of("message_changelist") not in html


def test_who_may_see_it() -> None:
    subscribe(TOPIC, GROUP)
    client = staff("view_consumergroup", "view_message", "pause_topic")
    assert client.get(url_of("topic"), {"topic": TOPIC}).status_code == 403
    assert client.get(url_of("topic_changelist")).status_code == 403


def test_a_topic_that_nobody_consumes(admin_client: Client) -> None:
    publish("lonely", 1)
    html = text(page(admin_client, "lonely"))
    assert "No group: no group consumes the topic" in html
    assert "Nothing is deleted: no group is registered" in html
    assert "No group is registered. A worker" in html


def test_who_holds_back_deletion(admin_client: Client) -> None:
    with override_settings(MQUEUE={"RETENTION": 0}):
        publish("still", 1, key="ada")
        subscribe("still", "stopped")
        pause("still", "stopped")
        assert "Deletion waits for" in text(page(admin_client, "still"))


def test_dead_letters_as_a_topic(admin_client: Client) -> None:
    subscribe("orders_dlq", "mender")
    html = page(admin_client, "orders_dlq")
    assert "The dead letters of" in html
    assert f'{url_of("topic")}?topic=orders"' in html


@pytest.mark.parametrize("topic", ["", "x" * 300, " blank", "orders_scheduled", "orders_replies"])
def test_what_no_topic_can_be_is_not_found(admin_client: Client, topic: str) -> None:
    assert admin_client.get(url_of("topic"), {"topic": topic}).status_code == 404


def test_a_topic_that_is_not_there_is_an_empty_one(admin_client: Client) -> None:
    assert tiles(page(admin_client, "nothing"))["In the log"] == "0"


def test_hostile_names(admin_client: Client) -> None:
    evil = "<b>'\"&?#%2F/\U0001f600"
    subscribe(evil, evil)
    html = page(admin_client, evil)
    assert "<b>'" not in html
    assert evil in unescape(html)
    (url,) = re.findall(r'<a href="([^"]+)" aria-current="true"', html)
    assert evil in unescape(html_of(admin_client, url_of("topic") + unescape(url)))


def test_statements_do_not_grow_with_keys(admin_client: Client) -> None:
    subscribe(TOPIC, GROUP)
    counted = []
    for keys in (1, 40):
        publish_many(TOPIC, [{"n": n} for n in range(keys)])
        page(admin_client)
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            page(admin_client)
        counted.append(len(captured))
    assert counted[0] == counted[1]


def test_the_list_finds_by_name_and_pages_by_key(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list includes topics with messages and no group, and topics with groups and no messages."""
    monkeypatch.setattr(status, "TOPICS_ON_A_PAGE", 2)
    publish("a/1", 1)
    subscribe("a?2", "g")
    publish("b", 1)
    assert listed(admin_client) == ["a/1", "a?2"]
    html = html_of(admin_client, url_of("topic_changelist"))
    (following,) = re.findall(r'href="(\?after=[^"]+)">Next page', html)
    assert unescape(following) == "?after=a%3F2"
    assert listed(admin_client, after="a?2") == ["b"]
    assert listed(admin_client, find="a") == ["a/1", "a?2"]
    assert listed(admin_client, find="?") == ["a?2"]
    assert "No topic has “zz” in its name." in html_of(
        admin_client, url_of("topic_changelist"), {"find": "zz"}
    )
    state = rows(html)["a/1"]["State"]
    assert state.startswith("No group")


def test_rows_of_the_log_of_actions_lead_here(admin_client: Client) -> None:
    from django_mqueue.admin.base.row_ids import encode

    url = url_of("topic_change", encode(("a/b",)))
    assert admin_client.get(url).headers["Location"] == f"{url_of('topic')}?topic=a%2Fb"
    assert admin_client.get(url_of("topic_change", "1")).headers["Location"] == url_of("topic_changelist")
