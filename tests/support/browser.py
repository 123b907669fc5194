"""Chromium without a window, as a person uses it: tests of pages in a real browser are made of this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.testing import StaticLiveServerTestCase
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from example_project.environment.browser import browser

SECONDS = 30
WIDE, NARROW = 1500, 360
LOOKS = 5


def start_chrome(profile: Path) -> Chrome:
    programs = browser()
    options = ChromeOptions()
    options.binary_location = programs.chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new",
        f"--window-size={WIDE},900",
        "--disable-dev-shm-usage",
        "--disable-gpu",
    ):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    driver = Chrome(options=options, service=ChromeService(programs.driver))
    driver.set_page_load_timeout(SECONDS)
    return driver


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    driver = start_chrome(tmp_path / "profile")
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """What a person does with a page, and sees of it."""

    def __init__(self, driver: Chrome, base: str) -> None:
        self.driver, self.base = driver, base

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    def log_in(self, name: str, password: str) -> None:
        self.open("/admin/login/?next=/admin/")
        self.driver.find_element(By.NAME, "username").send_keys(name)
        self.driver.find_element(By.NAME, "password").send_keys(password)
        self.click("[type=submit]")

    def click(self, selector: str) -> None:
        """Click, and wait until another page is there."""
        self.follow(By.CSS_SELECTOR, selector)

    def click_link(self, text: str) -> None:
        """The same for the first link or button that says just this."""
        path = f"//a[normalize-space()='{text}'] | //button[normalize-space()='{text}'] | //input[@value='{text}']"
        self.follow(By.XPATH, path)

    def follow(self, by: str, what: str) -> None:
        """The same for what is found in a way of selenium's (``By``)."""
        # The driver may fail to tell whether an element is still there while the page changes: a mark in it does tell.
        self.driver.execute_script("window.beforeTheClick = true")
        for _ in range(LOOKS):
            try:
                self.driver.find_element(by, what).click()
                break
            except StaleElementReferenceException:  # A part of the page has just been renewed.
                continue
        WebDriverWait(self.driver, SECONDS, ignored_exceptions=[WebDriverException]).until(
            lambda driver: driver.execute_script(
                "return !window.beforeTheClick && document.readyState === 'complete'"
            ),
            f"no other page came after a click on {what}",
        )

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def type(self, selector: str, text: str) -> None:
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def text_of(self, selector: str) -> str:
        return self.find(selector).text

    def style(self, selector: str, name: str) -> str:
        return self.find(selector).value_of_css_property(name)

    def wait_for(self, selector: str, text: str) -> None:
        """Until the first element there is says this; it may be replaced meanwhile."""
        WebDriverWait(self.driver, SECONDS, ignored_exceptions=[StaleElementReferenceException]).until(
            lambda driver: text in driver.find_element(By.CSS_SELECTOR, selector).text,
            f"{selector} never said {text!r}",
        )

    def width(self, pixels: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )

    def dark(self, on: bool) -> None:
        """As somebody sees it whose system is dark."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(script))

    def complaints(self) -> list[str]:
        """What the browser has complained of since the last look: errors of scripts, things forbidden or not there."""
        log: Any = self.driver.get_log
        said = [entry["message"] for entry in log("browser") if entry["level"] == "SEVERE"]
        return [text for text in said if "favicon.ico" not in text]

    def picture(self, path: Path, most: int = 4_000) -> None:
        """Save the page as an image, as wide as the window is and ``most`` pixels high."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        size = self.driver.execute_script(
            "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        width, height = int(size[0]), min(int(size[1]), most)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.save_screenshot(str(path))
        self.width(width)

    def save(self, name: str) -> None:
        """See that the browser has no complaints; with ``MQUEUE_SCREENSHOTS`` set to a folder, keep the page."""
        assert self.complaints() == []
        if folder := os.environ.get("MQUEUE_SCREENSHOTS"):
            self.picture(Path(folder) / f"{name}.png")

    def save_all_ways(self, name: str) -> None:
        """The same wide and narrow, light and dark; narrow, nothing may stick out."""
        for dark in (False, True):
            self.dark(dark)
            for pixels in (WIDE, NARROW):
                self.width(pixels)
                assert self.overflow() <= 0, f"{name} is {self.overflow()} pixels too wide for {pixels}"
                self.save(f"{name}-{'dark' if dark else 'light'}-{pixels}")
        self.dark(False)
        self.width(WIDE)


class BrowserCase(StaticLiveServerTestCase):
    """Tests with a browser, in which the superuser ``ada`` is logged in. Mark them slow."""

    page: Page

    @pytest.fixture(autouse=True)
    def _browser(self, chrome: Chrome) -> None:
        self.page = Page(chrome, self.live_server_url)

    def setUp(self) -> None:
        super().setUp()
        User.objects.create_superuser("ada", password="lovelace")
        self.page.log_in("ada", "lovelace")
