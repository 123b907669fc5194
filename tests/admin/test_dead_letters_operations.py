"""Dead letters redriven and purged on the pages: selection, permissions, steps and messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import transaction
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage, Subscription, redrive, subscribe, unsubscribe
from django_mqueue.browse import bulk_redrive, dead_letters
from django_mqueue.models import Message
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume_rest, poll_until
from tests.support.threads import Background

from .dead_letters import DEAD, TOPIC, give_up, given, left, outgoing
from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

ALL = ("view_deadletter", "redrive_deadletter", "purge_deadletter", "edit_deadletter")


quick = with_settings(MQUEUE=QUICK)
client = staff_client(*ALL)


def planned(client: Client, page: str, asked: dict[str, Any]) -> str:
    return text(html_of(client, url_of(page), asked))


def steps(client: Client, page: str, asked: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each page of a run: the plan, each step, the final message."""
    response: Any = client.post(url_of(page), asked)
    html = response.content.decode()
    yield text(html)
    while response.status_code == 200 and 'name="confirmed"' in html:
        typed = {name: asked[name] for name in ("typed", "rate") if name in asked}
        response = client.post(url_of(page), {**hidden(html), **typed})
        html = response.content.decode()
        if response.status_code == 302:
            response = client.get(response.url)
            yield told(response)[0]
            return
        yield text(html)


def test_the_ticked_go_back(client: Client) -> None:
    """Only the selected dead letters are redriven, each to its group, with its id and as a first attempt."""
    letters = give_up(*outgoing(5))
    asked = {
        "topic": TOPIC,
        "offsets": [letters[1].pk, letters[3].pk],
        "list_query": f"topic={TOPIC}&key=k%26",
    }
    shown = planned(client, "redrive_selected", asked)
    assert "Redrive 2 dead letters? Topic orders (selected: order-1, order-3)." in shown
    assert left() == [f"order-{n}" for n in range(5)]
    response = confirm(client, "redrive_selected", asked)
    assert left() == ["order-0", "order-2", "order-4"]
    assert [(id, attempt) for id, _, attempt in given("billing", 2)] == [("order-1", 1), ("order-3", 1)]
    said = "2 dead letters were redriven: topic orders (selected: order-1, order-3)."
    assert told(response) == [said]
    assert response.redirect_chain[0][0] == f"{url_of('deadletter_list')}?topic=orders&key=k%26"
    assert written_down() == [("operator", "Dead letters of orders", said)]


def test_a_long_filter_is_no_obstacle(client: Client) -> None:
    letters = give_up(*outgoing(1))
    list_query = urlencode({"topic": TOPIC, "path": "$.name", "value": "\u6f22" * 500})
    asked = {"topic": TOPIC, "offsets": [letters[0].pk], "list_query": list_query}
    assert "Redrive 1 dead letter?" in planned(client, "redrive_selected", asked)


def test_of_many_that_are_ticked_some_are_named(client: Client) -> None:
    """The plan names the first five that are still stored, and how many more there are."""
    letters = give_up(*outgoing(8))
    asked = {"topic": TOPIC, "offsets": [one.pk for one in letters]}
    redrive(TOPIC, filter=lambda one: one.id == "order-0")
    named = "opic orders (selected: order-1, order-2, order-3, order-4, order-5 and 2 more)."
    assert f"Purge 7 dead letters? T{named}" in planned(client, "purge_selected", asked)
    assert told(confirm(client, "purge_selected", asked)) == [f"7 dead letters were purged: t{named}"]


def test_the_ticked_are_deleted(client: Client) -> None:
    """A consumer of dead letters keeps its other deliveries. The plan says that a purge is final."""
    letters = give_up(*outgoing(3))
    with Subscription(DEAD, "clerk") as clerk:
        held = poll_until(clerk, 3)
        asked = {"topic": TOPIC, "offsets": [letters[0].pk]}
        shown = planned(client, "purge_selected", asked)
        assert "Purge 1 dead letter? Topic orders (selected: order-0)." in shown
        assert "A purge cannot be undone." in shown
        said = "1 dead letter was purged: topic orders (selected: order-0)."
        assert told(confirm(client, "purge_selected", asked)) == [said]
        assert left() == ["order-1", "order-2"]
        assert len([one for one in held if one.id != "order-0" and one.ack()]) == 2
    assert given("billing", 0) == []
    assert [entry[1:] for entry in written_down()] == [(f"Dead letter {letters[0].pk} of orders", said)]


