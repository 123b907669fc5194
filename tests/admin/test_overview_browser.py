"""The overview in a browser: it refreshes itself and keeps the focus and the scroll position."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import DatabaseError
from django.test import override_settings
from selenium.webdriver.common.by import By

from django_mqueue import publish, reset, subscribe
from django_mqueue.admin.topics import overview, status
from django_mqueue.store import removal
from tests.features.groups.test_removal import half_done
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.browser import BrowserCase
from tests.support.processes import wait_until

from .overview_tables import AGES

LANDING = "/admin/django_mqueue/"
WAITING = f'a[href$="topic={TOPIC}&group={GROUP}&status=pending"]'
STATUS = "[data-mqueue-status]"
EVERY = 1000
"""Milliseconds between two refreshes."""

LATER = f"setTimeout(() => fetch('/admin/jsi18n/').then(arguments[0]), {2 * EVERY})"
"""Script that returns when the page would have refreshed itself: the page's timer fires first."""


class TestInABrowser(BrowserCase):
    looks: int

    @pytest.fixture(autouse=True)
    def _quickly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Refresh every second without a cache. Count the reads of the overview, and let them fail on demand."""
        cache.clear()
        self.looks, self.broken = 0, False
        for name in AGES:
            monkeypatch.setattr(status, name, 0.0)
        monkeypatch.setattr(overview, "EVERY", EVERY // 1000)
        real = status.overview

        def counted(*given: Any) -> Any:
            self.looks += 1
            if self.broken:
                raise DatabaseError("gone away")
            return real(*given)

        monkeypatch.setattr(status, "overview", counted)

    def test_it_refreshes_itself(self) -> None:
        one_of_each()
        self.page.open(LANDING)
        self.keeps_focus_and_place()
        self.can_be_paused()
        self.rests_while_nobody_sees_it()
        self.tells_errors_and_recovers()
        assert self.page.complaints() == []
        self.says_when_one_is_signed_out()

    def keeps_focus_and_place(self) -> None:
        self.page.width(360)
        self.page.driver.execute_script("window.scrollTo(0, 300)")
        self.page.driver.execute_script(
            "document.querySelector(arguments[0]).focus({preventScroll: true})", WAITING
        )
        before = self.page.find(WAITING)
        publish(TOPIC, {"is": "new"}, key="new")
        self.page.wait_for(WAITING, "2")
        focused = self.page.driver.switch_to.active_element
        assert focused != before
        script = "return document.activeElement === document.querySelector(arguments[0])"
        assert self.page.driver.execute_script(script, WAITING)
        assert self.page.driver.execute_script("return window.scrollY") == 300
        self.page.width(1500)

    def can_be_paused(self) -> None:
        self.page.find("[data-mqueue-pause]").click()
        self.page.wait_for(STATUS, "Refreshing is paused.")
        publish(TOPIC, {"is": "newer"}, key="newer")
        self.refresh_until(WAITING, "3")
        looks = self.looks
        publish(TOPIC, {"is": "later"}, key="later")
        self.page.driver.execute_async_script(LATER)
        assert self.looks == looks
        assert self.page.text_of(WAITING) == "3"
        self.page.find("[data-mqueue-pause]").click()
        self.page.wait_for(WAITING, "4")
        assert self.page.text_of(STATUS) == ""

    def refresh_until(self, selector: str, text: str) -> None:
        """Click "Refresh now" until the page shows the text. On return, no refresh of a paused page is under way.

        A click during a refresh does nothing.
        """
        script = (
            "const isShown = document.querySelector(arguments[0]).textContent.includes(arguments[1]);"
            "if (!isShown) document.querySelector('[data-mqueue-now]').click();"
            "return isShown"
        )
        wait_until(lambda: self.page.driver.execute_script(script, selector, text), f"the page shows {text}")

    def rests_while_nobody_sees_it(self) -> None:
        driver = self.page.driver
        here = driver.current_window_handle
        driver.execute_script(f"setTimeout(() => localStorage.setItem('later', 'yes'), {2 * EVERY})")
        driver.switch_to.new_window("tab")
        self.page.open("/admin/jsi18n/")
        looks = self.looks
        wait_until(lambda: driver.execute_script("return localStorage.getItem('later')"), "it would be due")
        assert self.looks <= looks + 1
        publish(TOPIC, {"is": "newest"}, key="newest")
        driver.close()
        driver.switch_to.window(here)
        self.page.wait_for(WAITING, "5")

    def tells_errors_and_recovers(self) -> None:
        self.broken = True
        self.page.wait_for(STATUS, "Not refreshed: the server answered 503. The numbers are old.")
        assert self.page.text_of(WAITING) == "5"
        self.broken = False
        wait_until(lambda: self.page.text_of(STATUS) == "", "a refreshed page")
        assert all("503" in one for one in self.page.complaints())

    def says_when_one_is_signed_out(self) -> None:
        Session.objects.all().delete()
        self.page.wait_for(STATUS, "You are signed out")
        assert not self.page.find("[data-mqueue-pause]").is_displayed()
        assert self.page.text_of(WAITING) == "5"

    @override_settings(LANGUAGE_CODE="de")
    def test_in_german(self) -> None:
        """The script's texts are translated, and no longer text makes a page wider than the window."""
        one_of_each()
        self.page.open(LANDING)
        self.page.find("[data-mqueue-pause]").click()
        self.page.wait_for(STATUS, "Die Aktualisierung ist pausiert.")
        assert self.page.text_of("[data-mqueue-pause]") == "Aktualisierung fortsetzen"
        self.broken = True
        self.refresh_until(STATUS, "503")
        self.page.wait_for(
            STATUS,
            "Nicht aktualisiert: Der Server antwortete mit 503. Die Zahlen sind veraltet."
            " Die Aktualisierung ist pausiert.",
        )
        self.broken = False
        assert all("503" in one for one in self.page.complaints())
        for name, path in {
            "overview": "",
            "topic": f"topic/page/?topic={TOPIC}",
            "group": f"consumergroup/page/?topic={TOPIC}&group={GROUP}",
            "messages": f"message/?topic={TOPIC}&group={GROUP}",
            "letters": f"deadletter/list/?topic={TOPIC}",
        }.items():
            self.page.open(LANDING + path)
            self.page.save_all_ways(f"german-{name}")

    def test_how_the_pages_look(self) -> None:
        one_of_each()
        publish("lonely", 1)
        subscribe("<b>hostile</b> & long-" + "x" * 60, "<script>document.title='taken over'</script>")
        self.page.open(LANDING)
        assert len(self.page.all("#mqueue-overview tbody")) == 3
        assert self.page.style("#content", "max-width") == "none"
        self.page.save_all_ways("overview")
        for name, path in {
            "topic": f"topic/page/?topic={TOPIC}",
            "group": f"consumergroup/page/?topic={TOPIC}&group={GROUP}&span=day",
            "topics": "topic/",
            "groups": "consumergroup/",
        }.items():
            self.page.open(LANDING + path)
            assert "taken over" not in self.page.driver.title
            self.page.save_all_ways(name)
        self.page.open(LANDING + f"topic/page/?topic={TOPIC}")
        assert not self.page.find("#mqueue-throughput-numbers table").is_displayed()
        self.page.find("#mqueue-throughput-numbers summary").click()
        assert (
            len(self.page.driver.find_elements(By.CSS_SELECTOR, "#mqueue-throughput-numbers tbody tr")) == 60
        )
        assert self.page.find("#mqueue-throughput-numbers table").is_displayed()

    def test_a_group_whose_reset_is_not_finished(self) -> None:
        one_of_each()
        with patch.object(removal, "ROWS", 1):
            half_done(lambda: reset(TOPIC, GROUP, "earliest", force=True), pieces=1)
        for name, path in {
            "overview-resetting": "",
            "group-resetting": f"consumergroup/page/?topic={TOPIC}&group={GROUP}",
            "offsets-resetting": "offset/",
        }.items():
            self.page.open(LANDING + path)
            assert "resetting" in self.page.text_of("#content").lower()
            self.page.save_all_ways(name)

    def test_by_the_mouse_from_the_overview_to_a_group(self) -> None:
        one_of_each()
        self.page.open(LANDING)
        self.page.click_link(GROUP)
        assert self.page.text_of("h1") == f"{GROUP} on {TOPIC}"
        self.page.click_link("The last day")
        assert self.page.text_of("#history") == "The last day"
        self.page.click_link("Pause")
        self.page.click_link("Pause")
        assert "Paused, and messages wait" in self.page.text_of("#mqueue-main")
        offered = [one.text for one in self.page.all(".mqueue-tools a")]
        assert ("Resume" in offered, "Pause" in offered) == (True, False)
