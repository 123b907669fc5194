"""An operator with a browser resets a group, pauses it, and releases the leases of a worker that hangs."""

from __future__ import annotations

from django.test import override_settings
from selenium.webdriver.common.by import By

from django_mqueue import Subscription, inspect, publish, subscribe
from django_mqueue.models import PartitionLease
from tests.support.browser import BrowserCase
from tests.support.subscribers import QUICK, consume, poll_until, settle

from .operating import url_of

EVIL = '<b>Zoë 😀</b> "quoted" & it\'s ' + "long-" * 15


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "RETENTION": 3600})
class TestOperating(BrowserCase):
    def test_a_group_is_moved_paused_and_freed_of_a_worker(self) -> None:
        with Subscription("orders", "billing", "worker-1") as first:
            for number in range(12):
                publish("orders", {"order": number}, key=f"customer-{number % 4}", kind="order.made")
            publish("orders", {"order": 12}, key=EVIL)
            publish("orders", {"order": 13})
            consume(first, 14)
            settle(first)
            later = [publish("orders", {"order": n}, key=f"customer-{n % 4}").offset for n in range(14, 18)]
            poll_until(first, 4)
            with Subscription("orders", "billing", EVIL) as second:
                second.poll()
                publish("orders", {"order": 18}, key=EVIL)
                publish("orders", {"order": 19}, key=EVIL + "2")
                poll_until(second, 1)
                self.look_at_workers()
                self.release()
        self.move(later[2])
        self.pause()

    def open_group(self) -> None:
        self.page.open(f"{url_of('group')}?topic=orders&group=billing")

    def look_at_workers(self) -> None:
        self.open_group()
        self.page.save_all_ways("group")
        self.page.follow(By.XPATH, "//*[@class='mqueue-tools']//a[.='Subscribers']")
        assert "worker-1" in self.page.text_of(".mqueue-members")
        self.page.save_all_ways("subscribers")
        self.open_group()
        self.page.click_link("Partitions")
        assert "customer-1" in self.page.text_of("#mqueue-main table")
        self.page.save_all_ways("partitions")
        self.page.type("#id_key", "customer-1")
        self.page.click_link("Search")
        assert len(self.page.all("#mqueue-main tbody tr")) == 1

    def release(self) -> None:
        self.page.follow(By.PARTIAL_LINK_TEXT, "Release")
        assert "Release 1 lease of worker-1 on key customer-1" in self.page.text_of(".mqueue-what")
        self.page.save_all_ways("release")
        self.page.click_link("Release")
        assert "1 lease was released: key customer-1." in self.page.text_of(".messagelist")
        assert PartitionLease.objects.filter(partition_key="customer-1", leased_by="worker-1").count() == 0
        self.page.save_all_ways("released")

    def move(self, offset: int) -> None:
        self.open_group()
        self.page.click_link("Reset")
        self.page.save_all_ways("move")
        self.page.find('input[value="time"]').click()
        self.page.click('input[type="submit"].default')
        assert "This needs a time." in self.page.text_of("#mqueue-main")
        assert len(self.page.complaints()) == 1  # The browser logs the status 400.
        self.page.find('input[value="offset"]').click()
        self.page.type("#id_offset", str(offset))
        self.page.click('input[type="submit"].default')
        assert f"Reset group billing on topic orders to offset {offset}?" in self.page.text_of(".mqueue-what")
        self.page.save_all_ways("move-preview")
        self.page.click_link("Reset")
        assert "starts after offset" in self.page.text_of(".messagelist")
        assert inspect.groups("orders")[0].start == offset - 1

    def pause(self) -> None:
        self.page.click_link("Pause")
        self.page.save_all_ways("pause")
        self.page.click_link("Pause")
        assert inspect.groups("orders")[0].paused
        self.page.save_all_ways("paused")
        self.page.click_link("Resume")
        self.page.click_link("Resume")
        assert not inspect.groups("orders")[0].paused

    def test_lists_lead_to_what_can_be_done(self) -> None:
        subscribe("orders", "billing")
        publish("orders", 1, key="customer-1")
        with Subscription("orders", "billing", "worker-1") as subscription:
            poll_until(subscription, 1)
            for page in ("partitionlease", "offset", "subscriberheartbeat"):
                self.page.open(url_of(f"{page}_changelist"))
                self.page.save_all_ways(page)
