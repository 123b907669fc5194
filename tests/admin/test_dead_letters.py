"""The pages of dead letters: topics, errors, lists, and single dead letters."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage, Subscription, redrive, unsubscribe
from django_mqueue.browse import dead_letters
from django_mqueue.drawing.payload_texts import BODY_CHARACTERS
from django_mqueue.models import Message
from django_mqueue.policy.dead_letter_filter import DeadLetterQuery
from django_mqueue.policy.encoding import JsonText
from tests.support.fixtures import with_settings
from tests.support.many import insert_dead_letters
from tests.support.subscribers import QUICK, poll_until

from .dead_letters import DEAD, TOPIC, give_up, ids, outgoing, table
from .looking import html_of, text
from .operating import hidden, staff, staff_client, url_of

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE=QUICK)
client = staff_client("view_deadletter")


def seen(client: Client, page: str, **query: Any) -> str:
    return text(html_of(client, url_of(page), {name: str(value) for name, value in query.items()}))


def test_the_topics_that_have_some(client: Client) -> None:
    """The page lists each topic with the groups that have dead letters, or says that none exist."""
    assert "There are no dead letters." in seen(client, "deadletter_changelist")
    give_up(*outgoing(3))
    give_up(group="stock")
    give_up(1, topic="payments")
    rows = table(client, "deadletter_changelist")
    assert [row[:3] for row in rows] == [
        ["orders", "billing", "3"],
        ["stock", "3"],
        ["payments", "billing", "1"],
    ]


def test_thousands_of_topics_come_some_at_a_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_mqueue.browse import dead_letter_topics

    for topic in ("a", "b", "c", "d"):
        give_up(1, topic=topic)
        give_up(topic=topic, group="stock")
    for pairs in (2, 3, 5, 100):
        monkeypatch.setattr(dead_letter_topics, "NAMES_AT_ONCE", pairs)
        found, after = [], ""
        for _ in range(10):
            page = dead_letter_topics.topics("default", after, 1)
            found += [(one.topic, sorted(one.groups)) for one in page.topics]
            if page.next is None:
                break
            after = page.next
        assert found == [(topic, ["billing", "stock"]) for topic in "abcd"], pairs


def test_by_error(client: Client) -> None:
    """Errors that differ only in numbers and ids are counted as one. The most frequent come first."""
    give_up(*outgoing(4))
    give_up(
        OutgoingMessage(5),
        OutgoingMessage(6),
        error="shop.errors.Declined: card 4f3a1c2b9d8e7f60 of customer-{n}",
    )
    give_up(7, error="no such customer")
    give_up(8, error="")
    rows = table(client, "deadletter_errors", topic=TOPIC)
    assert [row[:3] for row in rows] == [
        ["ValueError", "4", "billing"],
        ["ValueError: no such order #", "4", "billing"],
        ["Declined", "2", "billing"],
        ["Declined: card # of customer-#", "2", "billing"],
        ["no exception", "2", "billing 2"] if rows[4][2] != "billing" else ["no exception", "2", "billing"],
        *sorted(row[:3] for row in rows[5:]),
    ]
    assert sorted(row[0] for row in rows[5:]) == ["(no text)", "no such customer"]
    assert ids(client, error="ValueError", line="ValueError: no such order #") == [
        "order-3", "order-2", "order-1", "order-0",
    ]  # fmt: skip
    assert len(ids(client, line="(no text)")) == 1


CHOSEN: list[tuple[dict[str, str], str]] = [
    ({"error": "CardDeclined"}, "abc"),
    ({"error": "example_project.shop.outside.CardDeclined"}, "bc"),
    ({"error": "outside.CardDeclined"}, ""),
    ({"error": "Declined"}, ""),
    ({"error": "charge"}, ""),
    ({"line": "CARD 4711 of"}, "bc"),
    ({"line": "card  #"}, "abc"),
    ({"line": "charge.CardDeclined"}, "d"),
    ({"line": " "}, ""),
    ({"error": "CardDeclined", "exact": "1"}, "a"),
    ({"line": "CardDeclined: card #", "exact": "1"}, "a"),
    ({"line": "card #", "exact": "1"}, ""),
    ({"exact": "1"}, "abcd"),
]


def test_what_is_typed_is_a_part_and_a_link_is_the_whole(client: Client) -> None:
    """A search finds an error's class, with or without its module, and a part of its line.

    A link finds exactly the errors that it has counted.
    """
    one, two = "CardDeclined: card 1", "example_project.shop.outside.CardDeclined: card 22 of anna"
    for name, error in (("a", one), ("b", two), ("c", two), ("d", "4711 charge.CardDeclined: twice")):
        give_up(OutgoingMessage(1, id=f"order-{name}"), error=error)
    for query, found in CHOSEN:
        assert ids(client, **query) == [f"order-{name}" for name in reversed(found)], query
    html = html_of(client, url_of("deadletter_errors"), {"topic": TOPIC})
    rows = [part.partition("</tr>")[0] for part in html.split("<tbody>", 1)[1].split("<tr")[1:]]
    linked = [(row.split('href="')[1].split('"')[0], row) for row in rows if "deadletter/list" in row]
    assert len(linked) == 5
    for url, row in linked:
        count = int(row.split('class="mqueue-number">')[1].split("<")[0])
        shown = html_of(client, url.replace("&amp;", "&"))
        assert f"{count} dead letter{'' if count == 1 else 's'}." in text(shown), url
        search, _, matching = shown.partition('role="search"')[2].partition("</form>")
        assert 'name="exact"' not in search, "what is typed then is a part again"
        assert 'name="exact"' not in matching or 'name="exact" value="1"' in matching
    help_ = html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
    assert "The class name, with or without its module: CardDeclined." in help_
    assert 'id="id_line_helptext"' in help_


def test_what_a_link_has_counted_is_what_goes_back() -> None:
    client = staff("view_deadletter", "redrive_deadletter")
    give_up(OutgoingMessage(1, id="order-a"), error="CardDeclined: card 1")
    give_up(OutgoingMessage(2, id="order-b"), error="shop.CardDeclined: card 1")
    asked = {"topic": TOPIC, "error": "CardDeclined", "exact": "1"}
    html = html_of(client, url_of("deadletter_list"), asked)
    response: Any = client.post(url_of("redrive_selected"), {**hidden(html), "all": "1"})
    assert {**parse_qs(response.url.partition("?")[2]), "list_query": []} == {
        "topic": [TOPIC], "error": ["CardDeclined"], "exact": ["1"], "list_query": [],
    }  # fmt: skip
    html = html_of(client, response.url)
    assert '<input type="hidden" name="exact" value="1"' in html
    client.post(url_of("redrive_matching"), hidden(html))
    assert ids(client) == ["order-b"]


def test_the_list_shows_how_many_match_and_their_payloads(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total is exact if the count is quick. The short name of an error has its module in the tooltip."""
    from django_mqueue.admin.dead_letters import model_admin
    from django_mqueue.browse import dead_letter_list

    client = staff("view_deadletter", "redrive_deadletter", name="redriver")
    give_up(*outgoing(5), error="shop.errors.Declined: card {n}")
    monkeypatch.setattr(model_admin, "PAGE", 2)
    html = html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
    assert "5 dead letters." in text(html)
    assert "Select all 5 that match" in text(html)
    assert '<span title="shop.errors.Declined: card 4">Declined: card 4</span>' in html
    (first, _) = table(client, "deadletter_list", topic=TOPIC)
    assert '{"n":4,"customer":{"id":1}}' in "".join(first).replace(" ", "")
    assert "5 dead letters." in text(
        html_of(client, url_of("deadletter_list"), {"topic": TOPIC, "line": "card"})
    )
    monkeypatch.setattr(dead_letter_list, "COUNT_MOST", 3)
    monkeypatch.setattr(dead_letter_list, "TOTAL_SECONDS", 0)
    html = html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
    assert "More than 3 dead letters." in text(html)
    assert "Select all that match, more than 3" in text(html)


