"""Every link of the overview and of the pages of topics and groups works for each user who sees it."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

import pytest
from django.core.cache import cache
from django.test import Client

from django_mqueue import Subscription, publish, subscribe
from tests.features.inspect.scene import one_of_each
from tests.support.subscribers import poll_until

from .looking import html_of
from .operating import staff, url_of

pytestmark = pytest.mark.django_db(transaction=True)

LANDING = "/admin/django_mqueue/"
EVIL = "<i>'\"&?#%2F/+ \U0001f600\\"
RIGHTS = [
    ("view_topic",),
    ("view_topic", "view_consumergroup", "view_message", "view_partitionlease", "reset_consumergroup"),
    ("view_topic", "view_consumergroup", "view_deadletter", "view_subscriberheartbeat", "pause_topic"),
]


@pytest.fixture(autouse=True)
def _world() -> None:
    cache.clear()
    one_of_each()
    publish("lonely", 1)
    subscribe(EVIL, EVIL)
    for n in range(3):
        publish(EVIL, n, key=EVIL, id=f"{EVIL}{n}")
    subscription = Subscription(EVIL, EVIL, EVIL).open()
    first, second, _ = poll_until(subscription, 3)
    first.reject("no")
    second.nack(delay=100, error="later")
    subscription._subscriber = None


def links(client: Client, url: str) -> set[str]:
    """Return the links of a page's own part, without the frame around it."""
    html = html_of(client, url)
    part = (
        html.partition('class="mqueue-navigation"')[2]
        .partition('id="content-main"')[0]
        .partition("<footer")[0]
    )
    assert part, url
    found = {urljoin(url, unescape(one)) for one in re.findall(r'href="([^"]+)"', part)}
    return {one for one in found if one.startswith("/admin/")}


def walked(client: Client, start: str) -> set[str]:
    """Follow the links of our pages, request each other URL once, and return all URLs."""
    ours = (
        LANDING,
        url_of("topic"),
        url_of("group"),
        url_of("topic_changelist"),
        url_of("consumergroup_changelist"),
    )
    seen, todo = set(), [start]
    while todo:
        url = todo.pop()
        if url in seen:
            continue
        seen.add(url)
        if url.partition("?")[0] in ours:
            todo += links(client, url)
        else:
            response = client.get(url)
            assert response.status_code == 200, (url, response.status_code)
    return seen


@pytest.mark.parametrize("rights", RIGHTS, ids=[str(len(one)) + one[-1] for one in RIGHTS])
def test_who_sees_a_link_may_follow_it(rights: tuple[str, ...]) -> None:
    seen = {url.partition("?")[0] for url in walked(staff(*rights), LANDING)}
    assert (url_of("group") in seen) == ("view_consumergroup" in rights)
    assert (url_of("message_changelist") in seen) == ("view_message" in rights)
    assert (url_of("deadletter_list") in seen) == ("view_deadletter" in rights)
    assert (url_of("group_subscribers") in seen) == ("view_subscriberheartbeat" in rights)
    assert (url_of("reset_group") in seen) == ("reset_consumergroup" in rights)


def test_a_superuser_gets_everywhere(admin_client: Client) -> None:
    seen = walked(admin_client, LANDING)
    pages = {url.partition("?")[0] for url in seen}
    for page in ("pause_group", "reset_group", "pause_topic", "group_partitions", "deadletter_errors"):
        assert url_of(page) in pages
    statuses = {url.rpartition("status=")[2] for url in seen if "status=" in url}
    assert statuses >= {"pending", "in_flight", "waiting", "scheduled"}
