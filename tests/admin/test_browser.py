"""Each page in a real browser: headless Chromium.

If ``MQUEUE_SCREENSHOTS`` names a folder, the tests save an image of each page there.
"""

from __future__ import annotations

from tests.support.browser import BrowserCase

from .rows import FAR, NOON, PAGES, dead_letter, delivery, heartbeat, lease, message, offset

ERROR = (
    "TimeoutError: the payment service did not answer within 30 s\n\n"
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/consumers.py", line 41, in bill\n'
    "    charge(order)\n"
    "TimeoutError: the payment service did not answer within 30 s\n"
)


def everything_that_can_be_seen() -> None:
    """Create a few rows of each kind, with long, foreign and hostile texts."""
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


class TestInABrowser(BrowserCase):
    """Open every page: each one works and has its styles, and no hostile text runs as a script."""

    def test_somebody_looks_at_every_page(self) -> None:
        everything_that_can_be_seen()
        self.page.open("/admin/")
        assert "Delivery states" in self.page.text_of("#content")
        self.page.save("index")
        for page in PAGES:
            self.see_list_and_row(page)
        self.look_up_a_message()
        self.follow_a_delivery_to_its_message()

    def see_list_and_row(self, page: str) -> None:
        self.page.open(f"/admin/django_mqueue/{page}/")
        assert self.page.all("#result_list tbody tr"), page
        width = self.page.driver.execute_script(
            "return document.querySelector('#result_list').getBoundingClientRect().width"
        )
        around = ".mqueue-scroll" if page == "message" else ".results"
        room = self.page.driver.execute_script(f"return document.querySelector('{around}').clientWidth")
        assert width <= room, f"{page}: the list is {width} pixels wide and must be scrolled sideways"
        field = "#id_topic" if page == "message" else "#lookup-topic"
        assert self.page.style(field, "border-top-style") == "solid"
        self.page.save(page)
        place = 2 if page == "deliverystate" else 1  # The row with errors.
        self.page.click(f"#result_list tbody tr:nth-child({place}) th a")
        assert self.page.all(".readonly")
        assert not self.page.all("input[type=submit]:not([value='Log out'])")
        self.page.save(f"{page}-row")

    def look_up_a_message(self) -> None:
        self.page.open("/admin/django_mqueue/message/")
        assert self.page.driver.title.startswith("Messages"), "the script of a payload has run"
        self.page.click_link("Next page")
        assert len(self.page.all("#result_list tbody tr")) == 32
        self.page.find("#id_topic").send_keys("orders")
        self.page.find("#id_id").send_keys("order-7")
        self.page.click("#mqueue-ask input[type=submit]")
        assert self.page.text_of("#result_list tbody .field-id_cell") == "order-7"
        self.page.save("message-found")
        self.page.click("#result_list tbody th a")
        assert '"order": 7' in self.page.text_of(".field-payload_body")

    def follow_a_delivery_to_its_message(self) -> None:
        stored = message(message_id="followed")
        delivery(message_offset=stored.offset, partition_key="followed", invisible_until=FAR)
        self.page.open(
            "/admin/django_mqueue/deliverystate/?consumer_group=billing&topic=orders&partition_key=followed"
        )
        self.page.click("#result_list tbody th a")
        self.page.click(".field-message .readonly a")
        assert self.page.text_of(".field-message_id .readonly") == "followed"
