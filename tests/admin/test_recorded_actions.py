"""Actions from Python and the command line in the admin, and the reason of an operation."""

from __future__ import annotations

import pytest
from django.test import Client

from django_mqueue import subscribe
from django_mqueue.models import Message
from django_mqueue.policy.names import ACTIONS_TOPIC
from django_mqueue.service.actions import recent
from django_mqueue.service.group_positions import pause, reset, resume

from .dead_letters import give_up, left, outgoing
from .looking import html_of, text
from .operating import confirm, hidden, staff, url_of, written_down
from .test_actions import BILLING, auditor

pytestmark = pytest.mark.django_db(transaction=True)


def rows_of(html: str) -> list[str]:
    """Return the rows of the page of actions: user, object and action."""
    body = html.partition("<tbody>")[2].partition("</tbody>")[0].replace("</td>", "</td> ")
    return [" ".join(text(row).split()[2:]) for row in body.split("</tr>") if row.strip()]


def test_a_reason_is_in_the_log_and_in_the_record() -> None:
    subscribe("orders", "billing", by="setup")
    operator = staff("pause_consumergroup")
    shown = operator.get(url_of("pause_group"), BILLING).content.decode()
    assert 'name="reason"' in shown
    given = {**hidden(shown), "reason": " the bank is <b>down</b> "}
    operator.post(url_of("pause_group"), given)
    assert recent("orders")[0].why == "the bank is <b>down</b>"
    assert recent("orders")[0].by == "operator"
    ((_, _, message),) = written_down()
    assert message == "Group billing on topic orders is paused. Reason: the bank is <b>down</b>"


def test_lists_of_messages_show_no_reasons() -> None:
    """They show the records, and need another permission than the actions."""
    subscribe("orders", "billing", by="setup", why="zz-secret")
    offset = Message.objects.get(topic=ACTIONS_TOPIC).offset
    client = staff("view_message")
    urls = [f"{url_of('message_changelist')}?{query}" for query in ("derived=on", f"topic={ACTIONS_TOPIC}")]
    for url in (*urls, url_of("message_change", offset)):
        html = html_of(client, url)
        assert "masked: a record of the queue" in html
        assert "zz-secret" not in html


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("verb", "count"), [("redrive", 5), ("purge", 5), ("purge", 4)])
def test_a_redrive_and_a_purge_are_recorded(verb: str, count: int) -> None:
    """An operation of several transactions has a second record with its total, also if it takes several requests."""
    give_up(*outgoing(count))
    operator = staff("view_deadletter", f"{verb}_deadletter")
    shown = operator.get(url_of(f"{verb}_matching"), {"topic": "orders"}).content.decode()
    given = {**hidden(shown), "typed": "orders", "reason": "the bank is up"}
    given = hidden(operator.post(url_of(f"{verb}_matching"), given).content.decode())
    operator.post(url_of(f"{verb}_matching"), {**given, "typed": "orders"})
    assert left() == []
    found = [one for one in recent("orders") if one.action != "subscribe"]
    assert [(one.by, one.why, one.via) for one in found] == 2 * [("operator", "the bank is up", "admin")]
    assert [(one.action, one.details) for one in found] == [
        (verb, {"messages_in_all": count, "selected": "topic orders"}),
        (verb, {"messages": 2, "selected": "topic orders"}),
    ]


def test_an_edited_redrive_is_recorded() -> None:
    (dead_letter,) = give_up(*outgoing(1))
    operator = staff("view_deadletter", "redrive_deadletter", "edit_deadletter")
    shown = operator.get(url_of("edit_deadletter"), {"offset": dead_letter.offset}).content.decode()
    given = {
        **hidden(shown),
        "payload_format": "json",
        "payload": "7",
        "headers": "{}",
        "confirmed": "yes",
        "reason": "typing error",
    }
    operator.post(url_of("edit_deadletter"), given)
    action = recent("orders")[0]
    assert (action.action, action.group, action.by, action.why) == (
        "redrive",
        "billing",
        "operator",
        "typing error",
    )
    assert action.details == {"messages": 1, "id": "order-0", "edited": True}


