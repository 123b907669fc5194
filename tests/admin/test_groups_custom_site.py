"""The operators' pages of groups on a custom admin site, with the queue in another database than the users."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import path

from django_mqueue import OutgoingMessage, StaleDelivery, Subscription, publish_many
from django_mqueue.admin import register
from django_mqueue.inspect import groups
from django_mqueue.models import Offset, PartitionLease
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, poll_until

from .test_dead_letters_custom_site import press, url_of

site = AdminSite(name="own")
register(site)
urlpatterns = [path("own/", site.urls)]

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.urls(__name__),
]

OF = {"topic": "orders", "group": "billing"}


elsewhere = with_settings(MQUEUE={**QUICK, "DATABASE": "other", "LEASE_DURATION": 600, "RETENTION": 3600})


def test_every_page_and_button_stays_there(admin_client: Client) -> None:
    before = list(Offset.objects.using("default").values())
    publish_many("orders", [OutgoingMessage(number, key=f"k{number}") for number in range(3)])
    with Subscription("orders", "billing", "worker-1") as subscription:
        held = poll_until(subscription, 3)
        for page in ("group", "group_partitions", "group_subscribers", "reset_group", "partitionlease_changelist",
                     "offset_changelist", "subscriberheartbeat_changelist", "topic"):  # fmt: skip
            html = admin_client.get(url_of(page), OF if "changelist" not in page else {}).content.decode()
            hrefs = [
                unescape(href) for href in re.findall(r'href="(/[^"]+)"', html) if "/static/" not in href
            ]
            assert hrefs
            assert {href.split("/")[1] for href in hrefs} == {"own"}, page
        assert press(admin_client, "release_leases", {**OF, "partition": "k0"}).startswith("/own/")
        assert press(admin_client, "release_leases", {**OF, "subscriber": "worker-1"}).startswith("/own/")
        assert set(PartitionLease.objects.using("other").values_list("leased_by", flat=True)) == {""}
        with pytest.raises(StaleDelivery):
            held[0].ack()
        assert press(admin_client, "reset_group", {**OF, "to": "latest"}, force="on").startswith("/own/")
    assert press(admin_client, "pause_group", OF).startswith("/own/")
    assert groups("orders")[0].paused
    assert press(admin_client, "resume_group", OF).startswith("/own/")
    publish_many("orders", [3])
    with Subscription("orders", "billing") as subscription:
        assert [one.payload for one in consume(subscription, 1)] == [3]
    assert list(Offset.objects.using("default").values()) == before
    assert not PartitionLease.objects.using("default").exists()
    entries = LogEntry.objects.order_by("pk")
    assert len(entries) == 5
    for entry in entries:
        url = entry.get_admin_url()
        assert url is not None
        response = admin_client.get(url.replace("/admin/", "/own/"), follow=True)
        assert response.status_code == 200
