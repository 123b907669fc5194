"""Dead letters in a real browser: found by their error, read, redriven, edited, purged."""

from __future__ import annotations

import signal

import pytest
from django.contrib.admin.models import LogEntry
from django.test import override_settings

from django_mqueue import OutgoingMessage
from django_mqueue.admin.dead_letters import handing_over
from django_mqueue.browse import bulk_redrive
from django_mqueue.models import Message
from django_mqueue.policy.names import OPERATIONS_TOPIC
from tests.support.browser import BrowserCase
from tests.support.processes import Workers
from tests.support.subscribers import QUICK, stop_between_transactions
from tests.support.waiting import wait_until

from .dead_letters import TOPIC, give_up, given, left, outgoing

LIBRARY = (
    '  File "/srv/venv/lib/python3.11/site-packages/django/db/backends/utils.py", line 105, in _execute\n'
    "    return self.cursor.execute(sql, params)\n"
    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
)
DECLINED = (
    "shop.payments.CardDeclined: the card of customer {n} was declined by the bank: insufficient funds on account"
    " DE89-3704-0044-0532-0130-{n}\n\nTraceback (most recent call last):\n"
    f"{LIBRARY}{LIBRARY}"
    '  File "/srv/shop/consumers.py", line 41, in bill\n    charge(order, retry=False)\n'
    '  File "/srv/shop/payments.py", line 117, in charge\n    raise CardDeclined(customer, reason)\n'
    "shop.payments.CardDeclined: the card of customer {n} was declined by the bank: insufficient funds\n"
)


