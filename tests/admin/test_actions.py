"""The page of actions: permissions, all entries, entries of one group; operations stopped between steps."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_mqueue import Subscription, publish_many, subscribe, unsubscribe
from django_mqueue.service import actions

from .looking import html_of, text
from .operating import confirm, hidden, staff, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

BILLING = {"topic": "orders", "group": "billing"}


def auditor() -> Client:
    client = staff("view_topic", "view_consumergroup", name="auditor")
    user = User.objects.get(username="auditor")
    user.user_permissions.add(Permission.objects.get(codename="view_logentry"))
    return client


def test_somebody_else_sees_who_paused_a_group() -> None:
    subscribe("orders", "billing")
    subscribe("orders", "shipping")
    operator = staff("pause_consumergroup", "resume_consumergroup", "view_consumergroup")
    confirm(operator, "pause_group", BILLING)
    confirm(operator, "pause_group", {**BILLING, "group": "shipping"})
    assert operator.get(url_of("actions")).status_code == 403
    assert "Actions" not in html_of(operator, f"{url_of('group')}?topic=orders&group=billing")

    client = auditor()
    page = text(html_of(client, url_of("actions")))
    assert "operator" in page
    assert page.index("Group shipping on topic orders is paused.") < page.index(
        "Group billing on topic orders is paused."
    )
    group = html_of(client, f"{url_of('group')}?topic=orders&group=billing")
    link = next(
        part.split('"')[0] for part in group.split('href="') if part.split("</a>")[0].endswith(">History")
    )
    only = text(html_of(client, link.replace("&amp;", "&")))
    assert "Group billing on topic orders is paused." in only
    assert "shipping" not in only


def test_a_history_of_djangos_leads_there(admin_client: Client) -> None:
    response = admin_client.get("/admin/django_mqueue/message/42/history/")
    assert response.headers["Location"] == f"{url_of('actions')}?model=message&object=42"
    assert "There are no actions yet." in html_of(admin_client, response.headers["Location"])


def test_fifty_on_a_page(admin_client: Client) -> None:
    subscribe("orders", "billing")
    for _ in range(52):
        admin_client.post(url_of("pause_group"), {**BILLING, "confirmed": "yes"})
    first = html_of(admin_client, url_of("actions"))
    assert first.count("billing on orders") == 50
    (older,) = [
        part.split('"')[0]
        for part in first.split('href="')
        if part.split("</a>")[0].endswith(">Older actions")
    ]
    assert html_of(admin_client, older.replace("&amp;", "&")).count("billing on orders") == 3, (
        "the subscribe too"
    )


def test_an_operation_is_stopped_between_steps_and_says_how_far_it_came() -> None:
    """At one dead letter per second, the first step redrives one. Then the operator stops the run."""
    subscribe("orders", "billing")
    publish_many("orders", [{"n": n} for n in range(5)])
    with Subscription("orders", group="billing", name="one") as subscription:
        found = 0
        while found < 5:
            for delivery in subscription.poll():
                delivery.reject("LookupError: no price")
                found += 1
    client = staff("view_deadletter", "redrive_deadletter")
    asked = {"topic": "orders", "rate": "1"}
    shown = client.post(url_of("redrive_matching"), asked).content.decode()
    confirmed = {**hidden(shown), "rate": "1"}
    step = client.post(url_of("redrive_matching"), confirmed).content.decode()
    assert 'name="stop"' in step
    response = client.post(url_of("redrive_matching"), {**hidden(step), "stop": "Stop"}, follow=True)
    (said,) = told(response)
    assert said.startswith("Stopped: ")
    assert " so far; " in said
    ((who, _, what),) = written_down()
    assert (who, what) == ("operator", said)
    again = client.post(url_of("redrive_matching"), {**hidden(step), "stop": "Stop"}, follow=True)
    assert told(again) == ["Stopped. Finished steps remain."]
    assert len(written_down()) == 1


def test_a_record_behind_many_of_the_admin_is_found(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page reads a limited number of records. The next pages continue where it has stopped."""
    monkeypatch.setattr(actions, "READ", 2)
    monkeypatch.setattr("django_mqueue.admin.topics.actions.READS", 2)
    subscribe("orders", "billing", by="nightly script")
    for page in ["pause_group", "resume_group"] * 4:
        confirm(admin_client, page, BILLING)
    url, pages = url_of("actions"), list[str]()
    while url and len(pages) < 5:
        pages.append(html_of(admin_client, url))
        parts = [
            part for part in pages[-1].split('href="') if part.split("</a>")[0].endswith(">Older actions")
        ]
        url = parts[0].split('"')[0].replace("&amp;", "&") if parts else ""
    assert len(pages) == 3
    assert ["nightly script" in page for page in pages] == [False, False, True]


def test_a_group_that_was_unsubscribed_has_a_history() -> None:
    subscribe("orders", "billing")
    unsubscribe("orders", "billing")
    assert ">History<" in html_of(auditor(), url_of("group"), BILLING)
