"""The main tasks of operators, in a real browser with a real worker.

A failing message is found, read, redriven and handled. A group is paused, resumed and reset.
"""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.test import override_settings

from django_mqueue import OutgoingMessage, inspect, publish_many, subscribe
from tests.support.browser import BrowserCase
from tests.support.processes import FAST, Workers, wait_until
from tests.support.shop.models import Door, Step

LANDING = "/admin/django_mqueue/"


def order(*numbers: int, **more: str) -> None:
    publish_many(
        "orders",
        [OutgoingMessage({"n": n, **more}, key=f"customer-{n}", id=f"order-{n}") for n in numbers],
    )


def handled() -> int:
    """Return how often billing's handler has finished."""
    return Step.objects.filter(what="end", consumer_group="billing").count()


def dead() -> int:
    return inspect.counts("orders", group="billing").dead


@override_settings(MQUEUE=FAST)
class TestJourneys(BrowserCase):
    def shown(self, group: str, what: str) -> str:
        """Return the text of a group's column on the overview.

        One script call reads it, because the page may refresh meanwhile.
        """
        script = """
            const rows = [...document.querySelectorAll("table.mqueue-standing tr")];
            const row = rows.find(one => one.querySelector("th")?.textContent.trim() === arguments[0]);
            return row?.querySelector(`[data-label="${arguments[1]}"]`)?.innerText.trim() ?? "";
        """
        return str(self.page.driver.execute_script(script, group, what))

    def told(self) -> str:
        return self.page.text_of(".messagelist")

    def test_a_failing_message_is_found_read_sent_back_and_seen_to_finish(self) -> None:
        subscribe("orders", "billing")
        order(1, 2, 3, do="fail_until_mended")
        order(4, 5)
        with Workers() as workers:
            workers.start("orders:billing", "--threads", "2")
            wait_until(lambda: dead() == 3 and handled() == 2, "three are dead, two are done")
            page = self.page
            page.open(LANDING)
            page.click_link("3")
            assert "LookupError" in page.text_of("#mqueue-main")
            page.click_link("LookupError")
            page.click_link("order-2")
            traceback = page.text_of(".mqueue-traceback")
            assert "order 2 has no price" in traceback
            assert "in fail_until_mended" in traceback
            assert '"n": 2' in page.text_of("#mqueue-main")

            Door.objects.create(name="mended")
            page.click_link("Redrive")
            assert "Redrive 1 dead letter?" in page.text_of(".mqueue-what")
            assert dead() == 3
            page.click_link("Redrive")
            assert "1 dead letter was redriven" in self.told()
            wait_until(lambda: handled() == 3, "the worker finishes it")

            page.open(LANDING)
            wait_until(lambda: self.shown("billing", "Dead") == "2", "the page shows that two are left")
            page.open(f"{LANDING}deadletter/errors/?topic=orders")
            page.click_link("Redrive all")
            assert "Redrive 2 dead letters?" in page.text_of(".mqueue-what")
            page.click_link("Redrive")
            assert "2 dead letters were redriven" in self.told()
            page.open(LANDING)
            wait_until(lambda: self.shown("billing", "Dead") == "0", "the page shows that none is left")
            wait_until(lambda: handled() == 5, "the worker finishes them")
        assert page.complaints() == []
        assert [one.get_change_message().partition(":")[0] for one in LogEntry.objects.order_by("pk")] == [
            "1 dead letter was redriven",
            "2 dead letters were redriven",
        ]

    def test_a_group_is_paused_resumed_and_moved(self) -> None:
        subscribe("orders", "billing")
        page = self.page
        with Workers() as workers:
            worker = workers.start("orders:billing")
            order(1, 2, 3)
            wait_until(lambda: handled() == 3, "three are done")
            page.open(LANDING)
            page.click_link("billing")
            page.click_link("Pause")
            page.click_link("Pause")
            assert "Group billing on topic orders is paused." in self.told()
            order(4)
            page.open(LANDING)
            wait_until(
                lambda: "Paused, and messages wait" in self.shown("billing", "State"), "the page shows it"
            )
            assert handled() == 3
            page.click_link("billing")
            page.click_link("Resume")
            page.click_link("Resume")
            wait_until(lambda: handled() == 4, "the worker goes on")

            page.open(f"{LANDING}consumergroup/page/?topic=orders&group=billing")
            page.click_link("Reset")
            page.find("input[name=to][value=earliest]").click()
            page.click_link("Preview")
            assert "4" in page.text_of("#mqueue-main table")
            page.click_link("Reset")
            assert "Nothing was changed" in page.text_of(".errornote"), "while its worker runs"
            assert [text for text in page.complaints() if "409" not in text] == []
            assert worker.stop() == 0
            page.open(f"{LANDING}consumergroup/reset/?topic=orders&group=billing&to=earliest")
            page.click_link("Reset")
            assert "now starts after offset 0" in self.told()
            workers.start("orders:billing")
            wait_until(lambda: handled() == 8, "all of it comes again")
        assert page.complaints() == []
