"""Editing a dead letter's payload on its page, and redriving it."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage, Subscription, purge, redrive, unsubscribe
from django_mqueue.browse import bulk_redrive, dead_letters
from django_mqueue.models import Message
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume
from tests.support.threads import Background

from .dead_letters import TOPIC, give_up, given, left
from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = ("view_deadletter", "redrive_deadletter", "edit_deadletter")


quick = with_settings(MQUEUE=QUICK)
client = staff_client(*RIGHTS)


def shown(client: Client, letter: Message) -> tuple[dict[str, Any], str]:
    """Return the fields of the form, and the page."""
    html = html_of(client, url_of("edit_deadletter"), {"offset": letter.pk})
    payload, headers = (
        unescape(part.split(">", 1)[1].split("</textarea>")[0]).removeprefix("\n")
        for part in html.split("<textarea")[1:]
    )
    how = html.split(" selected>")[0].rpartition('value="')[2].rstrip('"')
    return {**hidden(html), "payload_format": how, "payload": payload, "headers": headers}, html


def sent(client: Client, asked: dict[str, Any]) -> Any:
    return confirm(client, "edit_deadletter", asked)


def redriven() -> Message:
    return Message.objects.get(topic=TOPIC, consumer_group="billing")


def test_a_payload_is_changed_and_sent_back(client: Client) -> None:
    """The message keeps its id, key, kind and headers. The page shows the difference first."""
    (letter,) = give_up(
        OutgoingMessage({"n": 1, "to": "Zoë"}, id="order-1", key="k", kind="placed", headers={"h": 1})
    )
    form, _ = shown(client, letter)
    assert form["payload_format"] == "json"
    assert form["payload"] == '{\n  "n": 1,\n  "to": "Zoë"\n}'
    form["payload"] = form["payload"].replace("1", "2").replace("\n", "\r\n")
    plan = client.post(url_of("edit_deadletter"), form).content.decode()
    assert '<tr class="mqueue-removed"><td>-</td><td><code>  &quot;n&quot;: 1,</code></td></tr>' in plan
    assert '<tr class="mqueue-added"><td>+</td><td><code>  &quot;n&quot;: 2,</code></td></tr>' in plan
    assert left() == ["order-1"]
    response = sent(client, form)
    message = f"The payload of dead letter order-1 of topic {TOPIC} was changed, and it was redriven to group billing."
    message += f" It is now message {redriven().pk}."
    assert told(response) == [message]
    difference = 'Payload:\n@@ -1,4 +1,4 @@\n  {\n-   "n": 1,\n+   "n": 2,\n    "to": "Zoë"\n  }'
    assert written_down() == [("operator", f"Dead letter {letter.pk}", f"{message}\n{difference}")]
    assert left() == []
    with Subscription(TOPIC, "billing") as subscription:
        (delivery,) = consume(subscription, 1)
    assert (delivery.payload, delivery.id, delivery.key) == ({"n": 2, "to": "Zoë"}, "order-1", "k")
    assert (delivery.kind, delivery.headers, delivery.attempt) == ("placed", {"h": 1}, 1)


def test_headers_are_changed_and_sent_back(client: Client) -> None:
    """The plan and the log show the difference. The user who may see it is led to the redriven message."""
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1", headers={"h": 1, "region": "eu"}))
    client = staff(*RIGHTS, "view_message", name="viewer")
    form, _ = shown(client, letter)
    assert form["headers"] == '{\n  "h": 1,\n  "region": "eu"\n}'
    form["headers"] = '{"h": 1, "region": "ch"}'
    plan = client.post(url_of("edit_deadletter"), form).content.decode()
    assert '<tr class="mqueue-added"><td>+</td><td><code>  &quot;region&quot;: &quot;ch&quot;</code>' in plan
    assert "<caption>Payload</caption>" not in plan
    response = sent(client, form)
    assert response.redirect_chain == [(url_of("message_change", redriven().pk), 302)]
    message = f"The headers of dead letter order-1 of topic {TOPIC} were changed, and it was redriven to group billing."
    assert told(response) == [f"{message} It is now message {redriven().pk}."]
    ((_, _, entry),) = written_down()
    assert 'Headers:\n@@ -1,4 +1,4 @@\n  {\n    "h": 1,\n-   "region": "eu"\n+   "region": "ch"' in entry
    assert [one.headers for one in consumed()] == [{"h": 1, "region": "ch"}]


def consumed() -> list[Any]:
    with Subscription(TOPIC, "billing") as subscription:
        return consume(subscription, 1)


@pytest.mark.parametrize("bad", ["", "[]", "{", '{"a": 1, "a": 2}', '{"mqueue-reply-to": "1:x"}', "null"])
def test_headers_that_cannot_be_stored(client: Client, bad: str) -> None:
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    response = client.post(url_of("edit_deadletter"), {**shown(client, letter)[0], "headers": bad})
    assert response.status_code in (400, 409)
    assert "errorlist" in response.content.decode()
    assert left() == ["order-1"]


def test_the_log_has_the_difference_with_its_masks(client: Client) -> None:
    """Masks apply to the log, although the editor sees all: its readers may see less."""
    client = staff(*RIGHTS, "unmask_message", name="seer")
    secret = "5105105105105100"

    def mask(message: Any) -> Any:
        return replace(message, payload={**message.payload, "card": "…"}, headers={})

    letters = give_up(*(OutgoingMessage({"n": n, "card": secret}, headers={"t": secret}) for n in range(2)))
    with override_settings(MQUEUE={**QUICK, "MASK": mask}):
        for letter, change in zip(letters, (("0", "7"), (secret, f"{secret}1")), strict=True):
            form = shown(client, letter)[0]
            sent(client, {**form, "payload": form["payload"].replace(*change)})
    first, second = (entry for _, _, entry in written_down())
    assert '-   "n": 0,\n+   "n": 7,\n    "card": "…"' in first
    assert second.endswith("\nOnly masked parts were changed.")
    assert secret not in first + second


BAD: list[tuple[str, str, str]] = [
    ("json", "", "This is not JSON: Expecting value at line 1, column 1"),
    ("json", '{"n": 1,\n  "m" 2}', "This is not JSON: Expecting ':' delimiter at line 2, column 7"),
    ("json", '{"n": 1} 2', "This is not JSON: Extra data at line 1, column 10"),
    ("json", "NaN", "NaN is not a value of JSON"),
    ("json", "[1e999]", "The number 1e999 cannot be kept exactly"),
    ("json", '{"n": 1, "n": 2}', "The name 'n' occurs twice"),
    ("json", "[" * 100_000, "nested too deeply"),
    ("json", "9" * 5_000, "This is not JSON"),
    ("hex", "0g", "This is not hexadecimal"),
    ("hex", "abc", "This is not hexadecimal"),
    ("base64", "?", "This is not base64"),
    ("binary", "1", "Select a valid choice"),
]


def test_what_is_no_payload(client: Client) -> None:
    """The page shows where the error is, and keeps the typed text."""
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    form, _ = shown(client, letter)
    for how, payload, problem in BAD:
        response = client.post(
            url_of("edit_deadletter"), {**form, "payload_format": how, "payload": payload, "confirmed": "yes"}
        )
        html = unescape(response.content.decode())
        assert response.status_code == 400, (how, payload[:20])
        assert problem in html, (how, payload[:20])
        assert payload[:50] in html
    too_much = {**form, "payload": f'"{"x" * 1_100_000}"'}
    deep = {**form, "payload": "[" * 300 + "]" * 300}
    half = {**form, "payload": '"\\ud800"'}
    for bad, problem in (
        (too_much, "over MAX_PAYLOAD_BYTES"),
        (deep, "at most 200 levels deep"),
        (half, "cannot be encoded"),
    ):
        response = client.post(url_of("edit_deadletter"), bad)
        assert response.status_code == 409
        assert problem in response.content.decode()
    assert left() == ["order-1"]
    assert written_down() == []


def test_bytes(client: Client) -> None:
    """Bytes are edited as hexadecimal digits or base64, and can become JSON."""
    first, second, third = give_up(*(OutgoingMessage(bytes(range(40)), id=f"b-{n}") for n in range(3)))
    form, _ = shown(client, first)
    assert form["payload_format"] == "hex"
    assert form["payload"].splitlines()[1] == "20 21 22 23 24 25 26 27"
    sent(client, {**form, "payload": "ff 00\n"})
    sent(client, {**shown(client, second)[0], "payload_format": "base64", "payload": "/w=="})
    form = {**shown(client, third)[0], "payload_format": "json", "payload": "[1]"}
    assert (
        "The payload changes from bytes to JSON."
        in client.post(url_of("edit_deadletter"), form).content.decode()
    )
    sent(client, form)
    assert [payload for _, payload, _ in given("billing", 3)] == [b"\xff\x00", b"\xff", [1]]


def test_what_could_not_be_read_is_mended(client: Client) -> None:
    (letter, other) = give_up(
        OutgoingMessage({"n": 1}, id="order-1"), OutgoingMessage({"n": 2}, id="order-2")
    )
    Message.objects.filter(pk=letter.pk).update(metadata={"what": "else"}, payload=b'{"n": 1')
    Message.objects.filter(pk=other.pk).update(payload=b"\xff")
    form, _ = shown(client, letter)
    assert form["payload"] == '{"n": 1'
    form["payload"] += "}"
    assert "they are replaced with new ones" in client.post(url_of("edit_deadletter"), form).content.decode()
    sent(client, form)
    form, _ = shown(client, other)
    assert form["payload_format"] == "hex"
    sent(client, {**form, "payload_format": "json", "payload": "2"})
    assert [(id, payload) for id, payload, _ in given("billing", 2)] == [
        ("order-1", {"n": 1}),
        ("order-2", 2),
    ]


def test_what_was_changed_meanwhile(client: Client) -> None:
    """A redrive, purge or change before or after the plan stops the edit. The form keeps the typed text."""
    for n, meanwhile in enumerate(
        (
            lambda letter: redrive(TOPIC),
            lambda letter: purge(TOPIC),
            lambda letter: Message.objects.filter(pk=letter.pk).update(payload=b"5"),
            lambda letter: Message.objects.filter(pk=letter.pk).update(failed_group="other"),
        )
    ):
        (letter,) = give_up(OutgoingMessage({"n": 1}, id=f"order-{n}"))
        form = {**shown(client, letter)[0], "payload": '"typed"'}
        plan = client.post(url_of("edit_deadletter"), form).content.decode()
        meanwhile(letter)
        before = Message.objects.count()
        for asked in (form, hidden(plan)):
            response = client.post(url_of("edit_deadletter"), asked)
            assert response.status_code == 409, n
            assert "Nothing was changed." in response.content.decode()
            assert "&quot;typed&quot;" in response.content.decode()
        assert Message.objects.count() == before
        purge(TOPIC)
        Message.objects.filter(topic=TOPIC).delete()


def test_two_who_change_the_same_letter(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second operator reads the letter before the first one redrives it. It is redriven once."""
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    form = shown(client, letter)[0]
    plan = hidden(client.post(url_of("edit_deadletter"), {**form, "payload": "2"}).content.decode())
    other = staff(*RIGHTS, name="other")
    edit = bulk_redrive.edit

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(bulk_redrive, "edit", edit)
        Background(lambda: sent(other, {**form, "payload": "3"})).start().result()
        edit(*arguments)

    monkeypatch.setattr(bulk_redrive, "edit", late)
    response = client.post(url_of("edit_deadletter"), plan)
    assert response.status_code == 409
    assert [payload for _, payload, _ in given("billing", 1)] == [3]


