"""Dead letters with masks that change their argument, errors that look like class names, and repeated steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage
from django_mqueue.inspect import Inspected

from .dead_letters import DEAD, TOPIC, give_up, left, outgoing
from .looking import html_of, text
from .operating import hidden, staff, staff_client, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "5105105105105100"
"""Long enough that no time, number or token on a page contains it by chance."""


def in_place(message: Inspected) -> Inspected:
    """Change the payload in place, as projects do, although it does not belong to the mask."""
    message.payload["card"] = "…"
    return replace(message, errors=tuple(replace(one, error="masked") for one in message.errors))


def test_a_mask_that_changes_the_payload_in_place() -> None:
    (letter,) = give_up(OutgoingMessage({"card": SECRET}, id="order-1"))
    asked = {"offset": str(letter.pk)}
    with override_settings(MQUEUE={"MASK": in_place}):
        html = html_of(staff("view_deadletter"), url_of("deadletter"), asked)
        assert SECRET not in html
        assert "&quot;card&quot;: &quot;…&quot;" in html
        seer = staff("view_deadletter", "unmask_message", name="seer")
        assert SECRET in html_of(seer, url_of("deadletter"), asked)


def test_texts_that_look_like_names_are_masked() -> None:
    """A masked page shows only texts that are written like a class. It counts all other errors together."""
    for error in (
        "5105105105105100_0815: declined",
        "5105105105105100",
        "hunter5105105105105100: no",
        "shop.Declined: 5105105105105100",
    ):
        give_up(1, error=error)
    with override_settings(MQUEUE={"MASK": in_place}):
        client = staff("view_deadletter", "redrive_deadletter")
        errors = html_of(client, url_of("deadletter_errors"), {"topic": TOPIC})
        rows = html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
        assert SECRET not in errors + rows
        assert "shop.Declined" in errors
        assert "shop.Declined" in rows
        assert errors.count("no exception") == 1
        response = client.get(url_of("redrive_matching"), {"topic": TOPIC, "error": "hunter5105105105105100"})
        assert response.status_code == 409
        response = client.get(url_of("redrive_matching"), {"topic": TOPIC, "error": "shop.Declined"})
        assert "Redrive 1 dead letter?" in text(response.content.decode())


def test_a_digit_that_is_no_number_names_no_letter() -> None:
    client = staff("view_deadletter", "redrive_deadletter", "edit_deadletter")
    assert client.get(url_of("edit_deadletter"), {"offset": "²"}).status_code == 409


def test_what_turns_the_text_is_shown_before_it_is_agreed_to() -> None:
    topic = "orders\u202egnitset"
    give_up(1, topic=topic)
    client = staff("view_deadletter", "purge_deadletter")
    html = client.post(url_of("purge_matching"), {"topic": topic, "typed": topic}).content.decode()
    asked = html.partition('class="mqueue-what"')[2].partition("</ul>")[0]
    assert "orders\\u202egnitset" in asked
    assert "\u202e" not in asked


client = staff_client("view_deadletter", "purge_deadletter", "redrive_deadletter")


def first_step(client: Client, page: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run the first step and return the fields that its page sends."""
    html = client.post(url_of(page), asked).content.decode()
    return hidden(client.post(url_of(page), {**hidden(html), **asked}).content.decode())


@pytest.mark.usefixtures("small")
def test_a_step_that_is_sent_twice_is_written_down_as_what_it_did(client: Client) -> None:
    """The counts in the log add up to the number of purged letters. A repeated step overwrites no entry."""
    give_up(*outgoing(10))
    asked = first_step(client, "purge_matching", {"topic": TOPIC, "typed": TOPIC})
    html = client.post(url_of("purge_matching"), asked).content.decode()
    client.post(url_of("purge_matching"), asked)
    client.post(url_of("purge_matching"), hidden(html))
    assert left() == []
    counts = [int(what.split()[0]) for _, _, what in written_down()]
    assert sum(counts) == 10
    assert len(counts) > 1


@pytest.mark.usefixtures("small")
def test_the_step_of_one_run_does_not_go_on_with_another(client: Client) -> None:
    give_up(*outgoing(6))
    give_up(*outgoing(6), topic="payments")
    asked = first_step(client, "purge_matching", {"topic": TOPIC, "typed": TOPIC})
    crossed = {**asked, "topic": "payments", "typed": "payments", "up_to": ""}
    client.post(url_of("purge_matching"), crossed)
    assert [(about, what.split(":")[-1].strip()) for _, about, what in written_down()] == [
        ("Dead letters of orders", "topic orders."),
        ("Dead letters of payments", "topic payments."),
    ]
    assert len(left(DEAD)) == 2
    assert len(left("payments_dlq")) == 2
