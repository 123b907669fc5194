"""The pages in German show no English text of ours: each text that both languages share is a name or a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import translation

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.admin.base import row_ids
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from tests.support.subscribers import poll_until, settle

from .operating import hidden, url_of
from .rows import list_url

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP, WORKER = "zz-topic", "zz-group", "zz-worker"
"""All names and values of the scene begin with zz."""
OF = {"topic": TOPIC, "group": GROUP}
ERROR = """ZzError: zz

Traceback (most recent call last):
  File "/zz/lib/python3.11/site-packages/zz.py", line 9, in zz
    zz()
  File "/zz/zz.py", line 41, in zz
    zz()
ZzError: zz
"""

SAME = {
    "Details", "False", "Filter", "Header", "JSON", "Lease", "Name", "Offset", "Offsets", "Partition", "Payload",
    "Position", "Status", "Subscriber", "Topic", "Topics", "True", "UTC", "Watermark", "in", "min", "ms",
}  # fmt: skip
"""Words that German writes as English does, and the names of Django's icons."""

VALUE = re.compile(r"(?i)\bzz\S*|\b[0-9a-f]{8,}\b|\bcustomer\.id\b")
"""Names and values of the scene, generated ids, and the example of a path."""

SHOWN = {"alt", "aria-label", "data-label", "placeholder", "title"}
DATA = {"code", "pre", "script", "style", "textarea"}
"""Elements that hold values, such as tracebacks."""
VOID = {"base", "br", "hr", "img", "input", "link", "meta"}


class Shown(HTMLParser):
    """Collects what a page shows: texts of elements, attributes that are shown, labels of buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()
        self.within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name, value in given.items():
            is_button = tag == "input" and name == "value" and given.get("type") == "submit"
            if name in SHOWN or name.startswith("data-text-") or is_button:
                self.texts.add(value or "")
        if tag not in VOID:
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not DATA & set(self.within):
            self.texts.add(" ".join(data.split()))


def texts(response: Any) -> set[str]:
    assert response.status_code in (200, 400, 409), (response.status_code, response.headers)
    page = Shown()
    page.feed(response.content.decode())
    return page.texts


def words(text: str) -> set[str]:
    """Return the words of a text that are neither names nor values nor words of both languages."""
    return set(re.findall(r"[^\W\d_]{2,}", VALUE.sub("", text))) - SAME


def untranslated(english: set[str], german: set[str]) -> set[str]:
    assert english != german
    return {text for text in english & german if words(text)}


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a project whose pages have the language that the browser asks for.

    The middleware leaves a request's language active in its thread, which is the thread of the test.
    """
    client = Client()
    client.force_login(User.objects.create_superuser("zz"))
    middleware = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    with override_settings(MIDDLEWARE=middleware), translation.override(settings.LANGUAGE_CODE):
        yield client


def message(name: str, **fields: Any) -> OutgoingMessage:
    return OutgoingMessage(
        {"zz": f"zz-{name}"},
        id=f"zz-{name}",
        key=f"zz-{name}",
        kind="zz.kind",
        headers={"zz": "zz"},
        **fields,
    )


@pytest.fixture
def offsets() -> dict[str, int]:
    """Create a message in each status. Return their offsets by status."""
    subscribe(TOPIC, GROUP, by="zz-setup")
    subscribe(TOPIC, "zz-other", by="zz-setup")
    names = ("done", *(f"dead-{n}" for n in range(6)), "waiting", "in_flight")
    publish_many(TOPIC, [message(name) for name in names])
    subscription = Subscription(TOPIC, GROUP, WORKER).open()
    for delivery in poll_until(subscription, len(names)):
        if delivery.id == "zz-done":
            delivery.ack()
        elif "dead" in delivery.id:
            delivery.reject(ERROR)
        elif delivery.id == "zz-waiting":
            delivery.nack(delay=1000, error=ERROR)
    settle(subscription)
    subscription._subscriber = None  # Its leases and its messages in flight stay as they are.
    publish_many(TOPIC, [message("pending"), message("scheduled", delay=3600), message("later", delay=3600)])
    found = {
        one.message_id.removeprefix("zz-"): one.pk for one in Message.objects.all() if not one.failed_group
    }
    return found | {"letter": Message.objects.filter(failed_group=GROUP).order_by("pk")[0].pk}