def test_the_neighbours_of_a_dead_letter(client: Client) -> None:
    """They are those of the list that led to the page: all of the topic, or all that match its filter."""
    letters = give_up(*outgoing(4))
    give_up(OutgoingMessage(9, id="other"), error="KeyError: x")
    give_up(OutgoingMessage(10, id="order-10"))

    def neighbours(letter: Message, **query: str) -> list[str]:
        html = html_of(client, url_of("deadletter"), {"offset": str(letter.pk), **query})
        urls = re.findall(r'<a href="([^"]+)" rel="(?:prev|next)">', html)
        return [
            text(html_of(client, unescape(url)).partition("<h1>")[2].partition("</h1>")[0]) for url in urls
        ]

    assert neighbours(letters[3]) == ["Dead letter other", "Dead letter order-2"]
    filtered = {"topic": TOPIC, "error": "ValueError"}
    assert neighbours(letters[3], **filtered) == ["Dead letter order-10", "Dead letter order-2"]
    assert neighbours(letters[0], **filtered) == ["Dead letter order-1"]
    assert neighbours(letters[0], topic="elsewhere", error="ValueError") == ["Dead letter order-1"]
    html = html_of(client, url_of("deadletter_list"), filtered)
    assert f"offset={letters[3].pk}" in html.partition("error=ValueError&amp;")[2]


