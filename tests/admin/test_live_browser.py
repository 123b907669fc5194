"""Pages in a browser that refresh themselves, ages instead of times, tables on narrow screens, skip links."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import override_settings
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from django_mqueue import Subscription, inspect, publish, subscribe
from django_mqueue.admin.groups.model_admin import GroupPage
from django_mqueue.admin.messages.timeline import MessagePage
from django_mqueue.admin.topics import status
from django_mqueue.admin.topics.model_admin import TopicPage
from django_mqueue.models import Message
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.browser import BrowserCase
from tests.support.processes import database_ms
from tests.support.subscribers import QUICK, poll_until, settle

from .operating import url_of
from .overview_tables import AGES

STATUS = "[data-mqueue-status]"
PENDING = f'a[href$="topic={TOPIC}&group={GROUP}&status=pending"]'
NARROW = """
const all = (selector) => [...document.querySelectorAll(selector)];
return [
  all(".mqueue-scroll, #changelist .results").map((table) => table.scrollWidth - table.clientWidth),
  all(".mqueue-cards td[data-label]").map((cell) => [getComputedStyle(cell, "::before").content, cell.dataset.label]),
];
"""
"""Returns by how much each table is too wide, and of each cell the shown label and the right one."""


@override_settings(MQUEUE=QUICK)
class TestLive(BrowserCase):
    @pytest.fixture(autouse=True)
    def _quickly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Refresh every second, without a cache."""
        cache.clear()
        for name in AGES:
            monkeypatch.setattr(status, name, 0.0)
        for page in (GroupPage, TopicPage, MessagePage):
            monkeypatch.setattr(page, "refresh_seconds", 1)

    def test_pages_of_topic_and_group(self) -> None:
        subscribe(TOPIC, GROUP)
        publish(TOPIC, 1, key="k")
        for path in (f"{url_of('group')}?topic={TOPIC}&group={GROUP}", f"{url_of('topic')}?topic={TOPIC}"):
            self.page.open(path)
            count = len(inspect.messages(TOPIC, group=GROUP, status="pending").messages)
            self.page.wait_for(PENDING, str(count))
            # In scripts, because each refresh replaces the elements.
            run = self.page.driver.execute_script
            run("document.querySelector('#mqueue-throughput-numbers summary').click()")
            publish(TOPIC, 2, key="k")
            self.page.wait_for(PENDING, str(count + 1))
            shown = "return document.querySelector('#mqueue-throughput-numbers table').checkVisibility()"
            assert run(shown), "it stays open"
            links = "return [...document.querySelectorAll('#mqueue-main a')].map((one) => one.href).join(' ')"
            assert "fragment" not in self.page.driver.execute_script(links)
            assert self.page.complaints() == []

    def test_a_message_until_it_is_done(self) -> None:
        subscribe(TOPIC, GROUP)
        offset = publish(TOPIC, {"order": 1}, key="k").offset
        self.page.open(url_of("message_change", offset))
        self.page.wait_for(".mqueue-stand", "pending")
        with Subscription(TOPIC, GROUP, name="w") as subscription:
            (delivery,) = poll_until(subscription, 1)
            self.page.wait_for(".mqueue-stand", "in flight")
            self.page.save_all_ways("message-in-flight")
            delivery.ack()
            settle(subscription)
        self.page.wait_for(".mqueue-stand", "done")
        self.page.wait_for(STATUS, "Nothing more will change")
        assert not self.page.find("[data-mqueue-pause]").is_displayed()
        self.page.open(url_of("message_change", offset))
        assert self.page.all(STATUS) == [], "a done message does not refresh"

    def test_a_scheduled_message_that_is_cancelled(self) -> None:
        offset = publish(TOPIC, 1, key="k", delay=3600).offset
        self.page.open(url_of("message_change", offset))
        self.page.save_all_ways("message-scheduled")
        Message.objects.filter(offset=offset).delete()
        self.page.wait_for(STATUS, "This no longer exists")
        assert all("404" in one for one in self.page.complaints())

    def test_times_are_ages(self) -> None:
        """The exact time is in the tooltip. The server's clock counts, not that of the browser."""
        offset = publish(TOPIC, 1, key="k").offset
        ms = database_ms() - int(timedelta(hours=3, minutes=5) / timedelta(milliseconds=1))
        Message.objects.filter(offset=offset).update(published_at=ms, created_at=ms)
        publish(TOPIC, 2, key="k", delay=7500)
        self.page.open(f"{url_of('message_changelist')}?topic={TOPIC}")
        shown = self.page.find("td.field-published_short time")
        assert shown.text == "3 hr. ago"
        assert re.match(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC, epoch \d+ ms", shown.get_attribute("title") or ""
        )
        self.page.open(f"{url_of('message_changelist')}?topic={TOPIC}&status=scheduled")
        assert self.page.text_of("td.field-due time") == "in 2 hr."
        with override_settings(LANGUAGE_CODE="de"):
            self.page.open(f"{url_of('message_changelist')}?topic={TOPIC}")
            assert self.page.text_of("td.field-published_short time") == "vor 3 Std."

    def test_ages_of_a_browser_whose_clock_is_wrong(self) -> None:
        publish(TOPIC, 1, key="k")
        script = "const now = Date.now; Date.now = () => now() + 7_200_000;"
        self.page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        self.page.open(f"{url_of('message_changelist')}?topic={TOPIC}")
        assert "hr" not in self.page.text_of("td.field-published_short time")

    def test_tables_at_400_pixels(self) -> None:
        """Each row is a card: no table scrolls sideways, and each value has the label of its column."""
        offsets = one_of_each()
        self.page.width(400)
        for name, path in {
            "group": f"{url_of('group')}?topic={TOPIC}&group={GROUP}",
            "partitions": f"{url_of('group_partitions')}?topic={TOPIC}&group={GROUP}",
            "members": f"{url_of('group_subscribers')}?topic={TOPIC}&group={GROUP}",
            "messages": f"{url_of('message_changelist')}?topic={TOPIC}&group={GROUP}",
            "message": url_of("message_change", offsets["waiting"]),
            "actions": url_of("actions"),
            "leases": url_of("partitionlease_changelist"),
            "states": url_of("deliverystate_changelist"),
            "subscribers": url_of("subscriberheartbeat_changelist"),
            "offsets": url_of("offset_changelist"),
        }.items():
            self.page.open(path)
            assert self.page.overflow() <= 0, name
            # One script: a page that refreshes itself replaces its elements between two.
            wide, labels = self.page.driver.execute_script(NARROW)
            assert not any(wide), name
            assert not wide or labels, name
            assert all(shown.strip('"') == label for shown, label in labels), name
            self.page.save(f"narrow-{name}")
            self.page.width(400)

    def test_skip_links(self) -> None:
        """The first link leads past the side bar, and another one past the list of pages."""
        one_of_each()
        self.page.open(f"{url_of('group')}?topic={TOPIC}&group={GROUP}")
        body = self.page.driver.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        first = self.page.driver.switch_to.active_element
        assert first.get_attribute("href").endswith("#content-start")  # type: ignore[union-attr]
        first.send_keys(Keys.ENTER)
        for _number in range(3):
            self.page.driver.switch_to.active_element.send_keys(Keys.TAB)
            if "mqueue-skip" in (self.page.driver.switch_to.active_element.get_attribute("class") or ""):
                break
        skip = self.page.driver.switch_to.active_element
        assert skip.text == "Skip the list of pages"
        assert skip.is_displayed()
        skip.send_keys(Keys.ENTER)
        self.page.driver.switch_to.active_element.send_keys(Keys.TAB)
        focused = self.page.driver.switch_to.active_element
        assert self.page.driver.execute_script(
            "return document.querySelector('#mqueue-main').contains(arguments[0])", focused
        )
