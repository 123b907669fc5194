"""The overview: on the app's index page, on its own page, and as the fragment that is refreshed."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_mqueue import Subscription, pause, publish, publish_many, subscribe
from django_mqueue.admin import register
from django_mqueue.admin.topics import status
from django_mqueue.models import Message
from django_mqueue.spark.database import following
from django_mqueue.stats.summaries import Ages
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.subscribers import poll_until

from .dead_letters import give_up
from .looking import html_of, text
from .operating import staff, url_of
from .overview_tables import hrefs, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("nothing_remembered")]

LANDING = "/admin/django_mqueue/"


def test_topics_and_groups_with_their_numbers(admin_client: Client) -> None:
    one_of_each()
    found = rows(html_of(admin_client, LANDING))
    assert list(found) == [TOPIC, GROUP, "stock"]
    mine = found[GROUP]
    numbers = {
        name: mine[name] for name in ("Pending", "In flight", "For retry", "Scheduled", "Dead", "Subscribers")
    }
    assert numbers == dict.fromkeys(numbers, "1")
    assert mine["Oldest open"].endswith("s")
    assert mine["Finished per minute"].endswith("finished")
    assert found["stock"]["Pending"] == "5"
    assert found["stock"]["State"] == "No subscriber is alive, and messages wait"
    assert mine["State"] == ""
    assert found[TOPIC]["Kept"] == "5 in the log"
    # Five messages in four minutes and a part of the fifth.
    published = found[TOPIC]["Published per minute"]
    assert re.match(r"1(\.\d)? Published: 1(\.\d)? per minute in the last 5 minutes", published)
    assert "1 thing needs attention" in html_of(admin_client, LANDING)


def test_numbers_lead_to_where_they_are_looked_at(admin_client: Client) -> None:
    one_of_each()
    found = hrefs(html_of(admin_client, LANDING))
    messages = f"{url_of('message_changelist')}?topic=orders"
    for wanted in (
        f"{url_of('topic')}?topic=orders",
        f"{url_of('group')}?topic=orders&group=billing",
        messages,
        *(
            f"{messages}&group=billing&status={one}"
            for one in ("pending", "in_flight", "waiting", "scheduled")
        ),
        f"{url_of('deadletter_list')}?topic=orders&group=billing",
        f"{url_of('group_subscribers')}?topic=orders&group=billing",
    ):
        assert wanted in found
    assert not [one for one in found if "group=stock&status=in_flight" in one], "nothing is there to be seen"


def test_the_plain_list_stays_below(admin_client: Client) -> None:
    html = html_of(admin_client, LANDING)
    overview, _, below = html.partition("</section>")
    assert 'id="mqueue-overview"' in overview
    assert "Delivery states" in text(below)


def test_who_may_see_it() -> None:
    """Users without ``view_topic`` see only the list of tables, and get no fragment."""
    one_of_each()
    client = staff("view_offset")
    html = html_of(client, LANDING)
    assert "mqueue-overview" not in html
    assert "mqueue-navigation" not in html
    assert "Offsets" in html
    for query in ({}, {"fragment": "1"}):
        assert client.get(url_of("overview"), query).status_code == 403
    html = html_of(staff("view_topic", name="other"), LANDING)
    assert rows(html)[GROUP]["Pending"] == "1"
    assert {one.partition("?")[0] or LANDING for one in hrefs(html)} == {LANDING, url_of("topic")}


def test_strangers_are_sent_to_the_login() -> None:
    for url in (LANDING, url_of("overview"), url_of("overview") + "?fragment=1"):
        assert Client().get(url).status_code == 302


def test_the_fragment_is_marked_and_is_no_page(admin_client: Client) -> None:
    one_of_each()
    response = admin_client.get(url_of("overview"), {"fragment": "1"})
    assert response.headers["X-MQueue-Fragment"] == "overview"
    assert "no-cache" in response.headers["Cache-Control"]
    html = response.content.decode()
    assert "<html" not in html
    assert rows(html)[GROUP]["Pending"] == "1"
    assert "X-MQueue-Fragment" not in admin_client.get(url_of("overview")).headers
    assert unescape(re.findall(r'data-mqueue-refresh="([^"]+)"', html_of(admin_client, LANDING))[0]) == (
        f"{url_of('overview')}?fragment=1"
    )


def test_the_page_of_the_overview_is_the_current_one(admin_client: Client) -> None:
    """A site with its own landing page opens it at its own URL."""
    html = html_of(admin_client, url_of("overview"))
    assert re.findall(r'href="([^"]+)" aria-current="page"', html.partition("mqueue-navigation")[2]) == [
        url_of("overview")
    ]


def test_dead_letters_are_no_alarm_and_not_nothing(admin_client: Client) -> None:
    with Subscription("orders", GROUP, "worker-1"):
        assert "Nothing needs attention." in text(html_of(admin_client, LANDING))
    give_up(1)
    with Subscription("orders", GROUP, "worker-1"):
        cache.clear()  # The numbers are cached for a moment.
        assert "No alarms, but there are dead letters." in text(html_of(admin_client, LANDING))


def test_a_row_that_says_something_is_counted_above(admin_client: Client) -> None:
    """This includes a state that is not an alarm yet: deletion waits for a group."""
    with (
        override_settings(MQUEUE={"RETENTION": 0}),
        Subscription("orders", GROUP, "worker-1") as subscription,
    ):
        publish("orders", 1)
        poll_until(subscription, 1)
        html = html_of(admin_client, LANDING)
        assert rows(html)["orders"]["State"].startswith(
            f"Deletion waits for group {GROUP}, which is handling"
        )
        assert "Nothing is urgent, but 1 thing is not as usual." in text(html)


def test_many_dead_letters_at_once_are_an_alarm(admin_client: Client) -> None:
    """This alarm needs neither a missing worker nor waiting messages."""
    with Subscription("orders", GROUP, "worker-1") as subscription:
        publish_many("orders", list(range(12)))
        for delivery in poll_until(subscription, 12):
            delivery.reject("no")
        html = html_of(admin_client, LANDING)
    assert rows(html)[GROUP]["State"] == "12 dead letters in the last 10 min"
    assert "1 thing needs attention." in text(html)


def test_what_is_wrong_is_said_in_words(admin_client: Client) -> None:
    publish("lonely", 1)
    publish("still", 1)
    subscribe("still", "stopped")
    pause("still", "stopped")
    subscribe("quiet", "idle")
    subscribe("asleep", "paused")
    pause("asleep", "paused")
    with override_settings(MQUEUE={"LATE_AFTER": 0}):
        found = rows(html_of(admin_client, LANDING))
    assert (
        found["lonely"]["State"]
        == "No group: no group consumes the topic, and none of its messages are ever deleted"
    )
    assert found["stopped"]["State"].startswith(
        "Paused, and messages waitNo subscriber is alive, and messages waitLate: "
    )
    assert found["idle"]["State"] == "No subscriber is alive"
    assert found["paused"]["State"] == "PausedNo subscriber is alive"


def test_who_holds_back_deletion(admin_client: Client) -> None:
    with override_settings(MQUEUE={"RETENTION": 0}):
        publish("still", 1)
        subscribe("still", "stopped")
        pause("still", "stopped")
        assert "eletion waits for" in rows(html_of(admin_client, LANDING))["still"]["State"]


def topics_of(client: Client, **query: str) -> list[str]:
    """Return the topics of a page, in their order."""
    return [name for name in rows(html_of(client, LANDING, query)) if name != "g"]


def test_topics_are_found_and_paged(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "TOPICS_ON_THE_OVERVIEW", 2)
    for name in ("a&b", "b?c=d", "c/d", "d", "e"):
        subscribe(name, "g")
    seen, url = [], f"{LANDING}?sort=name"
    for _ in range(3):
        html = html_of(admin_client, url)
        seen += [name for name in rows(html) if name != "g"]
        following = re.findall(r'href="(\?[^"]+)">Next page', html)
        url = LANDING + unescape(following[0]) if following else ""
    assert seen == ["a&b", "b?c=d", "c/d", "d", "e"]
    assert url == ""
    assert "Page 3 of 3" in text(html)
    assert "First page" in html
    assert topics_of(admin_client, sort="name", p="99") == ["e"]
    assert topics_of(admin_client, sort="nothing", p="-1") == ["a&b", "b?c=d"]
    assert "g" in rows(html_of(admin_client, LANDING, {"find": "c/"}))
    assert topics_of(admin_client, find="c") == ["b?c=d", "c/d"]
    assert "No topic has “<zz>” in its name." in unescape(html_of(admin_client, LANDING, {"find": "<zz>"}))
    refreshed = unescape(html_of(admin_client, LANDING, {"find": "c", "sort": "dead"}))
    assert "fragment=1&sort=dead&find=c" in refreshed.partition("data-mqueue-refresh")[2]


def test_the_worst_of_all_topics_come_first(admin_client: Client) -> None:
    """The overview sorts all topics, and counts the alarms and dead letters of all, not only of one page."""
    for number in range(12):
        subscribe(f"topic-{number:02}", "g")
    publish("topic-11", 1)  # No subscriber is alive.
    Message.objects.bulk_create(
        [
            Message(
                topic="topic-09_dlq", partition_key="k", message_id=f"{number}:g", consumer_group="",
                payload=b"1", metadata={}, available_at=1, created_at=1, published_at=1, failed_at=1,
                failure_count=1, last_error="E", original_topic="topic-09", failed_group="g", original_id="i",
            )
            for number in range(7)
        ]
    )  # fmt: skip
    html = html_of(admin_client, LANDING)
    assert [name for name in rows(html) if name != "g"][:3] == ["topic-11", "topic-09", "topic-00"]
    assert "1 thing needs attention." in text(html)
    second = text(html_of(admin_client, LANDING, {"p": "2", "sort": "name"}))
    assert "1 thing needs attention." in second
    assert "12 topics, 12 groups" in second


def test_each_column_can_be_sorted_by(admin_client: Client) -> None:
    one_of_each()
    subscribe("a", "g")
    publish_many("b", [1] * 9)
    subscribe("b", "g")
    publish_many("c", [1] * 2)
    publish("c", 1, delay=3600)
    publish("c", 1, delay=3600)
    subscribe("c", "g")
    Message.objects.filter(topic="c").update(published_at=1)
    expected = {
        "name": "a", "pending": "b", "in_flight": TOPIC, "waiting": TOPIC, "scheduled": "c", "dead": TOPIC,
        "oldest": "c", "workers": TOPIC,
    }  # fmt: skip
    html = html_of(admin_client, LANDING)
    for sort, first in expected.items():
        assert f'href="?sort={sort}"' in html
        sorted_ = html_of(admin_client, LANDING, {"sort": sort})
        assert next(iter(rows(sorted_))) == first, sort
        assert sorted_.count("aria-sort=") == 1
    assert re.search(r'aria-sort="descending"[^>]*><a href="\??">State', html)


def test_totals_are_of_all_topics(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "TOPICS_ON_THE_OVERVIEW", 1)
    one_of_each()
    publish_many("other", [1, 2, 3])
    subscribe("other", "g")
    for page in ("1", "2"):
        html = html_of(admin_client, LANDING, {"p": page})
        assert len([name for name in rows(html) if name in (TOPIC, "other")]) == 1
        (line,) = re.findall(r'<tr class="mqueue-total"(.*?)</tr>', html, re.DOTALL)
        told = " ".join(text(f"<tr{line}").split())
        # Pending: 1 and 5 of the groups of orders, 3 of the other. Then in flight, for retry, scheduled, dead.
        assert told.startswith("2 topics, 3 groups 9 1 1 1 1 ")
        assert told.endswith("8 in the log")


def test_of_more_topics_than_can_be_looked_at_those_that_look_worst_are(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "SUBJECTS_COUNTED", 4)
    monkeypatch.setattr(status, "GROUPS_OF_A_TOPIC", 3)
    subscriptions = [Subscription(topic, "g", "w").open() for topic in ("a", "b", "c")]
    try:
        subscribe("d", "g")
        pause("b", "g")
        following.follow("a", "archive", 0, 0, using="default")  # It needs no worker.
        html = html_of(admin_client, LANDING)
        assert [name for name in rows(html) if name != "g"] == ["b", "d"]
        assert "Only the 2 topics that look worst are counted; 2 more were not counted." in text(html)
        for number in range(5):
            subscribe("e", f"e{number}")
        html = html_of(admin_client, LANDING, {"find": "e"})
        assert [name for name in rows(html) if "more" not in name] == ["e", "e0", "e1", "e2"]
        assert "and 2 more groups" in text(html)
    finally:
        for subscription in subscriptions:
            subscription.close()


def test_statements_do_not_grow_with_keys(admin_client: Client) -> None:
    subscribe("orders", "billing")
    counted = []
    for keys in (1, 40):
        publish_many("orders", [{"n": n} for n in range(keys)])
        cache.clear()
        html_of(admin_client, LANDING)
        with CaptureQueriesContext(connection) as captured:
            cache.clear()
            html_of(admin_client, LANDING)
        counted.append(len(captured))
    assert counted[0] == counted[1]


def test_what_many_look_at_together_is_asked_once(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request queries only the session and the user."""
    monkeypatch.setattr(status, "FRESH", Ages(3600.0, 3600.0, 3600.0))
    monkeypatch.setattr(status, "TOPICS_MAX_AGE", 3600.0)
    one_of_each()
    html_of(admin_client, url_of("overview"), {"fragment": "1"})
    with CaptureQueriesContext(connection) as captured:
        html_of(admin_client, url_of("overview"), {"fragment": "1"})
    assert [query["sql"] for query in captured if "queue_" in query["sql"]] == []