def test_the_neighbours_of_one_group_among_many_of_another(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first statement of each search finds them, however slow the server is."""
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 0)
    first = give_up("first")[0]
    insert_dead_letters(TOPIC, "shipping", 100)
    last = give_up("last")[0]
    for letter, other in ((first, last), (last, first)):
        html = html_of(
            client, url_of("deadletter"), {"offset": str(letter.pk), "topic": TOPIC, "group": "billing"}
        )
        assert re.findall(r'offset=(\d+)" rel="(?:prev|next)"', html) == [str(other.pk)]


def test_of_many_the_newest_and_then_the_older(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page states how many dead letters it has read, and the next page continues there."""
    give_up(*outgoing(10))
    monkeypatch.setattr(dead_letters, "CHUNK", 2)
    monkeypatch.setattr(dead_letters, "SEARCH_ROWS", 4)
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 3600)
    page = dead_letters.by_error("default", DeadLetterQuery(TOPIC, DEAD))
    assert (page.examined, page.errors[0].count) == (4, 4)
    assert page.next is not None
    monkeypatch.setattr(dead_letters, "SEARCH_ROWS", 20)
    assert dead_letters.by_error("default", DeadLetterQuery(TOPIC, DEAD), page.next).errors[0].count == 6
    page = dead_letters.by_error("default", DeadLetterQuery(TOPIC, DEAD, id="order-3"))
    assert page.errors[0].count == 1
    Message.objects.filter(topic=DEAD).update(original_id="order-3")
    monkeypatch.setattr(dead_letters, "IDS", 4)
    page = dead_letters.by_error("default", DeadLetterQuery(TOPIC, DEAD, id="order-3"))
    assert (page.examined, page.errors[0].count) == (10, 10)
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 0)
    shown = html_of(client, url_of("deadletter_errors"), {"topic": TOPIC})
    assert "Errors of the newest 2 dead letters; there are more." in text(shown)
    assert "Older dead letters" in text(shown)


WHEN = datetime.now(UTC)


NARROWED: list[tuple[dict[str, str], str]] = [
    ({}, "9876543210"),
    ({"group": "billing"}, "9876543210"),
    ({"group": "nobody"}, ""),
    ({"id": "order-7"}, "7"),
    ({"id": "order-7", "group": "billing"}, "7"),
    ({"id": "nothing"}, ""),
    ({"key": "even"}, "86420"),
    ({"key": "even", "kind": "large"}, "86"),
    ({"kind": "large"}, "98765"),
    ({"error": "ValueError"}, "9876543210"),
    ({"error": "KeyError"}, ""),
    ({"path": "customer.id", "value": "1"}, "741"),
    ({"path": "customer__id", "value": "1", "key": "odd"}, "71"),
    ({"path": "customer", "value": '{"id": 2}'}, "852"),
    ({"path": "nothing", "value": "1"}, ""),
    ({"after": (WHEN - timedelta(days=1)).isoformat()}, "9876543210"),
    ({"after": (WHEN + timedelta(days=1)).isoformat()}, ""),
    ({"before": (WHEN - timedelta(days=1)).isoformat()}, ""),
    ({"before": (WHEN + timedelta(days=1)).isoformat()}, "9876543210"),
]