def test_each_action_is_shown_once() -> None:
    """The record of an operation in the admin is left out: the log has its entry."""
    subscribe("orders", "billing", by="setup")
    confirm(staff("pause_consumergroup"), "pause_group", BILLING)
    resume("orders", "billing", by="alice", why="the bank is <b>up</b>")
    reset("orders", "billing", "latest", by="carol")
    subscribe("mail", "mailer", by="setup")
    reset("mail", "mailer", "latest")
    page = html_of(auditor(), url_of("actions"))
    assert "<b>up</b>" not in page
    rows = rows_of(page)
    assert [row for row in rows if "on orders" in row] == [
        "carol billing on orders Reset to another position (to: latest, start: 0).",
        "alice billing on orders Resumed (groups: 1). Reason: the bank is <b>up</b>",
        "operator billing on orders Group billing on topic orders is paused.",
        "setup billing on orders Subscribed (start: earliest).",
    ]
    assert sum("mailer" in row for row in rows) == 2


def test_the_actions_of_one_group_or_topic() -> None:
    for group in ("billing", "shipping"):
        subscribe("orders", group, by="setup")
    subscribe("mail", "billing", by="setup")
    pause("orders", by="alice")
    pause("mail", by="bob")
    client = auditor()
    for page, asked, users, others in (
        ("group", "topic=orders&group=billing", ["alice", "setup"], ["shipping", "bob"]),
        ("topic", "topic=orders", ["alice", "setup", "shipping"], ["bob"]),
    ):
        shown = html_of(client, f"{url_of(page)}?{asked}")
        (history,) = [
            one.split('"')[0] for one in shown.split('href="') if one.split("</a>")[0].endswith(">History")
        ]
        listed = html_of(client, history.replace("&amp;", "&")).partition("<tbody>")[2]
        assert all(user in listed for user in users), page
        assert not any(other in listed for other in others), page


def test_a_page_has_the_newest_actions() -> None:
    subscribe("orders", "billing", by="setup")
    confirm(staff("pause_consumergroup"), "pause_group", BILLING)
    resume("orders", "billing", by="<i>alice</i>", why="<b>up</b>")
    client = auditor()
    for page, group in (("group", ""), ("topic", ", group billing")):
        html = html_of(client, f"{url_of(page)}?topic=orders&group=billing")
        assert "<b>up" not in html
        assert "<i>alice" not in html
        shown = " ".join(text(html.partition('id="actions"')[2]).split())
        assert shown.index(f"Resumed{group}, by <i>alice</i>" if group else "Resumed by <i>alice</i>") < (
            shown.index(f"Paused{group}, by operator" if group else "Paused by operator")
        )
        assert ": <b>up</b>" in shown
    without = staff("view_topic", "view_consumergroup", name="reader")
    assert "alice" not in html_of(without, f"{url_of('group')}?topic=orders&group=billing")


def test_pages_of_records_can_be_turned(admin_client: Client) -> None:
    subscribe("orders", "billing", by="setup")
    for number in range(60):
        (pause if number % 2 else resume)("orders", "billing", by=f"user-{number:02d}")
        if number % 3 == 0:
            admin_client.post(url_of("resume_group"), {**BILLING, "confirmed": "yes"})
    seen, url = [], url_of("actions")
    while url:
        html = html_of(admin_client, url)
        seen += rows_of(html)
        older = [
            part.split('"')[0]
            for part in html.split('href="')
            if part.split("</a>")[0].endswith(">Older actions")
        ]
        url = older[0].replace("&amp;", "&") if older else ""
    assert sum(row.startswith("user-") for row in seen) == len(
        {row for row in seen if row.startswith("user-")}
    )
    assert sum(row.startswith("admin") for row in seen) == 20
    assert {row.split()[0] for row in seen if row.startswith("user-")} >= {
        f"user-{n:02d}" for n in range(1, 60, 2)
    }