def test_no_payload_is_read_or_shown(admin_client: Client) -> None:
    publish("orders", {"secret": "not-for-everybody"}, key="k")
    subscribe("orders", "billing")
    with CaptureQueriesContext(connection) as captured:
        pages = [
            html_of(admin_client, LANDING),
            html_of(admin_client, url_of("topic"), {"topic": "orders"}),
            html_of(admin_client, url_of("group"), {"topic": "orders", "group": "billing"}),
        ]
    assert not [html for html in pages if "not-for-everybody" in html]
    reads = [query["sql"] for query in captured if "payload" in query["sql"]]
    assert len(reads) == 2, "only the newest actions, on the pages of the topic and of the group"


def test_hostile_names_are_escaped(admin_client: Client) -> None:
    evil = '<script>alert("x")</script>&\'%3C'
    subscribe(evil, "<b>bold</b>")
    publish(evil, 1)
    for query in ({}, {"find": evil}, {"find": "<b>", "sort": '"><b>', "p": '"><b>'}):
        html = html_of(admin_client, LANDING, query)
        assert "<script>alert" not in html
        assert "<b>" not in html
    (url,) = {one for one in hrefs(html_of(admin_client, LANDING)) if "consumergroup/page" in one}
    assert "<h1>&lt;b&gt;bold&lt;/b&gt; on &lt;script&gt;" in html_of(admin_client, url)