def test_what_cannot_be_ticked(client: Client) -> None:
    (letter,) = give_up(1)
    page = "purge_selected"
    for offsets, status, problem in (
        ([], 400, "No dead letter is selected."),
        (["x"], 400, "offsets: The offset of a dead letter must be a number"),
        ([-1], 400, "offsets: The offset of a dead letter must be a number"),
        (list(range(501)), 400, "offsets: Select at most 500 dead letters"),
        ([letter.pk + 10], 200, ""),
    ):
        response = client.post(url_of(page), {"topic": TOPIC, "offsets": offsets})
        assert response.status_code == status, offsets
        assert problem in response.content.decode()
        assert "is selected" in problem or "is selected" not in response.content.decode()
    assert "1 of the selected dead letters no longer exist" in text(response.content.decode())
    assert "Yes" not in response.content.decode()
    assert client.post(url_of(page), {"topic": TOPIC}).status_code == 400
    assert len(left()) == 1


def test_a_row_that_is_no_letter_is_left_alone(client: Client) -> None:
    """A selected offset of an ordinary message or of another topic is ignored."""
    give_up(*outgoing(2))
    (other,) = give_up(1, topic="payments")
    rows = [row.pk for row in Message.objects.filter(topic=TOPIC)]
    for page in ("redrive_selected", "purge_selected"):
        response = client.post(
            url_of(page), {"topic": TOPIC, "offsets": [*rows, other.pk], "confirmed": "yes"}
        )
        assert response.status_code == 302
        response = client.post(
            url_of(page), {"topic": TOPIC, "dead": TOPIC, "offsets": rows, "confirmed": "yes"}
        )
        assert response.status_code == 302
    assert Message.objects.filter(topic=TOPIC).count() == 2
    assert len(left()) == 2
    assert len(left("payments_dlq")) == 1


def test_all_that_match_go_back(client: Client) -> None:
    """Dead letters that arrive after the plan was shown are left alone."""
    give_up(*outgoing(4))
    give_up(*[OutgoingMessage(n, id=f"late-{n}") for n in range(2)], error="TimeoutError: {n}")
    asked = {"topic": TOPIC, "error": "ValueError"}
    run = steps(client, "redrive_matching", asked)
    assert "Redrive 4 dead letters? Topic orders (error ValueError)." in next(run)
    give_up(OutgoingMessage(9, id="order-9"))
    assert list(run) == ["4 dead letters were redriven: topic orders (error ValueError)."]
    assert left() == ["late-0", "late-1", "order-9"]
    assert len(given("billing", 4)) == 4
    assert written_down()[0][2] == "4 dead letters were redriven: topic orders (error ValueError)."


def test_to_delete_all_the_topics_name_is_typed(client: Client) -> None:
    give_up(*outgoing(3))
    give_up(4, error="KeyError: 4")
    asked = {"topic": TOPIC, "error": "ValueError"}
    shown = planned(client, "purge_matching", asked)
    assert "Purge 3 dead letters? Topic orders (error ValueError)." in shown
    assert "Type the topic's name" in shown
    for typed in ("", "order", "Orders", " orders"):
        response = client.post(url_of("purge_matching"), {**asked, "typed": typed, "confirmed": "yes"})
        assert response.status_code == 400
    assert len(left()) == 4
    run = list(steps(client, "purge_matching", {**asked, "typed": TOPIC}))
    assert run[1:] == ["3 dead letters were purged: topic orders (error ValueError)."]
    assert len(left()) == 1


def test_letters_of_groups_that_are_gone_stay(client: Client) -> None:
    give_up(*outgoing(3))
    give_up(group="stock")
    unsubscribe(TOPIC, "stock")
    shown = planned(client, "redrive_matching", {"topic": TOPIC})
    assert "Redrive 3 dead letters?" in shown
    assert "3 of group stock stay: the group is no longer registered." in shown
    assert told(confirm(client, "redrive_matching", {"topic": TOPIC})) == [
        "3 dead letters were redriven: topic orders. 3 stayed: their group is no longer registered."
    ]
    assert len(left()) == 3
    assert 'value="Redrive"' not in html_of(client, url_of("redrive_matching"), {"topic": TOPIC})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("page", ["redrive_matching", "purge_matching"])