class TestDeadLettersInABrowser(BrowserCase):
    def setUp(self) -> None:
        super().setUp()
        settings = override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 36_000})
        settings.enable()
        self.addCleanup(settings.disable)

    def test_an_operators_morning(self) -> None:
        give_up(
            *outgoing(7, kind="order.made", headers={"trace": "4bf92f3577b34da6a3ce929d0e0e4736"}),
            error=DECLINED,
        )
        give_up(group="warehouse-of-the-northern-region", error="LookupError: no article {n}")
        give_up(
            OutgoingMessage(
                {"order": 9, "note": "<script>document.title='taken over'</script>"}, key="<b>Zoë</b>"
            ),
            topic="payments/eu?x=1&y",
        )
        self.find_a_failing_message()
        self.change_it()
        self.send_the_ticked_back()
        self.send_all_back()
        self.delete_all()

    def find_a_failing_message(self) -> None:
        page = self.page
        page.open("/admin/django_mqueue/deadletter/")
        page.save_all_ways("letters-topics")
        page.click_link("orders")
        assert "CardDeclined" in page.text_of(".mqueue-errors")
        page.save_all_ways("letters-errors")
        page.click_link("CardDeclined")
        assert len(page.all("#mqueue-main tbody tr")) == 7
        page.save_all_ways("letters-list")
        page.click("#mqueue-main tbody tr:nth-child(3) th a")
        assert "charge(order, retry=False)" in page.text_of(".mqueue-own")
        assert "cursor.execute" not in page.text_of(".mqueue-traceback")
        page.find(".mqueue-frames summary").click()
        assert "cursor.execute" in page.text_of(".mqueue-traceback")
        page.save_all_ways("letter")
        title = page.text_of("h1")
        page.click_link("Next dead letter")
        assert page.text_of("h1") != title
        page.click_link("Previous dead letter")
        assert page.text_of("h1") == title

    def change_it(self) -> None:
        page = self.page
        page.click_link("Edit and redrive")
        page.save_all_ways("letter-edit")
        page.type("textarea", '{"n": 4,\n "customer" 1}')
        page.click_link("Preview")
        assert "line 2, column 13" in page.text_of(".errorlist")
        assert all("400 (Bad Request)" in said for said in page.complaints())
        page.type("textarea", '{"n": 4, "customer": {"id": 11}}')
        page.click_link("Preview")
        assert '"id": 11' in page.text_of(".mqueue-added")
        page.save_all_ways("letter-edit-plan")
        page.click_link("Redrive")
        page.wait_for(".messagelist", "was changed, and it was redriven to group billing")
        (message,) = Message.objects.filter(topic=TOPIC, consumer_group="billing")
        assert page.text_of("h1") == f"Message {message.pk}"
        page.save_all_ways("letter-redriven")
        page.click_link("Actions")
        assert '"id": 11' in page.text_of(".mqueue-logged")
        assert f"It is now message {message.pk}." in page.text_of(".mqueue-logged")
        page.save_all_ways("letter-actions")
        assert left().count("order-4") == 1

    def send_the_ticked_back(self) -> None:
        page = self.page
        page.open(f"/admin/django_mqueue/deadletter/list/?topic={TOPIC}&group=billing")
        page.find(".mqueue-select-page").click()
        boxes = page.all("td .mqueue-select")
        assert all(box.is_selected() for box in boxes)
        for box in boxes[2:]:
            box.click()
        page.click_link("Redrive selected")
        page.save_all_ways("letters-redrive")
        page.click_link("Redrive")
        page.wait_for(".messagelist", "2 dead letters were redriven")
        assert len(page.all("#mqueue-main tbody tr")) == 4
        page.save("letters-redriven")

    def send_all_back(self) -> None:
        """Redrive all in steps. The browser requests each step by itself."""
        page = self.page
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk_redrive, "STEP_DEAD_LETTERS", 1)
            patch.setattr(bulk_redrive, "AT_ONCE", 1)
            page.find("[name=all]").click()
            page.click_link("Redrive selected")
            page.save_all_ways("letters-redrive-all")
            page.click_link("Redrive")
            page.wait_for(".messagelist", "4 dead letters were redriven")
        assert len(given("billing", 7)) == 7

    def test_a_redrive_survives_its_closed_tab(self) -> None:
        """A worker process redrives the rest. The page of the progress and the list lead back to it."""
        give_up(*outgoing(80))
        page = self.page
        with Workers() as workers:
            # The worker runs only the queue's own handler: this project has no other one.
            worker = workers.start(OPERATIONS_TOPIC)
            wait_until(lambda: handing_over.has_live_worker("default"), "the worker is alive")
            page.open(f"/admin/django_mqueue/deadletter/list/?topic={TOPIC}")
            page.find("[name=all]").click()
            page.click_link("Redrive selected")
            page.type("[name=rate]", "10")
            page.click_link("Calculate again")
            assert "At most 10 messages per second: it takes about 8 s." in page.text_of(".mqueue-panel")
            # Before the redrive: the worker could otherwise do all of it before it is stopped.
            stop_between_transactions(worker)
            page.click_link("Redrive")
            page.wait_for(".mqueue-panel", "A worker does this. You can close this page")
            page.save_all_ways("letters-run")
            page.driver.get("about:blank")  # The page loads itself again, and could replace the list.
            page.open(f"/admin/django_mqueue/deadletter/list/?topic={TOPIC}")
            page.save("letters-run-list")
            page.click_link("A worker redrives or purges dead letters of this topic. Show the progress")
            progress = page.driver.current_url
            page.driver.get("about:blank")
            before = len(left())
            worker.send(signal.SIGCONT)
            wait_until(lambda: len(left()) < before, "the worker redrives while no page is open")
            page.driver.get(progress)
            page.wait_for(".mqueue-panel", "80 dead letters were redriven: topic orders.")
            page.save("letters-run-end")
        assert left() == []
        assert [one.change_message for one in LogEntry.objects.all()] == [
            "80 dead letters were redriven: topic orders."
        ]

    def delete_all(self) -> None:
        page = self.page
        page.open(f"/admin/django_mqueue/deadletter/errors/?topic={TOPIC}")
        page.click_link("Purge all")
        page.save_all_ways("letters-purge")
        page.type("#id_typed", TOPIC)
        page.click_link("Purge")
        page.wait_for(".messagelist", "7 dead letters were purged")
        assert left() == []
        page.open("/admin/django_mqueue/deadletter/")
        page.click_link("payments/eu?x=1&y")
        page.click(".mqueue-errors td.mqueue-like a")
        page.click("#mqueue-main tbody th a")
        assert page.driver.title.startswith("Dead letter"), "the script of a payload has run"
        page.save_all_ways("letter-hostile")