def test_nothing_there_yet(admin_client: Client) -> None:
    assert "There are no topics yet." in text(html_of(admin_client, LANDING))


@pytest.mark.filterwarnings("ignore")
def test_a_database_that_does_not_answer_is_said(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index page still links to all other pages. The fragment returns 503, and the script reports it."""

    def broken(*given: Any, **named: Any) -> Any:
        raise DatabaseError("gone away")

    monkeypatch.setattr(status, "overview", broken)
    html = html_of(admin_client, LANDING)
    assert "The queue's database did not answer." in unescape(html)
    assert "Delivery states" in html
    assert admin_client.get(url_of("overview"), {"fragment": "1"}).status_code == 503


def test_where_each_request_is_a_transaction(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own pages ignore ``ATOMIC_REQUESTS``. The index page belongs to Django and only reads."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    one_of_each()
    for url in (LANDING, url_of("overview"), f"{url_of('group')}?topic={TOPIC}&group={GROUP}"):
        assert GROUP in html_of(admin_client, url)


own = AdminSite(name="own")
register(own)
urlpatterns = [path("own/", own.urls)]


@pytest.mark.urls(__name__)
def test_links_stay_on_their_site(admin_client: Client) -> None:
    one_of_each()
    html = html_of(admin_client, "/own/django_mqueue/")
    assert rows(html)[GROUP]["Pending"] == "1"
    found = [one for one in hrefs(html) if not one.startswith("?")]
    assert found
    assert [one for one in found if not one.startswith("/own/django_mqueue/")] == []
    assert 'data-mqueue-refresh="/own/django_mqueue/topic/overview/?fragment=1"' in html


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_queue_may_live_in_another_database(admin_client: Client) -> None:
    publish("here", 1)
    with override_settings(MQUEUE={"DATABASE": "other"}):
        publish("elsewhere", 1)
        assert list(rows(html_of(admin_client, LANDING))) == ["elsewhere"]
    cache.clear()
    assert list(rows(html_of(admin_client, LANDING))) == ["here"]