def test_a_long_run_in_steps(client: Client, page: str) -> None:
    """The log of actions has one entry per run, with its count. A run can be abandoned and started again."""
    give_up(*outgoing(11))
    done = "redriven" if page == "redrive_matching" else "purged"
    asked = {"topic": TOPIC, "typed": TOPIC}
    run = steps(client, page, asked)
    next(run)
    first = next(run)
    assert f"4 dead letters were {done} so far; 4 were examined: topic orders." in first
    assert [entry[2] for entry in written_down()] == [
        f"Under way: 4 dead letters were {done} so far; 4 were examined: topic orders."
    ]
    next(run)
    assert len(left()) == 3
    assert len(written_down()) == 1
    # The operator closes the page and starts a new run.
    assert list(steps(client, page, asked))[-1] == f"3 dead letters were {done}: topic orders."
    assert left() == []
    assert len(written_down()) == 2
    if page == "redrive_matching":
        assert len({id for id, _, _ in given("billing", 11)}) == 11


@pytest.mark.usefixtures("small")
def test_what_fails_again_meanwhile_makes_no_endless_loop(client: Client) -> None:
    give_up(*outgoing(9))
    run = steps(client, "redrive_matching", {"topic": TOPIC})
    next(run)
    for pages, _ in enumerate(run, 1):
        if Message.objects.filter(topic=TOPIC, consumer_group="billing").exists() and pages < 3:
            give_up()
        assert pages < 10
    assert told_last(client) == "9 dead letters were redriven: topic orders."
    assert len(left()) == 8


def told_last(client: Client) -> str:
    return written_down()[-1][2]


def test_steps_that_find_nothing_go_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matching dead letter comes after more rows than one step reads."""
    give_up(*outgoing(9))
    give_up(OutgoingMessage(9, id="last"), error="KeyError: x")
    monkeypatch.setattr(bulk_redrive, "STEP_ROWS", 2)
    monkeypatch.setattr(bulk_redrive, "AT_ONCE", 2)
    pages = list(steps(client, "redrive_matching", {"topic": TOPIC, "error": "KeyError"}))
    assert len(pages) > 4
    assert "0 dead letters were redriven so far; 2 were examined" in pages[1]
    assert pages[-1] == "1 dead letter was redriven: topic orders (error KeyError)."
    assert len(left()) == 9


def test_a_match_that_was_not_counted_can_be_redriven(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan counts the oldest dead letters only."""
    give_up(*outgoing(9))
    give_up(OutgoingMessage(9, id="last"), error="KeyError: x")
    monkeypatch.setattr(dead_letters, "SEARCH_ROWS", 2)
    monkeypatch.setattr(dead_letters, "CHUNK", 2)
    shown = client.get(url_of("redrive_matching"), {"topic": TOPIC, "error": "KeyError"}).content.decode()
    assert "Redrive 0+ dead letters?" in shown
    assert 'value="Redrive"' in shown


