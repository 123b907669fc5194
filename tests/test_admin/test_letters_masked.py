"""Dead letters of a topic with a mask: what those see who may not see all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage
from django_mqueue.inspect import Inspected
from tests.support.subscribers import QUICK

from .letters import TOPIC, give_up, left
from .looking import html_of
from .operating import confirm, staff, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = ("view_deadletter", "redrive_deadletter", "edit_deadletter", "purge_deadletter")


def no_card(message: Inspected) -> Inspected:
    errors = tuple(replace(one, error=one.error.replace("5105105105105100", "….")) for one in message.errors)
    return replace(message, payload={**message.payload, "card": "hidden"}, headers={}, errors=errors)


def broken(message: Inspected) -> Inspected:
    raise LookupError("5105105105105100")


@pytest.fixture(
    autouse=True, params=[{"MASK": no_card}, {"TOPICS": {"orders": {"MASK": no_card}}}, {"MASK": broken}]
)
def masked(request: pytest.FixtureRequest) -> Iterator[None]:
    """By the setting, by that of the original topic, by one that fails."""
    with override_settings(MQUEUE={**QUICK, **request.param}):
        yield


def test_who_may_not_see_all_sees_nothing_of_it() -> None:
    """On no page, and by no question."""
    (letter,) = give_up(
        OutgoingMessage(
            {"n": 1, "card": "5105105105105100"}, id="order-1", headers={"card": "5105105105105100"}
        ),
        error="Declined: 5105105105105100 of {n}\n5105105105105100",
    )
    client, other = staff(*RIGHTS), staff(*RIGHTS, "unmask_message", name="other")
    line = {"line": "Declined: # of #"}
    queries: list[tuple[str, dict[str, str]]] = [
        ("deadletter_changelist", {}),
        ("deadletter_errors", {"topic": TOPIC}),
        ("deadletter_list", {"topic": TOPIC}),
        ("deadletter", {"offset": str(letter.pk)}),
    ]
    for page, query in queries:
        html = html_of(client, url_of(page), query)
        assert "5105105105105100" not in html, page
    assert "Declined" in html_of(client, url_of("deadletter_errors"), {"topic": TOPIC})
    assert "5105105105105100" in html_of(other, url_of("deadletter"), {"offset": str(letter.pk)})
    for query in ({"path": "card", "value": "5105105105105101"}, {"line": "Declined: nothing"}):
        shown = html_of(client, url_of("deadletter_list"), {"topic": TOPIC, **query})
        assert "order-1" in shown, "what is asked of masked things tells nothing"
        assert "order-1" not in html_of(other, url_of("deadletter_list"), {"topic": TOPIC, **query})
    for asked in ({"path": "card", "value": "5105105105105100"}, line):
        for page in ("redrive_matching", "purge_matching"):
            response = client.get(url_of(page), {"topic": TOPIC, **asked})
            assert response.status_code == 409
            assert "masked" in response.content.decode()
    assert client.get(url_of("edit_deadletter"), {"offset": letter.pk}).status_code == 403
    assert (
        client.post(
            url_of("edit_deadletter"), {"offset": letter.pk, "seen": "x", "how": "json", "payload": "1"}
        ).status_code
        == 403
    )
    assert other.get(url_of("edit_deadletter"), {"offset": letter.pk}).status_code == 200
    assert told(confirm(client, "redrive_matching", {"topic": TOPIC, "error": "Declined"})) == [
        "1 dead letter was sent back: topic orders (error Declined)."
    ]
    assert left() == []
    assert "5105105105105100" not in str(written_down())
