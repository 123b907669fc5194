"""An operator with a browser cancels and reschedules a message, removes messages of a group, and unsubscribes it."""

from __future__ import annotations

from django_mqueue import inspect, publish, publish_many, scheduled, subscribe
from tests.features.inspect.scene import GROUP, TOPIC
from tests.support.browser import BrowserCase

from .operating import url_of


class TestOperations(BrowserCase):
    def test_scheduled_messages(self) -> None:
        first, second = (publish(TOPIC, n, key="k", delay=86_400).offset for n in range(2))
        self.page.open(url_of("message_change", first))
        self.page.click_link("Reschedule")
        self.page.save_all_ways("reschedule")
        self.page.driver.execute_script("document.querySelector('#id_at').value = '2100-01-01T12:00'")
        self.page.click_link("Preview")
        self.page.type("#mqueue-reason", "too early")
        self.page.save_all_ways("reschedule-preview")
        self.page.click_link("Reschedule")
        assert "is now due at 2100-01-01 12:00:00 UTC." in self.page.text_of(".messagelist")
        self.page.open(url_of("message_change", second))
        self.page.click_link("Cancel the message")
        self.page.save_all_ways("cancel")
        self.page.click_link("Cancel the message")
        assert "is cancelled." in self.page.text_of(".messagelist")
        assert [one.payload for one in scheduled(TOPIC)] == [0]

    def test_a_group(self) -> None:
        subscribe(TOPIC, GROUP)
        publish_many(TOPIC, [{"n": n} for n in range(5)])
        self.page.open(f"{url_of('group')}?topic={TOPIC}&group={GROUP}")
        self.page.click_link("Remove messages")
        self.page.save_all_ways("remove")
        self.page.click_link("Preview")
        self.page.save_all_ways("remove-preview")
        self.page.type("#mqueue-reason", "test data")
        self.page.click_link("Remove")
        assert f"5 messages of topic {TOPIC} were removed" in self.page.text_of(".messagelist")
        self.page.save_all_ways("removed")
        assert "Messages removed" in self.page.text_of("#mqueue-main")
        assert ": test data" in self.page.text_of("#mqueue-main")
        self.page.click_link("Unsubscribe")
        self.page.save_all_ways("unsubscribe")
        self.page.click_link("Unsubscribe")
        assert inspect.groups(TOPIC) == []
        self.page.open(url_of("actions"))
        self.page.save_all_ways("actions-with-reasons")

    def test_a_message_that_does_not_exist(self) -> None:
        self.page.open(url_of("message_change", 4711))
        assert "There is no message 4711." in self.page.text_of("#mqueue-main")
        assert len(self.page.complaints()) == 1  # The browser logs the status 404.
        self.page.save_all_ways("no-such-message")
