"""Messages in a real browser: search, page of one message, publish a copy, deliver now."""

from __future__ import annotations

from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, redrive, subscribe
from django_mqueue.inspect import messages
from django_mqueue.models import Message
from tests.support.browser import BrowserCase
from tests.support.subscribers import poll_until

from .test_browser import ERROR


def a_shop() -> dict[str, int]:
    """Publish orders and let some wait, some fail and some hold hostile texts. Return the offsets by name."""
    for group in ("billing", "shipping", "a-group-with-quite-a-long-name.of-the-warehouse"):
        subscribe("orders", group)
    offsets = {}
    for n in range(30):
        payload = {
            "order": n,
            "customer": {"id": n % 7, "name": "Zoë"},
            "lines": [{"article": "tea", "price": "3.20"}],
        }
        offset = publish(
            "orders",
            payload,
            key=f"customer-{n % 7}",
            id=f"order-{n}",
            kind="order.placed",
            headers={"trace": f"t-{n}"},
        ).offset
        offsets[f"order-{n}"] = offset
    with Subscription("orders", "billing", name="worker-1@shop-7d9f") as subscription:
        for delivery in poll_until(subscription, 30):
            if delivery.id == "order-3":
                delivery.nack(delay=600, error=ERROR)
            elif delivery.id in ("order-5", "order-6"):
                delivery.reject(ERROR)
            else:
                delivery.ack()
    assert redrive("orders", ids=["order-6"]) == 1
    offsets["letter"] = Message.objects.get(topic="orders_dlq").offset
    offsets["later"] = publish("orders", {"order": 99}, key="k", id="later", delay=86_400).offset
    evil = {"<b>": "<script>document.title='taken over'</script>", "long": "x" * 3_000}
    offsets["evil"] = publish("orders", evil, key="<i>" * 30, id="evil" * 30, kind="kind" * 20).offset
    publish("scans", bytes(range(256)) * 4, key="scanner")
    return offsets


class TestMessagesInABrowser(BrowserCase):
    def test_somebody_looks_after_messages(self) -> None:
        offsets, page = a_shop(), self.page
        page.open("/admin/django_mqueue/message/")
        assert page.driver.title.startswith("Messages")
        page.save_all_ways("messages")
        page.type("#id_topic", "orders")
        page.type("#id_group", "billing")
        page.click("#mqueue-ask input[type=submit]")
        script = (
            "const box = document.querySelector('.mqueue-scroll'); return box.scrollWidth - box.clientWidth"
        )
        assert page.driver.execute_script(script) <= 0, "the list must be scrolled sideways"
        page.save_all_ways("messages-of-group")
        page.click_link("For retry 1")
        assert page.text_of("#result_list tbody .field-id_cell") == "order-3"
        page.click("#result_list tbody th a")
        assert "ConnectionError" in page.text_of("#mqueue-main") or "TimeoutError" in page.text_of(
            "#mqueue-main"
        )
        page.save_all_ways("message-waiting")
        for name in ("order-6", "letter", "later", "evil"):
            page.open(f"/admin/django_mqueue/message/{offsets[name]}/change/")
            assert page.driver.title.startswith("Message "), "the script of a payload has run"
            page.save_all_ways(f"message-{name}")
        self.look_by_payload()
        self.publish_a_copy(offsets["order-1"])
        self.send_to_the_front(offsets["order-2"])
        self.go_through_pages()

    def look_by_payload(self) -> None:
        page = self.page
        page.open("/admin/django_mqueue/message/?topic=orders")
        page.find("details summary").click()
        page.type("#id_path", "customer.id")
        page.type("#id_value", "3")
        page.driver.execute_script("document.querySelector('#id_after').value = '2020-01-01T00:00:00'")
        page.click("#mqueue-ask input[type=submit]")
        assert len(page.all("#result_list tbody tr")) == 4
        assert page.find("details").get_attribute("open")
        page.save_all_ways("messages-by-payload")
        page.type("#id_value", " ")
        page.click("#mqueue-ask input[type=submit]")
        assert "Give the value: a number" in page.text_of("#mqueue-main")
        page.save_all_ways("messages-error")

    def publish_a_copy(self, offset: int) -> None:
        page = self.page
        page.open(f"/admin/django_mqueue/message/{offset}/change/")
        page.click_link("Publish a copy")
        page.save_all_ways("publish")
        page.type("#id_payload", '{"order": 1,\n "again": tru}')
        page.click_link("Preview")
        assert "line 2, column 11" in page.text_of("#mqueue-main")
        assert all("status of 400" in one for one in page.complaints())
        page.save_all_ways("publish-error")
        page.type("#id_payload", '{"order": 1,\n "again": true}')
        page.click_link("Preview")
        page.save_all_ways("publish-plan")
        page.click_link("Publish")
        assert "was published to topic orders" in page.text_of(".messagelist")
        (newest,) = messages("orders", newest_first=True, limit=1)
        assert newest.payload == {"order": 1, "again": True}

    def send_to_the_front(self, offset: int) -> None:
        page = self.page
        page.open(f"/admin/django_mqueue/message/{offset}/change/")
        page.click_link("Deliver now")
        page.save_all_ways("hurry")
        page.click_link("Deliver now")
        assert "is due now, as the next message of its key for group" in page.text_of(".messagelist")

    def go_through_pages(self) -> None:
        page = self.page
        publish_many("many", [OutgoingMessage(n, key="k", id=f"id-{n}") for n in range(130)])
        page.open("/admin/django_mqueue/message/?topic=many")
        page.click_link("Next page")
        assert len(page.all("#result_list tbody tr")) == 30
        page.save_all_ways("messages-last-page")
        page.click_link("First page")
        assert len(page.all("#result_list tbody tr")) == 100
        with override_settings(MQUEUE={"MASK": "no.such.mask"}):
            page.open("/admin/django_mqueue/message/?topic=nobody")
            assert "There is no topic nobody." in page.text_of("#mqueue-main")