def test_gently(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run keeps its rate per second, measured from step to step."""
    from django_mqueue.admin.dead_letters import operations

    now = [1_000.0]
    monkeypatch.setattr(operations, "time", SimpleNamespace(time=lambda: now[0]))
    give_up(*outgoing(7))
    counts, pages = [], []
    for page in steps(client, "redrive_matching", {"topic": TOPIC, "rate": "3"}):
        pages.append(page)
        counts.append(7 - len(left()))
        now[0] += 0.5
    assert counts[0] == 0
    assert all(after - before <= 3 for before, after in pairwise(counts))
    assert len(counts) > 5
    assert pages[-1] == "7 dead letters were redriven: topic orders."
    for rate in ("0", "x", "1000000"):
        response = client.post(url_of("redrive_matching"), {"topic": TOPIC, "rate": rate, "confirmed": "yes"})
        assert response.status_code == 400


def test_a_step_that_moves_too_many_delays_the_next(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads two dead letters at a time. One of each four is of another group, so it moves three."""
    from django_mqueue.admin.dead_letters import operations

    now = [1_000.0]
    monkeypatch.setattr(operations, "time", SimpleNamespace(time=lambda: now[0]))
    letters = give_up(*outgoing(12))
    others = [letters[n].pk for n in (1, 5, 9)]
    Message.objects.filter(pk__in=others).update(failed_group="shipping")
    moved = []
    for _ in steps(client, "redrive_matching", {"topic": TOPIC, "group": "billing", "rate": "2"}):
        moved.append(12 - len(left()))
        now[0] += 1
    assert moved[-1] == 9
    assert all(count <= 2 * number + 1 for number, count in enumerate(moved)), moved


def test_what_another_has_in_hand_is_left_to_him(client: Client) -> None:
    letters = give_up(*outgoing(3))
    with transaction.atomic():
        Message.objects.select_for_update().get(pk=letters[1].pk)
        shown = (
            Background(lambda: told(confirm(client, "redrive_matching", {"topic": TOPIC}))).start().result()
        )
    assert shown == [
        "2 dead letters were redriven: topic orders. 1 stayed: another process had locked it. Repeat this to"
        " include it."
    ]
    assert left() == ["order-1"]


@pytest.mark.usefixtures("small")
def test_two_operators_at_once(client: Client) -> None:
    """Two runs whose steps alternate redrive each dead letter once."""
    give_up(*outgoing(20))
    other = staff(*ALL, name="other")
    runs = [steps(one, "redrive_matching", {"topic": TOPIC}) for one in (client, other)]
    for run in runs:
        next(run)
    for _ in range(2):
        for run in runs:
            next(run)
    for run in runs:
        list(run)
    assert sum(int(what.split()[0]) for _, _, what in written_down()) == 20
    with Subscription(TOPIC, "billing", batch_size=100) as subscription:
        assert len([one for one in consume_rest(subscription) if one.attempt == 1]) == 20
    assert left() == []


def test_a_step_that_is_sent_twice_does_no_harm(client: Client, small: None) -> None:
    give_up(*outgoing(9))
    html = client.post(url_of("redrive_matching"), {"topic": TOPIC}).content.decode()
    html = client.post(url_of("redrive_matching"), hidden(html)).content.decode()
    for _ in range(2):
        client.post(url_of("redrive_matching"), hidden(html))
    assert left() == []
    assert len(given("billing", 9)) == 9


def test_each_needs_its_right() -> None:
    """An operation needs its own permission and the permission to view dead letters."""
    (letter,) = give_up(1)
    asked = {"topic": TOPIC, "offsets": [str(letter.pk)], "typed": TOPIC, "confirmed": "yes"}
    for right in ("redrive_deadletter", "purge_deadletter"):
        without = staff(*(set(ALL) - {right}), "publish_message", "view_message", name=f"without-{right}")
        blind = staff(right, name=f"blind-{right}")
        for page in (f"{right.partition('_')[0]}_{which}" for which in ("selected", "matching")):
            for client in (without, blind):
                assert client.get(url_of(page), asked).status_code == 403
                assert client.post(url_of(page), asked).status_code == 403
    assert len(left()) == 1
    assert written_down() == []


def test_an_ending_that_was_changed_since(client: Client) -> None:
    with override_settings(MQUEUE={**QUICK, "DLQ_SUFFIX": ".dead"}):
        give_up(*outgoing(2))
    assert told(confirm(client, "redrive_matching", {"topic": TOPIC, "dead": "orders.dead"})) == [
        "2 dead letters were redriven: topic orders."
    ]
    assert len(given("billing", 2)) == 2


def test_letters_of_letters_go_back_to_the_letters(client: Client) -> None:
    give_up(OutgoingMessage(1, id="order-1"))
    give_up(topic=DEAD, group="clerk")
    assert told(confirm(client, "redrive_matching", {"topic": DEAD})) == [
        "1 dead letter was redriven: topic orders_dlq."
    ]
    assert [id for id, _, _ in given("clerk", 1, topic=DEAD)] == ["order-1"]


def test_rows_that_are_not_of_our_making_go_back(client: Client) -> None:
    (letter,) = give_up(OutgoingMessage(1, id="order-1"))
    Message.objects.filter(pk=letter.pk).update(metadata={"what": "else"}, last_error=None, failed_at=None)
    assert told(confirm(client, "redrive_matching", {"topic": TOPIC})) == [
        "1 dead letter was redriven: topic orders."
    ]
    assert Message.objects.get(topic=TOPIC, consumer_group="billing").metadata == {"what": "else"}


def test_hostile_names(client: Client) -> None:
    topic, group = '<script>o"r/d%e?r&s', "<b>bold</b>"
    give_up(OutgoingMessage(1, id="<i>"), topic=topic, group=group)
    subscribe(topic, group)
    asked = {"topic": topic, "group": group, "list_query": 'topic=<script>&x="'}
    html = client.post(url_of("redrive_matching"), asked).content.decode()
    html += client.get(url_of("purge_matching"), asked).content.decode()
    response = confirm(client, "redrive_matching", asked)
    assert left(f"{topic}_dlq") == []
    for bad in ("<script>o", "<b>bold", '<script>&x="'):
        assert bad not in html + response.content.decode()
    assert 'name="stop"' not in html_of(client, url_of("deadletter_changelist"))
