"""The pages in a real browser: Chromium without a window, and what it makes of them.

With ``MQUEUE_SCREENSHOTS`` set to a folder, each page is saved there as an image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.testing import StaticLiveServerTestCase
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from example_project.environment.browser import browser

from .rows import FAR, NOON, PAGES, dead_letter, delivery, heartbeat, lease, message, offset

SECONDS = 30
ERROR = (
    "TimeoutError: the payment service did not answer within 30 s\n\n"
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/consumers.py", line 41, in bill\n'
    "    charge(order)\n"
    "TimeoutError: the payment service did not answer within 30 s\n"
)


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    programs = browser()
    options = ChromeOptions()
    options.binary_location = programs.chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--window-size=1500,900", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    driver = Chrome(options=options, service=ChromeService(programs.driver))
    try:
        driver.set_page_load_timeout(SECONDS)
        yield driver
    finally:
        driver.quit()


def everything_that_can_be_seen() -> None:
    """A few rows of each kind, with long, foreign and hostile texts."""
    for number in range(130):
        message(
            partition_key=f"customer-{number % 7}" if number % 5 else " 0003",
            message_id=f"order-{number}",
            payload={"order": number, "lines": [{"article": "tea", "price": "3.20"}]},
            metadata={"kind": "order.made", "headers": {"trace": f"t-{number}"}, "encoding": "json"},
        )
    message(
        partition_key="<b>Zoë 😀</b>",
        payload={"html": "<script>document.title='taken over'</script>", "text": "long " * 300},
    )
    message(payload=bytes(range(256)) * 4, message_id="picture")
    dead_letter(last_error=ERROR)
    delivery(message_offset=1, acked=True, acked_at=NOON)
    delivery(message_offset=2, in_flight=True)
    delivery(message_offset=3, in_flight=True, invisible_until=NOON, partition_key=" 0003")
    delivery(
        message_offset=4,
        partition_key="a/b 'c', \"d\"_5F <i>😀</i>",
        retry_count=2,
        failure_count=2,
        errors=[
            {"at": NOON, "attempt": 1, "by": "worker-1", "error": ERROR},
            {"at": NOON + 60_000, "attempt": 2, "by": "worker-2", "error": ERROR},
        ],
    )
    lease()
    lease(partition_key="customer-2", lease_renewed_at=NOON)
    lease(partition_key=" 0003", leased_by="", holder="")
    offset()
    offset(partition_key="", offset_acked=0, paused=True)
    offset(consumer_group="", partition_key="", updated_at=0)
    heartbeat()
    heartbeat(subscriber_name="worker-2", heartbeat_at=NOON)
    heartbeat(subscriber_name="worker-3", heartbeat_at=NOON, deregistered_at=NOON + 1)


@pytest.mark.slow
class TestInABrowser(StaticLiveServerTestCase):
    """One visit to every page: nothing is broken, everything is styled, no hostile text runs."""

    driver: Chrome

    @pytest.fixture(autouse=True)
    def _browser(self, chrome: Chrome) -> None:
        self.driver = chrome

    def test_somebody_looks_at_every_page(self) -> None:
        User.objects.create_superuser("ada", password="lovelace")
        everything_that_can_be_seen()
        self.log_in()
        self.save("index")
        for page in PAGES:
            self.see_list_and_row(page)
        self.look_up_a_message()
        self.follow_a_delivery_to_its_message()

    def log_in(self) -> None:
        self.driver.get(f"{self.live_server_url}/admin/")
        self.driver.find_element(By.NAME, "username").send_keys("ada")
        self.driver.find_element(By.NAME, "password").send_keys("lovelace")
        self.click('input[type="submit"]')
        assert "Delivery states" in self.text_of("#content")

    def see_list_and_row(self, page: str) -> None:
        self.driver.get(f"{self.live_server_url}/admin/django_mqueue/{page}/")
        rows = self.driver.find_elements(By.CSS_SELECTOR, "#result_list tbody tr")
        assert rows, page
        width = self.driver.execute_script(
            "return document.querySelector('#result_list').getBoundingClientRect().width"
        )
        room = self.driver.execute_script("return document.querySelector('.results').clientWidth")
        assert width <= room, f"{page}: the list is {width} pixels wide and must be scrolled sideways"
        assert self.style("#lookup-topic", "border-top-style") == "solid"
        self.save(page)
        place = 2 if page == "deliverystate" else 1  # The one with errors.
        self.click(f"#result_list tbody tr:nth-child({place}) th a")
        assert self.driver.find_elements(By.CSS_SELECTOR, ".readonly")
        assert not self.driver.find_elements(By.CSS_SELECTOR, "input[type=submit]:not([value='Log out'])")
        self.save(f"{page}-row")

    def look_up_a_message(self) -> None:
        self.driver.get(f"{self.live_server_url}/admin/django_mqueue/message/")
        assert self.driver.title.startswith("Select message"), "the script of a payload has run"
        self.click(".paginator a")
        assert len(self.driver.find_elements(By.CSS_SELECTOR, "#result_list tbody tr")) == 33
        self.driver.find_element(By.ID, "lookup-topic").send_keys("orders")
        self.driver.find_element(By.ID, "lookup-message_id").send_keys("order-7")
        self.click("#changelist-search input[type=submit]")
        assert self.text_of("#result_list tbody .field-id_cell") == "order-7"
        self.save("message-found")
        self.click("#result_list tbody th a")
        assert '"order": 7' in self.text_of(".field-payload_body")

    def follow_a_delivery_to_its_message(self) -> None:
        stored = message(message_id="followed")
        delivery(message_offset=stored.offset, partition_key="followed", invisible_until=FAR)
        self.driver.get(
            f"{self.live_server_url}/admin/django_mqueue/deliverystate/"
            "?consumer_group=billing&topic=orders&partition_key=followed"
        )
        self.click("#result_list tbody th a")
        self.click(".field-message .readonly a")
        assert self.text_of(".field-message_id .readonly") == "followed"

    def click(self, selector: str) -> None:
        """Click, and wait until another page is there."""
        page = self.driver.find_element(By.TAG_NAME, "html")
        self.driver.find_element(By.CSS_SELECTOR, selector).click()
        WebDriverWait(self.driver, SECONDS).until(staleness_of(page))
        WebDriverWait(self.driver, SECONDS).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete"
        )

    def text_of(self, selector: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).text

    def style(self, selector: str, name: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)

    def save(self, name: str) -> None:
        """Keep the page as it looks, whole; and see that the browser has nothing to complain of."""
        log: Any = self.driver.get_log
        said = [entry["message"] for entry in log("browser") if entry["level"] == "SEVERE"]
        assert [text for text in said if "favicon.ico" not in text] == []
        folder = os.environ.get("MQUEUE_SCREENSHOTS")
        if not folder:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self.driver.set_window_size(1500, min(int(height) + 150, 4_000))
        self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))
        self.driver.set_window_size(1500, 900)