def test_the_list_is_narrowed(client: Client) -> None:
    give_up(
        *(
            OutgoingMessage(
                {"n": n, "customer": {"id": n % 3}},
                id=f"order-{n}",
                key="odd" if n % 2 else "even",
                kind="large" if n > 4 else "small",
            )
            for n in range(10)
        )
    )
    for query, found in NARROWED:
        assert ids(client, **query) == [f"order-{n}" for n in found], query


def test_pages_of_the_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_mqueue.admin.dead_letters import model_admin
    from django_mqueue.browse import dead_letters

    give_up(*outgoing(23))
    for name, value in (("CHUNK", 4), ("SEARCH_SECONDS", 0)):
        monkeypatch.setattr(dead_letters, name, value)
    monkeypatch.setattr(model_admin, "PAGE", 5)
    for query in ({}, {"error": "ValueError"}, {"path": "customer.id", "value": "1"}):
        found: list[str] = []
        url = f"{url_of('deadletter_list')}?topic={TOPIC}"
        url += "".join(f"&{name}={value}" for name, value in query.items())
        for _ in range(20):
            html = html_of(client, url)
            found += [
                part.split("<")[0]
                for part in html.split('class="mqueue-name" href="')[1:]
                for part in [part.split(">", 1)[1]]
                if part.startswith("order-")
            ]
            if "Older dead letters" not in html:
                break
            url = html.split('">Older dead letters')[0].rpartition('href="')[2].replace("&amp;", "&")
        wanted = [n for n in range(23) if not query.get("path") or n % 3 == 1]
        assert found == [f"order-{n}" for n in reversed(wanted)], query


def test_one_letter(client: Client) -> None:
    """The page shows the error with its frames, the payload, the headers and the origin."""
    (letter,) = give_up(
        OutgoingMessage({"n": 1}, id="order-1", key="k", kind="placed", headers={"trace": "t-1"})
    )
    html = html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    shown = text(html)
    for part in (
        "order-1",
        "placed",
        "billing",
        '"n": 1',
        '"trace": "t-1"',
        "ValueError: no such order 0",
        "charge(order)",
    ):
        assert part in shown, part
    own = html.split('<pre class="mqueue-own">')[1].split("</pre>")[0]
    assert "consumers.py" in own
    assert "site-packages" not in own
    assert "site-packages/lib/call.py:9 in call</summary>" in html
    assert (
        client.get(url_of("deadletter_change", letter.offset), follow=True)
        .content.decode()
        .count("charge(order)")
    )


def test_the_errors_of_all_attempts(client: Client) -> None:
    from django_mqueue import publish, subscribe

    subscribe(TOPIC, "billing")
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, "billing", max_attempts=3) as subscription:
        for attempt in (1, 2, 3):
            poll_until(subscription, 1)[0].nack(error=f"KeyError: try {attempt}")
    offset = Message.objects.get(topic=DEAD).offset
    shown = seen(client, "deadletter", offset=offset)
    assert [shown.count(f"KeyError: try {attempt}") for attempt in (1, 2, 3)] == [1, 1, 1]
    assert shown.index("try 3") < shown.index("try 2") < shown.index("try 1")


def test_what_is_known_of_its_past() -> None:
    """The page links to the redriven message and to the dead letters of other groups."""
    client = staff("view_deadletter", "view_message")
    give_up(OutgoingMessage(1, id="order-1", key="k"))
    (other,) = give_up(group="stock")
    assert redrive(TOPIC, group="billing") == 1
    (letter,) = give_up()
    returned = Message.objects.get(topic=TOPIC, consumer_group="billing")
    html = html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    assert f'<a href="{url_of("message_change", returned.offset)}">{returned.offset}</a>' in html
    assert f'<a href="{url_of("deadletter")}?offset={other.offset}">{other.offset}</a> of stock' in html
    assert "Redriven with this id" in html


