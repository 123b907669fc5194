"""Pause and resume on the pages, and what all operations have in common."""

from __future__ import annotations

import pytest
from django.test import Client, override_settings

from django_mqueue import inspect, subscribe, unsubscribe
from django_mqueue.spark.database import following

from .looking import html_of, text
from .operating import confirm, staff, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

BILLING = {"topic": "orders", "group": "billing"}


@pytest.fixture(autouse=True)
def _groups() -> None:
    subscribe("orders", "billing")
    subscribe("orders", "shipping")


def paused() -> set[str]:
    return {one.group for one in inspect.groups("orders") if one.paused}


def test_a_group_is_paused_and_resumed() -> None:
    client = staff("view_consumergroup", "pause_consumergroup", "resume_consumergroup")
    response = confirm(client, "pause_group", BILLING)
    assert paused() == {"billing"}
    assert told(response) == ["Group billing on topic orders is paused."]
    assert response.redirect_chain[0][0] == f"{url_of('group')}?topic=orders&group=billing"
    again = confirm(client, "pause_group", BILLING)
    assert told(again) == ["Group billing on topic orders was paused already."]
    assert '<li class="warning">' in again.content.decode()
    assert told(confirm(client, "resume_group", BILLING)) == ["Group billing on topic orders is resumed."]
    assert '<li class="warning">' in confirm(client, "resume_group", BILLING).content.decode()
    assert paused() == set()
    assert written_down() == [
        ("operator", "billing on orders", "Group billing on topic orders is paused."),
        ("operator", "billing on orders", "Group billing on topic orders was paused already."),
        ("operator", "billing on orders", "Group billing on topic orders is resumed."),
        ("operator", "billing on orders", "Group billing on topic orders was not paused."),
    ]


def test_a_topic_is_paused_and_resumed() -> None:
    client = staff("view_topic", "pause_topic", "resume_topic")
    assert told(confirm(client, "pause_topic", {"topic": "orders"})) == [
        "Topic orders: 2 groups were paused."
    ]
    assert paused() == {"billing", "shipping"}
    assert told(confirm(client, "resume_topic", {"topic": "orders"})) == [
        "Topic orders: 2 groups were resumed."
    ]
    assert paused() == set()


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (0.5, "0.5 seconds"), (90, "90 seconds"), (120, "2 minutes")]
)
def test_plans_name_the_time_in_numbers(seconds: float, words: str) -> None:
    """The plan shows the setting's value, not its name."""
    client = staff("resume_consumergroup", "resume_topic", "pause_topic")
    confirm(client, "pause_topic", {"topic": "orders"})
    topics = {"orders": {"DISCOVERY_INTERVAL": seconds, "LEASE_DURATION": 600}}
    with override_settings(MQUEUE={"TOPICS": topics}):
        for page, asked in (("resume_group", BILLING), ("resume_topic", {"topic": "orders"})):
            assert f"Subscribers notice it within {words}." in text(html_of(client, url_of(page), asked))


def test_who_reads_the_log_by_itself_is_not_paused() -> None:
    """The pages do not offer to pause a log reader, and say why."""
    for group in ("billing", "shipping"):
        unsubscribe("orders", group)
    following.follow("orders", "archive", 0, 0, using="default")
    client = staff("view_topic", "view_consumergroup", "pause_topic", "pause_consumergroup")
    archive = {"topic": "orders", "group": "archive"}
    assert ">Pause</a>" not in html_of(client, url_of("group"), archive)
    assert "Pause all groups" not in html_of(client, url_of("topic"), {"topic": "orders"})
    why = "reads the log of topic orders by itself: it receives no deliveries"
    assert why in text(html_of(client, url_of("pause_group"), archive))
    assert why in told(confirm(client, "pause_group", archive))[0]
    assert told(confirm(client, "pause_topic", {"topic": "orders"})) == [
        "Topic orders: 0 groups were paused."
    ]
    assert paused() == set()


@pytest.mark.parametrize("page", ["pause_group", "resume_group", "pause_topic", "resume_topic"])
def test_each_has_a_right_of_its_own(page: str) -> None:
    """A user with all other permissions gets 403 for every method, and nothing changes."""
    verb, kind = page.split("_")
    right = f"{verb}_{'consumergroup' if kind == 'group' else kind}"
    others = {
        "view_topic", "view_consumergroup", "pause_topic", "resume_topic", "pause_consumergroup",
        "resume_consumergroup", "reset_consumergroup", "redrive_deadletter",
    } - {right}  # fmt: skip
    client = staff(*others)
    for response in (
        client.get(url_of(page), BILLING),
        client.post(url_of(page), BILLING),
        client.post(url_of(page), {**BILLING, "confirmed": "yes"}),
    ):
        assert response.status_code == 403
    assert paused() == set()
    assert written_down() == []
    assert staff(right, name="other").get(url_of(page), BILLING).status_code == 200


def test_nothing_happens_before_the_button_is_pressed() -> None:
    client = staff("pause_consumergroup")
    for response in (client.get(url_of("pause_group"), BILLING), client.post(url_of("pause_group"), BILLING)):
        assert "Pause group billing on topic orders?" in text(response.content.decode())
    assert paused() == set()
    assert written_down() == []


def test_the_button_needs_its_token() -> None:
    """A page of another site cannot submit the form."""
    client = Client(enforce_csrf_checks=True)
    client.cookies = staff("pause_consumergroup").cookies
    assert client.post(url_of("pause_group"), {**BILLING, "confirmed": "yes"}).status_code == 403
    assert paused() == set()


def test_what_cannot_be_done_is_said_and_written_down() -> None:
    client = staff("pause_consumergroup")
    asked = {"topic": "orders", "group": "nobody", "confirmed": "yes"}
    response = client.post(url_of("pause_group"), asked)
    assert response.status_code == 409
    assert "Nothing was changed." in response.content.decode()
    ((_, about, what),) = written_down()
    assert about == "nobody on orders"
    assert what.startswith("Refused: ")


@pytest.mark.parametrize("topic", ["", "x" * 200, " orders", "or\nders"])
def test_what_no_name_can_be_is_refused(topic: str) -> None:
    client = staff("pause_topic")
    response = client.post(url_of("pause_topic"), {"topic": topic, "confirmed": "yes"})
    assert response.status_code == 400
    assert written_down() == []


def test_hostile_names_are_escaped() -> None:
    evil = '<script>alert("x")</script>'
    subscribe(evil, "<b>bold</b>")
    client = staff("view_consumergroup", "pause_consumergroup")
    response = confirm(client, "pause_group", {"topic": evil, "group": "<b>bold</b>"})
    html = response.content.decode()
    assert "<script>alert" not in html
    assert "<b>bold" not in html
    assert "&lt;script&gt;alert" in html


def test_a_topics_plan_names_its_groups() -> None:
    client = staff("pause_topic", "resume_topic")

    def shown(page: str) -> str:
        return text(client.get(url_of(page), {"topic": "orders"}).content.decode())

    assert "Pause 2 groups (billing, shipping) of topic orders?" in shown("pause_topic")
    assert "Topic orders has no group that is paused." in shown("resume_topic")
    confirm(client, "pause_topic", {"topic": "orders"})
    assert "Topic orders has no group to pause." in shown("pause_topic")
    assert "Resume 2 groups (billing, shipping) of topic orders?" in shown("resume_topic")
    client.post(
        url_of("pause_topic"), {"topic": "orders", "confirmed": "yes"}
    )  # An old page: it changes nothing more.
    assert paused() == {"billing", "shipping"}
    assert written_down()[-1][2] == "Topic orders: 0 groups were paused."