def pages(offsets: dict[str, int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the query of each page. These requests change nothing."""
    letter = offsets["letter"]
    yield reverse("admin:app_list", args=("django_mqueue",)), {}
    yield reverse("admin:app_list", args=("django_mqueue",)), {"find": "zz-nothing"}
    for name in ("overview", "actions", "topic_changelist", "consumergroup_changelist", "message_changelist"):
        yield url_of(name), {}
    for name in ("topic_changelist", "consumergroup_changelist"):
        yield url_of(name), {"find": "zz-nothing"}
    for name in ("topic", "deadletter_errors", "deadletter_list"):
        yield url_of(name), {"topic": TOPIC}
    yield url_of("topic"), {"topic": f"{TOPIC}_dlq"}
    yield url_of("deadletter_list"), {"topic": TOPIC, "group": "zz-other"}
    yield url_of("deadletter_changelist"), {}
    yield url_of("deadletter"), {"offset": letter}
    yield url_of("edit_deadletter"), {"offset": letter}
    for name in ("group", "group_partitions", "group_subscribers", "pause_group", "reset_group"):
        yield url_of(name), OF
    yield url_of("group"), {**OF, "span": "day"}
    yield url_of("reset_group"), {**OF, "to": "earliest"}
    yield url_of("unsubscribe_group"), OF
    yield url_of("remove_messages"), OF
    yield url_of("remove_messages"), {**OF, "status": "all", "key": "zz-pending", "kind": "zz.kind"}
    for name in ("cancel_message", "reschedule_message"):
        yield url_of(name), {"offset": offsets["scheduled"]}
        yield url_of(name), {"offset": offsets["done"], "at": "2100-01-01T00:00:00"}
    yield url_of("pause_topic"), {"topic": TOPIC}
    yield url_of("release_leases"), {**OF, "subscriber": WORKER}
    for name in ("redrive", "purge"):
        yield url_of(f"{name}_selected"), {"topic": TOPIC, "offsets": letter}
        yield url_of(f"{name}_matching"), {"topic": TOPIC}
    for status in ("", "pending", "in_flight", "waiting", "scheduled", "dead", "done"):
        yield url_of("message_changelist"), {**OF, "status": status}
    yield url_of("message_changelist"), {**OF, "status": "zz", "after": "zz"}
    for name in ("done", "dead-0", "waiting", "in_flight", "pending", "scheduled", "letter"):
        yield url_of("message_change", offsets[name]), {}
    yield url_of("publish_message"), {"topic": TOPIC}
    yield url_of("publish_message"), {"copy_of": offsets["done"]}
    yield url_of("hurry_message"), {"topic": TOPIC, "offset": offsets["scheduled"]}


def rows() -> Iterator[str]:
    """Yield the pages of the plain tables, and of a row of each."""
    for name, model in {
        "deliverystate": DeliveryState,
        "partitionlease": PartitionLease,
        "offset": Offset,
        "subscriberheartbeat": SubscriberHeartbeat,
    }.items():
        yield list_url(name)
        row = model._default_manager.filter(topic=TOPIC, consumer_group=GROUP).order_by("pk")[0]
        yield reverse(f"admin:django_mqueue_{name}_change", args=(row_ids.encode(row.pk),))
    yield f"{list_url('deliverystate')}?topic=zz"


def both(client: Client, url: str, query: dict[str, Any] | None = None) -> set[str]:
    """Return the texts that a page shows in English and in German."""
    found = [texts(client.get(url, query or {}, headers={"Accept-Language": one})) for one in ("en", "de")]
    return untranslated(*found)


def test_pages(client: Client, offsets: dict[str, int]) -> None:
    found = {f"{url} {query}": both(client, url, query) for url, query in pages(offsets)}
    assert {page: shown for page, shown in found.items() if shown} == {}


def test_tables(client: Client, offsets: dict[str, int]) -> None:
    found = {url: both(client, url) for url in rows()}
    assert {page: shown for page, shown in found.items() if shown} == {}


def test_results_of_operations(client: Client, offsets: dict[str, int]) -> None:
    """Each operation runs in both languages, on different messages and leases."""
    letters = list(Message.objects.filter(failed_group=GROUP).order_by("pk").values_list("pk", flat=True))
    found: dict[str, set[str]] = {"en": set(), "de": set()}

    def operate(language: str, name: str, asked: dict[str, Any]) -> None:
        headers = {"Accept-Language": language}
        plan = client.post(url_of(name), asked, headers=headers)
        confirmed = {**asked, **hidden(plan.content.decode())}
        result = client.post(url_of(name), confirmed, headers=headers, follow=True)
        assert result.redirect_chain, (name, asked)
        found[language] |= texts(plan) | texts(result)

    for language, offset, key in (("en", offsets["scheduled"], "done"), ("de", offsets["later"], "waiting")):
        published = {"payload_format": "json", "payload": "1", "id": f"zz-{language}"}
        operate(language, "publish_message", {"topic": TOPIC, **published})
        operate(language, "reschedule_message", {"offset": offset, "at": "2100-01-01T00:00:00"})
        operate(language, "hurry_message", {"topic": TOPIC, "offset": offset})
        operate(language, "remove_messages", {**OF, "status": "pending", "kind": f"zz-{language}"})
        for name in ("redrive_selected", "purge_selected"):
            operate(language, name, {"topic": TOPIC, "offsets": letters.pop()})
        operate(language, "release_leases", {**OF, "partition": f"zz-{key}"})
    for language in found:
        for name in ("pause_topic", "resume_topic"):
            operate(language, name, {"topic": TOPIC})
        for name in ("pause_group", "resume_group"):
            operate(language, name, OF)
        operate(language, "reset_group", {**OF, "to": "latest", "force": "on"})
    assert untranslated(found["en"], found["de"]) == set()