def test_messages_of_other_keys_and_parked_retries_are_not_of_its_past() -> None:
    """Another key has the same id. A group parked a retry of the message, and its copy is in the log."""
    client = staff("view_deadletter", "view_message")
    (letter, _) = give_up(*(OutgoingMessage(1, id="order-1", key=key) for key in ("k", "other")))
    assert "with this id" not in html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    with Subscription(TOPIC, "stock") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.nack(delay=7_200)
        Message.objects.filter(topic=f"{TOPIC}_scheduled").update(available_at=1)
        poll_until(subscription, 2)
    assert redrive(TOPIC, filter=lambda one: one.key == "other") == 1
    assert "with this id" not in html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})


def test_what_is_gone(client: Client) -> None:
    (letter,) = give_up(1)
    redrive(TOPIC)
    assert "There is no such dead letter" in seen(client, "deadletter", offset=letter.offset)
    assert client.get(url_of("deadletter"), {"offset": "x"}).status_code == 404
    assert client.get(url_of("deadletter")).status_code == 404
    assert "There are no dead letters" in seen(client, "deadletter_errors", topic=TOPIC)


def test_a_group_that_is_gone() -> None:
    client = staff("view_deadletter", "redrive_deadletter")
    (letter,) = give_up(1)
    assert "Redrive" in html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    unsubscribe(TOPIC, "billing")
    shown = html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    assert "no longer registered" in shown
    assert "Redrive" not in shown


def test_letters_of_letters(client: Client) -> None:
    """A dead letter is listed under the topic on which it failed, even if that is a dead-letter topic."""
    give_up(OutgoingMessage(1, id="order-1"))
    give_up(topic=DEAD, group="clerk", error="LookupError: and again")
    rows = table(client, "deadletter_changelist")
    assert [row[:3] for row in rows] == [["orders", "billing", "1"], ["orders_dlq", "clerk", "1"]]
    assert ids(client, topic=DEAD) == ["order-1"]
    assert table(client, "deadletter_errors", topic=DEAD)[0][0] == "LookupError"


@override_settings(MQUEUE={**QUICK, "DLQ_SUFFIX": ".dead", "TOPICS": {"payments": {"DLQ_SUFFIX": ".failed"}}})
def test_other_endings(client: Client) -> None:
    """Dead letters with a suffix that was changed later are also found."""
    give_up(OutgoingMessage(1, id="order-1"))
    give_up(OutgoingMessage(2, id="pay-1"), topic="payments")
    assert [row[0] for row in table(client, "deadletter_changelist")] == ["orders", "payments"]
    assert ids(client, topic="payments") == ["pay-1"]
    with override_settings(MQUEUE=QUICK):
        rows = table(client, "deadletter_changelist")
        assert [row[0] for row in rows] == ["ordersin orders.dead", "paymentsin payments.failed"]
        assert ids(client) == []
        assert ids(client, dead="orders.dead") == ["order-1"]


HOSTILE = '<script>alert("x")</script>\x1b[31mred\x1b[0m\u202eevil\x00'


def test_hostile_texts(client: Client) -> None:
    """The pages show markup, terminal codes, invalid characters and cut texts escaped."""
    topic = '<b>o"r/d%e?r&s'
    (letter,) = give_up(
        OutgoingMessage({"html": HOSTILE}, id="<i>id</i>", key="<u>k</u>", kind="<s>", headers={"<h>": "\x1b[1m"}),
        topic=topic, error=f"Boom: {HOSTILE}\n" + "x" * 9_000, group="<g>",
    )  # fmt: skip
    Message.objects.filter(pk=letter.pk).update(payload=bytes(letter.payload).replace(b'"}', b'\\ud83d"}'))
    pages = [
        html_of(client, url_of("deadletter_changelist")),
        html_of(client, url_of("deadletter_errors"), {"topic": topic}),
        html_of(client, url_of("deadletter_list"), {"topic": topic, "line": "<script>alert"}),
        html_of(client, url_of("deadletter_list"), {"topic": topic}),
        html_of(client, url_of("deadletter"), {"offset": str(letter.offset)}),
    ]
    for html in pages:
        for bad in ("<script>alert", "<i>id", "<u>k", "<s>", "<g>", "<b>o", "\x1b", "\x00", "\u202e"):
            assert bad not in html, bad
        assert "mqueue-navigation" in html
    assert ids(client, topic=topic) == ["<i>id</i>"]