def test_what_changes_between_the_look_and_the_lock(client: Client) -> None:
    """``edit`` compares the dead letter again after it has locked it."""
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    read = dead_letters.one("default", letter.pk)
    assert read is not None
    Message.objects.filter(pk=letter.pk).update(payload=b"5")
    with pytest.raises(bulk_redrive.DeadLetterChanged):
        bulk_redrive.edit("default", read, "mine")
    assert left() == ["order-1"]


def test_nothing_is_lost_when_sending_fails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_mqueue.store import garbage

    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    plan = hidden(
        client.post(url_of("edit_deadletter"), {**shown(client, letter)[0], "payload": "2"}).content.decode()
    )

    def broken(*_: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(garbage, "delete", broken)
    with pytest.raises(ConnectionError):
        client.post(url_of("edit_deadletter"), plan)
    assert left() == ["order-1"]
    assert Message.objects.filter(topic=TOPIC, consumer_group="billing").count() == 0


def test_a_group_that_is_gone(client: Client) -> None:
    (letter,) = give_up(1)
    form, _ = shown(client, letter)
    unsubscribe(TOPIC, "billing")
    for asked in (form, {**form, "confirmed": "yes"}):
        response = client.post(url_of("edit_deadletter"), asked)
        assert response.status_code == 409
        assert "no longer registered" in response.content.decode()
    assert len(left()) == 1


def test_a_payload_that_is_too_long_to_be_changed_here(client: Client) -> None:
    (letter,) = give_up(OutgoingMessage("x" * 300_000))
    response = client.get(url_of("edit_deadletter"), {"offset": letter.pk})
    assert response.status_code == 409
    assert "the admin can edit up to 262,144 bytes" in response.content.decode()
    for offset in ("", "x", "99999999"):
        assert client.get(url_of("edit_deadletter"), {"offset": offset}).status_code == 409


def test_it_needs_all_of_its_rights() -> None:
    (letter,) = give_up(1)
    for right in RIGHTS:
        client = staff(*(set(RIGHTS) - {right}), "purge_deadletter", name=f"without-{right}")
        assert client.get(url_of("edit_deadletter"), {"offset": letter.pk}).status_code == 403
        assert client.post(url_of("edit_deadletter"), {"offset": letter.pk}).status_code == 403


def test_hostile_payloads(client: Client) -> None:
    (letter,) = give_up(OutgoingMessage({"html": "</textarea><script>alert(1)</script>"}, id="<i>"))
    form, html = shown(client, letter)
    assert "<script>alert" not in html
    plan = client.post(url_of("edit_deadletter"), {**form, "payload": '"<script>alert(2)"'}).content.decode()
    assert "<script>alert" not in plan
    assert "&lt;script&gt;alert(2)" in plan


def test_white_space_between_values_is_no_change(client: Client) -> None:
    """Another program may have written the payload in another way."""
    (letter,) = give_up({"a": 1})
    Message.objects.filter(pk=letter.pk).update(payload=b'{"a":   1}')
    letter.refresh_from_db()
    form, _ = shown(client, letter)
    assert "Nothing was changed." in text(client.post(url_of("edit_deadletter"), form).content.decode())
    assert "Nothing was changed." in told(sent(client, form))[0]
