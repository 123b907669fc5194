"""Dead letters of a topic with a mask, as users without ``unmask_message`` see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.conf import settings
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription
from django_mqueue.admin.base import row_ids
from django_mqueue.inspect import Inspected
from tests.support.subscribers import QUICK

from .dead_letters import TOPIC, give_up, left
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
    """Set a mask for all topics, a mask for the original topic, or a mask that fails."""
    with override_settings(MQUEUE={**QUICK, **request.param}):
        yield


def test_who_may_not_see_all_sees_nothing_of_it() -> None:
    """No page shows a masked value, and no search reveals it."""
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
            url_of("edit_deadletter"),
            {
                "offset": letter.pk,
                "fingerprint": "x",
                "payload_format": "json",
                "payload": "1",
                "headers": "{}",
            },
        ).status_code
        == 403
    )
    assert other.get(url_of("edit_deadletter"), {"offset": letter.pk}).status_code == 200
    assert told(confirm(client, "redrive_matching", {"topic": TOPIC, "error": "Declined"})) == [
        "1 dead letter was redriven: topic orders (error Declined)."
    ]
    assert left() == []
    assert "5105105105105100" not in str(written_down())


def test_after_another_ending_of_dead_letters_is_set_they_are_still_masked(masked: None) -> None:
    """The topic's name no longer says whose dead letters it holds. The rows still do."""
    (letter,) = give_up(OutgoingMessage({"n": 1, "card": "5105105105105100"}, id="order-1"), error="Declined")
    with Subscription(letter.topic, "mender") as mender:
        mender.poll()[0].nack(error="Declined: 5105105105105100")
    state = row_ids.encode(("mender", letter.topic, letter.partition_key, letter.offset))
    pages: list[tuple[str, dict[str, str]]] = [
        (url_of("message_changelist"), {}),
        (url_of("message_changelist"), {"topic": letter.topic}),
        (url_of("message_change", letter.offset), {}),
        (url_of("deadletter"), {"offset": str(letter.offset)}),
        (url_of("deliverystate_change", state), {}),
    ]
    client = staff(*RIGHTS, "view_message", "view_deliverystate")
    other = staff(*RIGHTS, "view_message", "view_deliverystate", "unmask_message", name="other")
    with override_settings(MQUEUE={**settings.MQUEUE, "DLQ_SUFFIX": "_dead"}):
        for url, query in pages:
            assert "5105105105105100" not in html_of(client, url, query), (url, query)
            assert "5105105105105100" in html_of(other, url, query), (url, query)
        asked = {"topic": letter.topic, "path": "card", "value": '"5105105105105100"'}
        assert "order-1" not in html_of(client, url_of("message_changelist"), asked)
        assert "order-1" in html_of(other, url_of("message_changelist"), asked)


def test_the_log_of_actions_holds_no_value_that_was_asked_for() -> None:
    """Readers of the log may lack the permission to view dead letters."""
    give_up(
        OutgoingMessage({"card": "5105105105105100"}, id="order-1"),
        error="the secret 5105105105105100 is bad",
    )
    other = staff(*RIGHTS, "unmask_message", name="other")
    asked = {"topic": TOPIC, "path": "card", "value": "5105105105105100"}
    shown = other.get(url_of("redrive_matching"), asked).content.decode()
    assert "payload card = 5105105105105100" in shown
    assert told(confirm(other, "redrive_matching", asked)) == [
        "1 dead letter was redriven: topic orders (payload card = a value)."
    ]
    give_up(error="the secret 5105105105105100 is bad")
    asked = {"topic": TOPIC, "line": "the secret"}
    response = other.post(
        url_of("purge_matching"), {**asked, "typed": TOPIC, "confirmed": "yes"}, follow=True
    )
    assert told(response) == ["1 dead letter was purged: topic orders (error like a text)."]
    assert "secret" not in str(written_down())
    assert "5105105105105100" not in str(written_down())