STRANGE: list[Any] = [
    [],
    5,
    "text",
    {},
    {"kind": 5, "headers": "x", "encoding": []},
    {"failed": {"errors": [{}, 5], "attempts": "x"}},
]


def test_rows_that_are_not_of_our_making(client: Client) -> None:
    """The pages show dead letters even if their payload and metadata cannot be decoded."""
    (letter,) = give_up(OutgoingMessage({"n": 1}, id="order-1"))
    row = Message.objects.filter(pk=letter.pk)
    for metadata in STRANGE:
        row.update(metadata=metadata, payload=b"\xff{broken", last_error=None, failed_at=None)
        assert ids(client) == ["order-1"]
        assert ids(client, path="n", value="1") == []
        assert "order-1" in seen(client, "deadletter", offset=letter.offset)
        assert "(no text)" in seen(client, "deadletter_errors", topic=TOPIC)


def test_without_a_topic(client: Client) -> None:
    for page in ("deadletter_errors", "deadletter_list"):
        for topic in ("", " x", "x" * 300):
            assert client.get(url_of(page), {"topic": topic}).status_code == 200
        assert client.get(url_of(page)).status_code == 200


def test_the_page_of_errors_names_the_invalid_field(client: Client) -> None:
    query = {"topic": TOPIC, "after": "yesterday"}
    html = html_of(client, url_of("deadletter_errors"), query)
    assert '<ul class="errorlist"><li>after<ul' in html
    assert "Enter a valid date/time." in html


IMPOSSIBLE: list[dict[str, str]] = [
    {"after": "x"},
    {"path": "a..b"},
    {"key": " k"},
    {"group": "x" * 300},
    {"below": "x"},
    {"below": "9" * 30},
]


def test_what_cannot_be_asked(client: Client) -> None:
    give_up(1)
    for query in IMPOSSIBLE:
        response = client.get(url_of("deadletter_list"), {"topic": TOPIC, **query})
        assert response.status_code == 200
        assert ("Please correct" in response.content.decode()) == ("below" not in query)


def test_who_may_not_look_sees_nothing() -> None:
    client = staff("view_message", "view_topic", "redrive_deadletter", "purge_deadletter")
    for page in ("deadletter_changelist", "deadletter_errors", "deadletter_list", "deadletter"):
        assert client.get(url_of(page), {"topic": TOPIC, "offset": "1"}).status_code == 403


def test_buttons_are_for_those_who_may_press_them() -> None:
    (letter,) = give_up(1)
    offered = {"redrive_deadletter": "redrive", "purge_deadletter": "purge", "edit_deadletter": "edit"}
    for rights in (
        [],
        ["redrive_deadletter"],
        ["purge_deadletter"],
        ["redrive_deadletter", "edit_deadletter"],
    ):
        client = staff("view_deadletter", *rights, name=f"with-{'-'.join(rights)}")
        pages = [
            html_of(client, url_of("deadletter_errors"), {"topic": TOPIC}),
            html_of(client, url_of("deadletter_list"), {"topic": TOPIC}),
            html_of(client, url_of("deadletter"), {"offset": str(letter.offset)}),
        ]
        for right, part in offered.items():
            there = [f"/deadletter/{part}" in html for html in pages]
            assert any(there) == (right in rights), (rights, part)


def test_the_page_of_a_deeply_nested_payload_is_bounded(client: Client) -> None:
    """Indentation would make each line of a deeply nested payload long. The page shows it on one line."""
    (letter,) = give_up(OutgoingMessage(JsonText("[" * 190 + ",".join(["1"] * 130_000) + "]" * 190)))
    html = html_of(client, url_of("deadletter"), {"offset": str(letter.offset)})
    assert len(html) < 2 * BODY_CHARACTERS
    assert "[1, 1, 1," in html
