"""Headless Chromium for tests of pages in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.testing import StaticLiveServerTestCase
from django.core.cache import cache
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from example_project.environment.browser import browser

from .waiting import PATIENCE

SECONDS = PATIENCE
WIDE, NARROW = 1500, 360


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
    driver.set_script_timeout(SECONDS)
    return driver


@contextmanager
def running_chrome(profile: Path) -> Iterator[Chrome]:
    driver = start_chrome(profile)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    with running_chrome(tmp_path / "profile") as driver:
        yield driver


class Page:
    """A page in the browser. Its methods do what a person does, and return what a person sees."""

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
        """Click an element, and wait until another page has loaded."""
        self.follow(By.CSS_SELECTOR, selector)

    def click_link(self, text: str) -> None:
        """Click the first link or button with exactly this text, and wait until another page has loaded."""
        path = f"//a[normalize-space()='{text}'] | //button[normalize-space()='{text}'] | //input[@value='{text}']"
        self.follow(By.XPATH, path)

    def follow(self, by: str, what: str) -> None:
        """Wait for the element that Selenium finds (``By``), click it, and wait until another page has loaded."""
        # While the page changes, the driver may not know whether an element still exists. The new page's window lacks
        # this variable.
        self.driver.execute_script("window.beforeTheClick = true")

        def click(driver: Chrome) -> bool:
            driver.find_element(by, what).click()
            return True

        # A page that refreshes itself replaces its parts, and shows new groups only after some seconds.
        WebDriverWait(self.driver, SECONDS, ignored_exceptions=[WebDriverException]).until(
            click, f"there is no {what}"
        )
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
        """Wait until the first matching element contains this text. The page may replace the element meanwhile."""
        WebDriverWait(self.driver, SECONDS, ignored_exceptions=[WebDriverException]).until(
            lambda driver: text in driver.find_element(By.CSS_SELECTOR, selector).text,
            f"{selector} never said {text!r}",
        )

    def width(self, pixels: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )

    def dark(self, on: bool) -> None:
        """Show the page in the dark or the light colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def overflow(self) -> int:
        """Return the number of pixels by which the page is wider than the window."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(script))

    def complaints(self) -> list[str]:
        """Return the browser's errors since the last call: script errors, blocked content, missing files."""
        log: Any = self.driver.get_log
        said = [entry["message"] for entry in log("browser") if entry["level"] == "SEVERE"]
        return [text for text in said if "favicon.ico" not in text]

    def picture(self, path: Path, most: int = 4_000) -> None:
        """Save the page as an image, as wide as the window and at most ``most`` pixels high."""
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
        """Fail if the browser has logged errors. Save the page if ``MQUEUE_SCREENSHOTS`` names a folder."""
        assert self.complaints() == []
        if folder := os.environ.get("MQUEUE_SCREENSHOTS"):
            self.picture(Path(folder) / f"{name}.png")

    def save_all_ways(self, name: str) -> None:
        """Call ``save`` wide and narrow, light and dark. Fail if the page is wider than the window."""
        for dark in (False, True):
            self.dark(dark)
            for pixels in (WIDE, NARROW):
                self.width(pixels)
                assert self.overflow() <= 0, f"{name} is {self.overflow()} pixels too wide for {pixels}"
                self.save(f"{name}-{'dark' if dark else 'light'}-{pixels}")
        self.dark(False)
        self.width(WIDE)


class BrowserCase(StaticLiveServerTestCase):
    """Tests in a browser, in which the superuser ``ada`` is logged in. Mark them slow."""

    page: Page

    @pytest.fixture(autouse=True)
    def _browser(self, chrome: Chrome) -> None:
        self.page = Page(chrome, self.live_server_url)

    def setUp(self) -> None:
        super().setUp()
        cache.clear()  # Pages keep figures for some seconds, and the next test may see them.
        User.objects.create_superuser("ada", password="lovelace")
        self.page.log_in("ada", "lovelace")
