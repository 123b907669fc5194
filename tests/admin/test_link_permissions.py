"""No page links to a page that the user may not view. An operation ends on no such page either."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client

from django_mqueue import publish, subscribe
from django_mqueue.models import DeliveryState

from .dead_letters import TOPIC, give_up
from .looking import links
from .operating import confirm, staff, told, url_of

pytestmark = pytest.mark.django_db(transaction=True)

OF = {"topic": TOPIC, "group": "billing"}
OPERATIONS = [
    ("pause_consumergroup", "pause_group", OF),
    ("pause_topic", "pause_topic", {"topic": TOPIC}),
    ("reset_consumergroup", "reset_group", {**OF, "to": "earliest"}),
    (
        "publish_message",
        "publish_message",
        {"topic": TOPIC, "payload_format": "json", "payload": "1", "id": "new"},
    ),
]


def broken(client: Client, url: str) -> list[tuple[str, int]]:
    """Return the page's links that fail, with their status."""
    found = []
    html = client.get(url).content.decode()
    for link in set(re.findall(r'(?:href|action|formaction)="([^"#]+)"', html)):
        to = urlsplit(urljoin(url, unescape(link)))
        if to.path.startswith("/admin/") and "/logout/" not in to.path:
            status = client.get(f"{to.path}?{to.query}").status_code
            if status >= 400:
                found.append((link, status))
    return found


@pytest.mark.parametrize(("right", "page", "asked"), OPERATIONS)
def test_an_operation_ends_where_one_may_look(right: str, page: str, asked: dict[str, str]) -> None:
    """A user with this one permission sees the operation's result and no dead link on the way."""
    subscribe(TOPIC, "billing")
    client = staff(right)
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    assert broken(client, f"{url_of(page)}?{query}") == []
    response = confirm(client, page, asked)
    assert response.status_code == 200
    assert len(told(response)) == 1


def test_the_release_of_a_lease_too() -> None:
    from django_mqueue import Subscription
    from tests.support.subscribers import poll_until

    subscribe(TOPIC, "billing")
    publish(TOPIC, 1)
    with Subscription(TOPIC, "billing", name="w") as subscription:
        poll_until(subscription, 1)
        client = staff("release_partitionlease")
        asked = {**OF, "subscriber": "w"}
        assert broken(client, f"{url_of('release_leases')}?topic={TOPIC}&group=billing&subscriber=w") == []
        assert told(confirm(client, "release_leases", asked)) != []


def test_the_message_of_a_delivery_is_a_link_for_who_may_see_it(admin_client: Client) -> None:
    give_up(1)
    assert DeliveryState.objects.exists()
    (url,) = links(admin_client, "deliverystate")
    assert "/message/" in admin_client.get(url).content.decode().partition('id="deliverystate_form"')[2]
    assert broken(staff("view_deliverystate"), url) == []
